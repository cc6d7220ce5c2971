"""Step 7: everything that was found, as the data of one report."""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from untilt._core import codec
from untilt._version import __version__
from untilt.bias.curve import PositionBias
from untilt.report import decision as d
from untilt.report.decision import HowComputed, Step
from untilt.workflow.candidates import SHOWN
from untilt.workflow.options import RunOptions
from untilt.workflow.steps import Done

Facts = Mapping[str, dict[str, Any]]


def decision_of(facts: Facts, options: RunOptions, how: d.HowComputed) -> d.Decision:
    """The report's data from the results of the steps, by name of the step."""
    judged = facts.get("judge")
    answer = None if judged is None else _answer(judged, facts["bias"], options)
    return d.Decision(
        title=options.title or "click log",
        answer=answer,
        no_answer="" if answer is not None else _no_answer(facts),
        how_sure=None if judged is None or answer is None else _how_sure(judged, answer),
        log=_log(facts, options),
        click_rates=(_click_rates(facts["audit"]),),
        examination=_examination(facts),
        identifiability=_identifiability(facts["audit"]),
        rankers=None if judged is None else _rankers(judged, facts.get("rankers"), options),
        clip_curve=None if judged is None else _clip_curve(judged, options),
        moved=() if judged is None else _moved(judged),
        pair_bias=() if judged is None else _pair_bias(judged),
        importances=() if judged is None else _importances(judged),
        importance_of="" if judged is None else judged.get("importance_of", ""),
        changed=() if judged is None else _changed(judged),
        warnings=tuple(warnings_of(facts)),
        how_computed=how,
    )


def warnings_of(facts: Facts) -> list[str]:
    """Every warning of every step, the gravest first, none twice."""
    found: list[str] = []
    for name in ("bias", "judge", "split", "rankers"):
        found += facts.get(name, {}).get("warnings", [])
    found += facts.get("plan", {}).get("cut", [])
    judged = facts.get("judge")
    if judged is not None:
        estimates = judged["estimates"]
        found += [_sentence(each) for each in estimates["warnings"]]
        found += [
            f"{judged['chosen']}: {each}"
            for each in estimates["systems"][judged["chosen"]]["warnings"]
        ]
    found += facts["audit"]["warnings"]
    return list(dict.fromkeys(found))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _value(entry: Mapping[str, Any], name: str = "value") -> d.Value:
    return d.Value(entry[name], entry["low"], entry["high"])


def _answer(judged: dict[str, Any], bias: dict[str, Any], options: RunOptions) -> d.Answer:
    chosen, systems = judged["chosen"], judged["estimates"]["systems"]
    difference = _value(judged["differences"][chosen], "difference")
    verdict = d.verdict_of(difference, higher_is_better=judged["higher_is_better"])
    return d.Answer(
        new=chosen,
        shown=SHOWN,
        metric=judged["estimates"]["metric"],
        value=_value(systems[chosen]),
        shown_value=_value(systems[SHOWN]),
        difference=difference,
        verdict=verdict,
        higher_is_better=judged["higher_is_better"],
        level=options.level,
        scale=judged["estimates"]["scale"],
        recommendation=_recommendation(verdict, bias["kind"], judged["check"]["fits"]),
    )


def _recommendation(verdict: str, kind: str, fits: bool) -> str:
    if kind == "assumed":
        return "First measure the position bias: this figure rests on a curve that is assumed."
    if not fits:
        return "First find out why the clicks do not fit the examination curve."
    if verdict == "better":
        believed = "" if kind == "measured" else ", if the examination curve is right"
        return f"Try it on a share of the traffic{believed}."
    if verdict == "worse":
        return "Keep the logged order."
    return "Collect more sessions before deciding."


def _how_sure(judged: dict[str, Any], answer: d.Answer) -> d.HowSure:
    entry = judged["estimates"]["systems"][answer.new]
    more = judged["differences"][answer.new]["more_sessions"]
    return d.HowSure(
        sessions=entry["n_sessions"],
        queries=entry["n_queries"],
        effective_sessions=entry["effective_n"],
        largest_weight=entry["largest_weight"],
        clipped_share=entry["clipped_share"],
        unshown_share=entry["unshown_share"],
        more_sessions=more if answer.verdict == "undecided" else None,
        curve_fits=judged["check"]["fits"] if judged["check"]["possible"] else None,
        notes=tuple(_notes(judged, answer)),
    )


def _notes(judged: dict[str, Any], answer: d.Answer) -> list[str]:
    notes = [_sentence(judged["check"]["text"])]
    raw = judged["to_raw"]
    if raw is not None:
        notes.append(
            f"Against the same learner on raw clicks: {raw['difference']:+.4f} {answer.metric}, "
            f"interval [{raw['low']:+.4f}, {raw['high']:+.4f}]."
        )
    if answer.verdict == "undecided" and judged["differences"][answer.new]["more_sessions"] is None:
        notes.append("More sessions alone will not decide it: the doubt about the bias is larger.")
    return notes


def _no_answer(facts: Facts) -> str:
    rankers = facts.get("rankers")
    if rankers is not None and rankers["warnings"]:
        return f"No ranker could be trained. {rankers['warnings'][0]}"
    return "Nothing could be compared with the logged order."


def _log(facts: Facts, options: RunOptions) -> d.LogShape:
    audit, split, read = facts["audit"], facts["split"], facts["read"]
    return d.LogShape(
        name=options.title or "click log",
        sessions=audit["sessions"],
        impressions=audit["impressions"],
        clicks=audit["clicks"],
        queries=audit["queries"],
        documents=audit["documents"],
        deepest_position=audit["deepest_position"],
        features=audit["features"],
        distinct_lists=audit["distinct_lists"],
        share_without_click=audit["share_without_click"],
        label=audit["label"],
        rankers=audit["sessions_by_ranker"],
        splits=split["queries"] if split["by"] == "query" else {},
        dropped_rows=read["dropped"],
        notes=(*audit["notes"], *split["notes"], *facts.get("clickmodels", {}).get("notes", [])),
    )


def _click_rates(audit: dict[str, Any]) -> d.PositionCurve:
    rates = audit["click_rates"]
    return d.PositionCurve(
        name="click rate",
        position=tuple(rates["position"]),
        value=tuple(rates["rate"]),
        low=tuple(rates["low"]),
        high=tuple(rates["high"]),
        note=f"All sessions; {rates['level']:.0%} intervals, clustered by query.",
    )


def _examination(facts: Facts) -> d.Examination:
    found, evidence = facts["bias"], facts["audit"]["identifiability"]["evidence"]
    bias = codec.from_plain(PositionBias, found["bias"], where="bias")
    curves = [_bias_curve(bias, _sentence(bias.status))]
    if evidence is not None and evidence["method"] != bias.method:
        curves.append(
            d.PositionCurve(
                name=f"{evidence['method']}, to compare",
                position=_positions(evidence["examination"]),
                value=tuple(evidence["examination"]),
                low=tuple(evidence["low"]),
                high=tuple(evidence["high"]),
                note="By documents that stood at several positions, without a model of relevance.",
            )
        )
    return d.Examination(
        curves=tuple(curves),
        relative=bias.relative,
        level=bias.level,
        assumed=found["kind"] == "assumed" or (found["kind"] == "given" and bias.is_known),
        why=_sentence(found["why"]),
    )


def _bias_curve(bias: Any, note: str) -> d.PositionCurve:
    known = bias.low is not None
    return d.PositionCurve(
        name=bias.method,
        position=_positions(bias.examination),
        value=tuple(bias.examination.tolist()),
        low=tuple(bias.low.tolist()) if known else (),
        high=tuple(bias.high.tolist()) if known else (),
        note=note,
    )


def _positions(values: Sequence[float]) -> tuple[int, ...]:
    return tuple(range(1, len(values) + 1))


def _identifiability(audit: dict[str, Any]) -> d.Identifiability:
    found = audit["identifiability"]
    never = set(audit["positions_never_shown"])
    names = ("upper", "lower", "documents", "weight")
    return d.Identifiability(
        positions=tuple(k for k in audit["click_rates"]["position"] if k not in never),
        edges=tuple(d.GraphEdge(**{n: edge[n] for n in names}) for edge in found["edges"]),
        components=tuple(tuple(part) for part in found["components"]),
        swaps=tuple(
            d.Swap(swap["upper"], swap["lower"], swap["most_lost"])
            for swap in found["joining_swaps"]
        ),
        identified=found["identified"],
        verdict=found["verdict"],
    )


def _rankers(
    judged: dict[str, Any], rankers: dict[str, Any] | None, options: RunOptions
) -> d.Rankers:
    estimates, differences = judged["estimates"], judged["differences"]
    notes = {} if rankers is None else {e["name"]: e["note"] for e in rankers["candidates"]}
    entries = [
        d.RankerResult(
            name=name,
            value=_value(entry),
            difference=_value(differences[name], "difference") if name in differences else None,
            decided=differences[name]["decided"] if name in differences else None,
            chosen=name == judged["chosen"],
            note=notes.get(name, ""),
        )
        for name, entry in estimates["systems"].items()
    ]
    return d.Rankers(
        metric=estimates["metric"],
        baseline=SHOWN,
        entries=tuple(entries),
        method=estimates["evaluator"],
        higher_is_better=judged["higher_is_better"],
        level=options.level,
    )


def _clip_curve(judged: dict[str, Any], options: RunOptions) -> d.ClipCurve:
    curve = judged["clip_curve"]
    return d.ClipCurve(
        system=judged["chosen"],
        metric=judged["estimates"]["metric"],
        tau=tuple(curve["clip"]),
        value=tuple(curve["value"]),
        low=tuple(curve["low"]),
        high=tuple(curve["high"]),
        clipped_share=tuple(curve["clipped_share"]),
        chosen=curve["chosen"],
        level=options.level,
    )


def _moved(judged: dict[str, Any]) -> tuple[d.PositionCurve, ...]:
    return tuple(
        d.PositionCurve(
            name=name,
            position=tuple(curve["position"]),
            value=tuple(curve["value"]),
            low=tuple(curve["low"]),
            high=tuple(curve["high"]),
        )
        for name, curve in judged["moved"].items()
    )


def _pair_bias(judged: dict[str, Any]) -> tuple[d.PositionCurve, ...]:
    found = judged.get("pair_bias")
    if found is None:
        return ()
    note = f"By pairwise debiasing, after {found['rounds']} trees; 1 at position 1."
    return tuple(
        d.PositionCurve(name, _positions(found[key]), tuple(found[key]), note=note)
        for name, key in (("t+ (clicked)", "plus"), ("t- (not clicked)", "minus"))
    )


def _importances(judged: dict[str, Any]) -> tuple[d.FeatureImportance, ...]:
    return tuple(d.FeatureImportance(**each) for each in judged.get("importances", []))


def _changed(judged: dict[str, Any]) -> tuple[d.ChangedQuery, ...]:
    return tuple(
        d.ChangedQuery(
            **{
                **each,
                "documents": tuple(d.MovedDocument(**document) for document in each["documents"]),
            }
        )
        for each in judged["changed"]
    )


# How a result came about: enough to do it again.

PACKAGES = ("numpy", "scipy", "numba", "lightgbm", "duckdb")


def how_computed(
    options: RunOptions, done: Iterable[Done], sizes: dict[str, int], *, command: str
) -> HowComputed:
    """Versions, options, machine and the seconds of each step."""
    return HowComputed(
        command=command,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=options.seed,
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        versions={
            "untilt": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
        },
        options={
            field.name: _text(getattr(options, field.name))
            for field in fields(options)
            if getattr(options, field.name) is not None
        },
        sizes=sizes,
        steps=tuple(
            Step(step.name, step.seconds, "by an earlier run" if step.resumed else "")
            for step in done
        ),
    )


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    text = str(value)
    return text if len(text) <= 200 and "\n" not in text else f"a {type(value).__name__}"
