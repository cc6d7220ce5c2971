# Written by `make stub`.
from untilt.selection.query_folds import QueryKFold as QueryKFold
from untilt.selection.select import doubling as doubling
from untilt.selection.select import parameter_grid as parameter_grid
