# Written by `make stub`.
from untilt.metrics.formulas import ARP as ARP
from untilt.metrics.formulas import DCG as DCG
from untilt.metrics.formulas import MAP as MAP
from untilt.metrics.formulas import MRR as MRR
from untilt.metrics.formulas import NDCG as NDCG
from untilt.metrics.formulas import Precision as Precision
from untilt.metrics.formulas import Recall as Recall
from untilt.metrics.metric import Metric as Metric
from untilt.metrics.metric import parse_metric as parse_metric
from untilt.metrics.metric import parse_metrics as parse_metrics
