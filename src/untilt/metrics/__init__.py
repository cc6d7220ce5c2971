"""Layer 1: ranking metrics on arrays (scores, labels, indptr). Nothing here knows a click log."""

from untilt.metrics.formulas import ARP, DCG, MAP, MRR, NDCG, Precision, Recall
from untilt.metrics.metric import Metric, parse_metric, parse_metrics

__all__ = [
    "ARP",
    "DCG",
    "MAP",
    "MRR",
    "NDCG",
    "Metric",
    "Precision",
    "Recall",
    "parse_metric",
    "parse_metrics",
]
