# Written by `make stub`.
from untilt.papers.page import reproduce as reproduce
from untilt.simulation.grids import grid_examination as grid_examination
from untilt.simulation.grids import simulate_grid as simulate_grid
from untilt.simulation.production import production_ranker as production_ranker
from untilt.simulation.production import production_rankers as production_rankers
from untilt.simulation.simulate import simulate_to_parquet as simulate_to_parquet
from untilt.simulation.synthetic import make_judged as make_judged
