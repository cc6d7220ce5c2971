# Written by `make stub`.
from untilt.metrics.metric import ARP as ARP
from untilt.metrics.metric import DCG as DCG
from untilt.metrics.metric import MAP as MAP
from untilt.metrics.metric import MRR as MRR
from untilt.metrics.metric import NDCG as NDCG
from untilt.metrics.metric import Metric as Metric
from untilt.metrics.metric import Precision as Precision
from untilt.metrics.metric import Recall as Recall
from untilt.metrics.metric import parse_metric as parse_metric
from untilt.metrics.metric import parse_metrics as parse_metrics
