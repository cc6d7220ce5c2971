"""The top of the page: the answer in two sentences, and its interval as a strip."""

from dataclasses import dataclass

from untilt.report.decision import Answer, Decision, Value
from untilt.report.page_parts import Fact
from untilt.report.page_words import (
    first_sentence,
    interval,
    metric_name,
    metric_words,
    number,
    places,
    second_sentence,
)

VERDICTS = {
    "better": ("\u25b2", "Better"),
    "worse": ("\u25bc", "Worse"),
    "undecided": ("\u25c6", "Not decided"),
}


@dataclass(frozen=True)
class Strip:
    """An interval and 0 on a line, in percent of its width, with the words for its ends."""

    zero: float
    low: float
    value: float
    high: float
    low_text: str
    value_text: str
    high_text: str


@dataclass(frozen=True)
class AnswerView:
    """What the template shows of the answer."""

    verdict: str
    mark: str
    word: str
    first: str
    second: str
    facts: tuple[Fact, ...]
    strip: Strip | None
    small_print: str


def answer_view(data: Decision) -> AnswerView | None:
    """None where there is no answer; `Decision.no_answer` says why."""
    answer = data.answer
    if answer is None:
        return None
    mark, word = VERDICTS[answer.verdict]
    more = data.how_sure.more_sessions if data.how_sure else None
    return AnswerView(
        verdict=answer.verdict,
        mark=mark,
        word=word,
        first=first_sentence(answer),
        second=second_sentence(answer, more),
        facts=_facts(answer),
        strip=_strip(answer.difference),
        small_print=_small_print(answer),
    )


def _facts(answer: Answer) -> tuple[Fact, ...]:
    level = places((answer.value, answer.shown_value))
    change = places((answer.difference,))
    return (
        Fact(answer.shown, number(answer.shown_value.value, level),
             interval(answer.shown_value, level)),
        Fact(answer.new, number(answer.value.value, level),
             interval(answer.value, level)),
        Fact("difference", number(answer.difference.value, change, signed=True),
             interval(answer.difference, change, signed=True)),
    )  # fmt: skip


def _strip(difference: Value) -> Strip | None:
    """Room for 0 and the interval, with a sixth of the width on either side."""
    value, low, high = difference.value, difference.low, difference.high
    if value is None or low is None or high is None or not high > low:
        return None
    start, end = min(0.0, low), max(0.0, high)
    decimals = places((difference,))

    def at(x: float) -> float:
        return round(12 + 76 * (x - start) / (end - start), 2)

    texts = (number(x, decimals, signed=True) for x in (low, value, high))
    return Strip(at(0.0), at(low), at(value), at(high), *texts)


def _small_print(answer: Answer) -> str:
    metric, counts = metric_name(answer.metric), metric_words(answer.metric)
    better = "higher" if answer.higher_is_better else "lower"
    parts = [f"{metric} per session, {better} is better"]
    parts += [counts] if counts else []
    parts += [answer.scale] if answer.scale else []
    return "; ".join(parts) + "."
