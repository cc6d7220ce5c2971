"""Layer 1: ranking metrics on arrays (scores, labels, indptr). Nothing here knows a click log."""

from untilt.metrics.arp import ARP
from untilt.metrics.base import Metric
from untilt.metrics.binary import MAP, MRR, Precision, Recall
from untilt.metrics.dcg import DCG, NDCG
from untilt.metrics.parse import parse_metric, parse_metrics

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
