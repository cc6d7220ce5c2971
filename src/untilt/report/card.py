"""The model card of a run's ranker: Markdown with a YAML header, as model hubs show it.

Everything in it comes from the figures of the run. Times, machine and paths are left out: the same
figures give the same bytes, and a card can be published.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from untilt import catalog
from untilt._core import words
from untilt._core.markdown import bullets, plain, yaml_text
from untilt._version import __version__
from untilt.auditing.audit import Audit
from untilt.errors import OptionError
from untilt.evaluation.estimate_view import sensitivity_section
from untilt.rankers.card import (
    FROM_CLICKS,
    LIMITS,
    MOST_FEATURES,
    TAGS,
    bias_section,
    header,
    how_to_use,
)
from untilt.report.decision import Answer, Decision, first_sentence
from untilt.report.floors import EVIDENCE
from untilt.report.page import compared_section, log_section
from untilt.report.step_results import HeldOut, Shipped, UsedBias
from untilt.views import Section, Table, markdown

_LIMITS = (
    *LIMITS,
    "The estimate rests on clicks, not on human judgements of relevance: what makes people click "
    "and disappoints them later counts as good.",
    *FROM_CLICKS,
)


def model_card(decision: Decision) -> str:
    """The card of the candidate that a run leaves: data, method, bias, evaluation, limits.

    Markdown with the YAML header of the Hugging Face Hub, where it is the `README.md` of a model.
    `untilt.run` writes it to `ranker.md` beside `candidate.untilt`; for a folder of an earlier run,
    `model_card(Decision.load("results/figures.json"))`. Raises `OptionError` where the run trained
    no ranker.
    """
    shipped = decision.candidate
    if shipped is None:
        raise OptionError(
            "a model card is about a ranker, and these figures have none. Give those of a run on a "
            "log with features, which left a candidate.untilt."
        )
    part = decision.held_out
    sections = [
        *([] if decision.audit is None else [_data(decision, decision.audit)]),
        _method(decision, shipped),
        *([] if decision.bias is None else [_bias(decision.bias)]),
        *([] if part is None else _evaluation(part)),
        Section("limits", "Limits", notes=(*_LIMITS, *decision.warnings)),
    ]
    parts = [
        _header(decision, shipped),
        f"# Ranker for {plain(decision.title)}",
        _verdict(decision),
        how_to_use("ranker.untilt" if decision.ships else "candidate.untilt"),
        markdown(sections),
        f"Made by untilt {__version__}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _header(decision: Decision, shipped: Shipped) -> str:
    """The YAML between two lines of dashes; the result in the terms of a hub's `model-index`."""
    lines: list[str] = []
    answer = decision.answer
    if answer is not None and math.isfinite(answer.new.value):
        lines = ["model-index:", f"- name: {yaml_text(decision.title)}", "  results:", "  - task:"]
        lines += ["      type: ranking", "      name: ranking by clicks", "    dataset:"]
        lines += [
            "      type: click-log",
            f"      name: {yaml_text(decision.title)}",
            "    metrics:",
        ]
        lines += [line for each in _metrics(answer) for line in each]
    return header((*TAGS, shipped.method), *lines)


def _metrics(answer: Answer) -> list[list[str]]:
    metric, gap, new = words.metric_name(answer.new.metric), answer.difference, answer.new
    known = [(f"{metric} per session", new.value, new.interval)]
    known.append((f"{metric} minus that of the {gap.baseline}", gap.value, gap.interval))
    named = [
        (f"{name}, {i.level:.0%} interval {i.low:.6g} to {i.high:.6g}", value)
        for name, value, i in known
        if math.isfinite(value)
    ]
    return [
        [
            f"    - type: {yaml_text(answer.new.metric)}",
            f"      name: {yaml_text(name)}",
            f"      value: {value:.6f}",
        ]
        for name, value in named
    ]


def _verdict(decision: Decision) -> str:
    answer = decision.answer
    if answer is None:
        return _sentences([decision.no_answer])
    told = _sentences([first_sentence(answer), answer.recommendation])
    reasons = bullets(map(words.sentence, answer.reasons))
    return f"{told}\n\n{reasons}" if reasons else told


def _data(decision: Decision, audit: Audit) -> Section:
    """The page's section without its notes."""
    named = ", ".join(decision.kept_out)
    told = (f"Not used, because they know the click or the shown rank: {named}.",) if named else ()
    return replace(log_section(decision, audit), title="Data", paragraphs=told, notes=())


def _method(decision: Decision, shipped: Shipped) -> Section:
    training, plan, part = decision.training, decision.plan, decision.held_out
    best = None if training is None else training.best
    what = best.note if best is not None else ""
    if not what:
        what = next((e.note for e in catalog.methods() if e.name == shipped.method), "")
    trained = f"Trained on {words.count_of(shipped.queries, 'query', 'queries')}"
    told = (
        f"{shipped.method}{f': {what}' if what else ''}",
        f"{trained} with {words.count_of(shipped.sessions, 'session')}",
        f"{plan.trees} trees were asked for" if plan and isinstance(plan.trees, int) else None,
        shipped.note,
        decision.told_of_file,
        None if shipped.learned is None else shipped.learned.reason,
        None if training is None else training.why,
    )
    tables: tuple[Table, ...] = ()
    if part is not None and part.importances:
        header = ("feature", f"share of the {part.importance_of or 'importance'}")
        rows = tuple((name, words.percent(share)) for name, share in part.importances.items())
        tables = (Table(header, rows, most=MOST_FEATURES),)
    notes = tuple(words.stopped(str(each)) for each in told if each)
    return Section("method", "Method", tables=tables, notes=notes)


def _bias(used: UsedBias) -> Section:
    """How much each position is looked at, with intervals; a pair of columns for each context."""
    bias = used.bias
    told = [f"Examination by position, by {bias.method}.", used.why, used.context, used.sessions]
    unsure = "How far it is off is not known." if bias.estimated and not bias.has_interval else ""
    text = " ".join(words.sentence(str(each)) for each in told if each)
    return bias_section(
        bias, (f"{text} {EVIDENCE[used.kind].told} {unsure}".strip(),), "in `bias.json`"
    )


def _evaluation(part: HeldOut) -> list[Section]:
    """The page's sections on the rankers and on what would flip the answer."""
    compared, of = compared_section(part, {}), part[part.chosen]
    held_out = (
        f"{words.count_of(of.n_sessions, 'session')} of "
        f"{words.count_of(of.n_queries, 'query', 'queries')} were held out; intervals are over "
        "queries."
    )
    told = (*compared.paragraphs, held_out, *([] if part.check is None else [part.check.fact]))
    told += () if part.balance is None else (EVIDENCE["propensities"].told,)
    found = part.sensitivity
    return [
        replace(compared, title="Evaluation", paragraphs=told),
        *([sensitivity_section(found)] if found is not None and found.causes else []),
    ]


def _sentences(told: Iterable[object]) -> str:
    return " ".join(plain(words.sentence(str(each))) for each in told if each)
