"""Names of metrics: ndcg@10, ndcg@5:gain=linear, map:relevant_from=2, arp."""

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from untilt import catalog
from untilt.errors import OptionError, did_you_mean
from untilt.metrics.base import Metric

_NAME = re.compile(r"(?P<name>[^@:]+?)\s*(@\s*(?P<k>[^:]*?)\s*)?(:(?P<options>.*))?")


def parse_metric(metric: str | Metric) -> Metric:
    """The metric of a name such as `ndcg@10`; capitals do not matter. A metric is handed through.

    The grammar is name[@k][:option=value,...], and `str(metric)` writes it.

    >>> parse_metric("nDCG@10")
    NDCG(k=10, gain='exponential')
    >>> parse_metric("P@5:relevant_from=2")
    Precision(k=5, relevant_from=2.0)
    """
    if isinstance(metric, Metric):
        return metric
    found = _NAME.fullmatch(metric.strip().lower()) if isinstance(metric, str) else None
    if found is None:
        raise OptionError(f"a metric is a name such as 'ndcg@10'. Got {metric!r} instead.")
    record = catalog.find("metric", found["name"])
    kind: type[Metric] = record.load()
    options = _options(kind, found["options"])
    if found["k"] is not None:
        options["k"] = _cut(kind, found["k"])
    elif "cut" in record.needs:
        raise OptionError(f"{kind.name} needs a cut, as in '{kind.name}@10'. Got {metric!r}.")
    return kind(**options)


def parse_metrics(metrics: str | Metric | Sequence[str | Metric]) -> tuple[Metric, ...]:
    """One metric or several, each once, in the order given."""
    several = [metrics] if isinstance(metrics, str | Metric) else metrics
    parsed = tuple(dict.fromkeys(parse_metric(metric) for metric in several))
    if not parsed:
        raise OptionError("no metric was asked for. Name at least one, such as 'ndcg@10'.")
    return parsed


def _cut(kind: type[Metric], text: str) -> int:
    if "k" not in _option_names(kind, with_cut=True):
        raise OptionError(f"{kind.name} has no cut: it looks at the whole list. Write {kind.name}.")
    if not text.isdecimal():
        raise OptionError(f"{kind.name}@k needs a whole number k of at least 1. Got {text!r}.")
    return int(text)


def _options(kind: type[Metric], text: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in text.split(",") if text is not None else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _option_names(kind) or not equals:
            known = ", ".join(_option_names(kind)) or "none"
            hint = did_you_mean(name, _option_names(kind))
            raise OptionError(f"{kind.name} has no option {part!r}.{hint} Its options: {known}.")
        options[name] = _number(value) if name == "relevant_from" else value
    return options


def _option_names(kind: type[Metric], *, with_cut: bool = False) -> list[str]:
    return [option.name for option in fields(kind) if with_cut or option.name != "k"]


def _number(text: str) -> float | str:
    """A number where it is one; else the text, which the metric itself refuses by name."""
    try:
        return float(text)
    except ValueError:
        return text
