"""The wall: logs as they come in the wild, each a function with a sentence on what it is like.

Every function takes a seed and the kind of world (see `make_world`), and returns a `Log` with the
truth. `WALL` is the table of all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal
from zlib import crc32

import numpy as np
import pandas as pd
from tests.wall.world import (
    THETA,
    Array,
    Kind,
    Log,
    Pages,
    World,
    log_of,
    make_world,
    named,
    read,
    show,
    stack,
    traffic,
    zipf,
)

# What a log must lead to. "right": the right decision. "careful": the right decision or none.
# "none": no decision. "refused": an error that says why.
Expected = Literal["right", "careful", "none", "refused"]
Maker = Callable[[int, Kind], Log]


@dataclass(frozen=True)
class Case:
    """One awkward log, and what `untilt.run` and `untilt.estimate` must come to on it."""

    name: str
    sentence: str
    make: Maker
    run: Expected
    estimate: Expected

    def log(self, kind: Kind) -> Log:
        """The log of the tests; each case has a seed of its own."""
        return self.make(crc32(self.name.encode()), kind)


WALL: list[Case] = []


def awkward(
    sentence: str, *, run: Expected = "careful", estimate: Expected = "careful"
) -> Callable[[Maker], Maker]:
    """Puts a log on the wall."""

    def add(make: Maker) -> Maker:
        WALL.append(Case(make.__name__, sentence, make, run, estimate))
        return make

    return add


SESSIONS = 6000


def plain_pages(seed: int, kind: Kind, n_sessions: int = SESSIONS, **more: Any) -> Pages:
    """Pages of ten documents by one ranker, every query as often as another; not yet clicked."""
    world = make_world(seed, kind=kind, **more)
    return show(world, traffic(world, n_sessions))


def with_two_rankers(world: World, n_sessions: int = SESSIONS, **more: Any) -> Pages:
    """Half of the sessions by production, half by another ranker; not yet clicked."""
    half = n_sessions // 2
    return stack(
        named(show(world, traffic(world, half), **more), "v1"),
        named(show(world, traffic(world, half), score=world.another_score(0.4), **more), "v2"),
    )


def chance(pages: Pages, share: Array | float) -> Array:
    """(S, K) true for a share of the places."""
    return np.less(pages.world.rng.random(pages.document.shape), share)


def some(pages: Pages, share: float) -> Array:
    """(S,) true for a share of the sessions."""
    return np.less(pages.world.rng.random(len(pages.query)), share)


# ---- what is on the page


@awkward("Nothing is awkward: one ranker, ten documents, all rows logged.", run="right")
def plain(seed: int, kind: Kind) -> Log:
    return log_of(read(plain_pages(seed, kind)))


@awkward("Two rankers took turns, so the bias can be measured.", run="right", estimate="right")
def two_rankers(seed: int, kind: Kind) -> Log:
    return log_of(read(with_two_rankers(make_world(seed, kind=kind))))


@awkward("Widgets take places at random, so most sessions skip positions.", run="right")
def gaps(seed: int, kind: Kind) -> Log:
    pages = plain_pages(seed, kind)
    drawn = pages.world.rng.random((len(pages.query), 13)).argsort(axis=1)[:, :10]
    return log_of(read(replace(pages, position=np.sort(drawn, axis=1) + 1)))


@awkward("An advertisement stands at position 3 of every page and is not logged.")
def ad_at_position_3(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    places = np.array([1, 2, 4, 5, 6, 7, 8, 9, 10, 11])
    return log_of(read(show(world, traffic(world, SESSIONS), places=places)))


@awkward("One to three advertisements stand anywhere on the page and are not logged.", run="right")
def ads_that_move(seed: int, kind: Kind) -> Log:
    pages = plain_pages(seed, kind)
    ads = pages.world.rng.integers(1, 12, size=(len(pages.query), 3))
    position = np.array([np.setdiff1d(np.arange(1, 14), row)[:10] for row in ads])
    return log_of(read(replace(pages, position=position)))


@awkward("Every list begins at position 3, under a box with an answer.")
def lists_that_begin_low(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    return log_of(read(show(world, traffic(world, SESSIONS), places=np.arange(3, 13))))


@awkward("Pages have from three to ten documents: the window decides.", run="right")
def mixed_lengths(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    length = world.rng.integers(3, 11, size=SESSIONS)
    return log_of(read(show(world, traffic(world, SESSIONS), length=length)))


@awkward("Queries with few results have short lists, others long ones.")
def queries_of_all_sizes(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    query, size = traffic(world, SESSIONS), world.rng.integers(1, 11, size=world.n_queries)
    return log_of(read(show(world, query, length=size[query])))


def two_pages(seed: int, kind: Kind) -> Pages:
    """30% of the sessions go on to a second page of ten."""
    world = make_world(seed, kind=kind, n_documents=20, n_queries=120)
    length = np.where(world.rng.random(SESSIONS) < 0.3, 20, 10)
    return read(show(world, traffic(world, SESSIONS), length=length))


@awkward("The second page continues the session: 30% of the lists have twenty documents.")
def second_page_continued(seed: int, kind: Kind) -> Log:
    return log_of(two_pages(seed, kind))


@awkward("The second page is logged as a session of its own, at positions 11 to 20.")
def second_page_apart(seed: int, kind: Kind) -> Log:
    pages = two_pages(seed, kind)
    frame = pages.frame()
    frame["session_id"] = 2 * frame["session_id"] + (frame["position"] > 10)
    return log_of(pages, frame=frame)


@awkward("The second page is a session of its own whose positions begin at 1 again.")
def positions_begin_again(seed: int, kind: Kind) -> Log:
    pages = two_pages(seed, kind)
    frame = pages.frame()
    frame["session_id"] = 2 * frame["session_id"] + (frame["position"] > 10)
    frame["position"] = (frame["position"] - 1) % 10 + 1
    return log_of(pages, frame=frame, theta=None)


@awkward(
    "Positions begin at 1 on each page of the same session.", run="refused", estimate="refused"
)
def positions_twice(seed: int, kind: Kind) -> Log:
    pages = two_pages(seed, kind)
    frame = pages.frame()
    frame["position"] = (frame["position"] - 1) % 10 + 1
    return log_of(pages, frame=frame)


@awkward("People scroll without end; few come below position 20 of 80.")
def infinite_scroll(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind, n_documents=80, n_queries=60)
    length = np.clip(world.rng.geometric(0.1, size=3000), 3, 80)
    return log_of(read(show(world, traffic(world, 3000), length=length)))


@awkward("Three rows of four cards, each row a carousel, logged as one list of twelve.")
def carousels(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind, n_documents=12)
    theta = np.outer([1.0, 0.5, 0.25], [1.0, 0.7, 0.4, 0.2]).ravel()
    pages = show(world, traffic(world, SESSIONS), length=12)
    return log_of(read(pages, theta), theta=theta)


@awkward("A grid of three columns: all of a row is seen alike, and the middle a little more.")
def grid(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind, n_documents=12)
    theta = np.outer([0.9, 0.6, 0.4, 0.2], [0.9, 1.0, 0.9]).ravel()
    pages = show(world, traffic(world, SESSIONS), length=12)
    return log_of(read(pages, theta), theta=theta)


@awkward("An editor pins one document to position 1 of every page of its query.")
def pinned(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    score = world.score.copy()
    score[:, 0] = 100.0
    pages = show(world, traffic(world, SESSIONS), score=score)
    return replace(log_of(read(pages)), same=score)


@awkward("The same document stands twice on a page, once as a sponsored result.")
def document_twice(seed: int, kind: Kind) -> Log:
    pages = plain_pages(seed, kind)
    document = pages.document.copy()
    document[:, 9] = np.where(some(pages, 0.3), document[:, 0], document[:, 9])
    return log_of(read(replace(pages, document=document)), same=False)


# ---- what reaches the log


@awkward("Five rows of a hundred are lost on the way.", run="right")
def lost_rows(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    return log_of(replace(pages, logged=~chance(pages, 0.05)))


@awkward("Unclicked rows are lost three times as often as clicked ones.")
def lost_without_click(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    share = np.where(pages.click > 0, 0.1, 0.3)
    return log_of(replace(pages, logged=~chance(pages, share)), theta=None)


@awkward("Rows are logged down to the last click; sessions without any are not logged.")
def down_to_last_click(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    later = np.cumsum(pages.click[:, ::-1], axis=1)[:, ::-1]
    return log_of(replace(pages, logged=later > 0))


@awkward("Only clicked rows are logged.", run="refused", estimate="refused")
def only_clicks(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    return log_of(replace(pages, logged=pages.click > 0))


@awkward("Some rows are written twice.")
def duplicated_rows(seed: int, kind: Kind) -> Log:
    log = log_of(read(plain_pages(seed, kind)))
    again = log.frame.sample(frac=0.03, random_state=seed)
    return replace(log, frame=pd.concat([log.frame, again], ignore_index=True))


@awkward("Some rows are written twice, and bad rows are dropped as asked for.")
def duplicated_rows_dropped(seed: int, kind: Kind) -> Log:
    return replace(duplicated_rows(seed, kind), options={"on_bad": "drop"})


@awkward("A fifth of the sessions are sent again and get a new id.", run="right")
def retries(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    log, again = log_of(pages), some(pages, 0.2)
    copies = log.frame[again[log.frame["session_id"]]]
    copies = copies.assign(session_id=copies["session_id"] + len(pages.query))
    return replace(log, frame=pd.concat([log.frame, copies], ignore_index=True))


@awkward("A cache plays one session back three thousand times.")
def cache(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    log = log_of(pages)
    session = int(np.argmax(pages.click.sum(axis=1) == 2))
    one = log.frame[log.frame["session_id"] == session]
    copies = pd.concat([one] * 3000, ignore_index=True)
    copies["session_id"] = len(pages.query) + np.arange(3000).repeat(len(one))
    return replace(log, frame=pd.concat([log.frame, copies], ignore_index=True))


@awkward("Sessions are cut at midnight: the lower half has another id.")
def midnight(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    frame, cut = pages.frame(), some(pages, 0.2)
    lower = cut[frame["session_id"]] & (frame["position"] > 5)
    frame["session_id"] += lower * len(pages.query)
    return log_of(pages, frame=frame)


@awkward("Clocks differ by hours, so the times of the sessions are out of order.", run="right")
def clock_shifts(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    hours = pages.world.rng.permutation(len(pages.query)) / 60
    shifted = hours + np.where(some(pages, 0.3), -7.0, 0.0)
    time = pd.to_datetime("2026-03-29") + pd.to_timedelta(shifted, unit="h")
    return log_of(replace(pages, more={"timestamp": np.asarray(time)}))


@awkward("Positions are counted from 0.", run="refused", estimate="refused")
def positions_from_0(seed: int, kind: Kind) -> Log:
    log = log_of(read(plain_pages(seed, kind)))
    return replace(log, frame=log.frame.assign(position=log.frame["position"] - 1))


@awkward("Query texts are folded to lower case, so that two queries share one id.")
def ids_that_collide(seed: int, kind: Kind) -> Log:
    log = log_of(read(plain_pages(seed, kind)))
    frame = log.frame.assign(query_id="query " + (log.frame["query_id"] // 2).astype(str))
    return replace(log, frame=frame, key=lambda query, doc: divmod(int(doc), 1000))


@awkward("Query texts differ in case alone and are different queries.", run="right")
def ids_that_differ_by_case(seed: int, kind: Kind) -> Log:
    log = log_of(read(plain_pages(seed, kind)))
    query = log.frame["query_id"]
    text = np.where(query % 2, "QUERY ", "query ") + (query // 2).astype(str)
    return replace(log, frame=log.frame.assign(query_id=text), key=_by_document)


def _by_document(query: Any, doc: Any) -> tuple[int, int]:
    return divmod(int(doc), 1000)


@awkward("All queries share the ids of documents, 0 to 9.", run="right")
def shared_documents(seed: int, kind: Kind) -> Log:
    log = log_of(read(plain_pages(seed, kind)))
    return replace(log, frame=log.frame.assign(doc_id=log.frame["doc_id"] % 1000))


# ---- who clicks


@awkward("Two sessions of a hundred are bots that click everything.")
def bots_click_all(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    bot = some(pages, 0.02)
    click = np.where(bot[:, None], 1.0, pages.click)
    return log_of(replace(pages, click=click, counts=~bot), theta=None)


@awkward("Every third session is a crawler that clicks nothing.", run="right")
def bots_click_nothing(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    bot = some(pages, 0.33)
    return log_of(replace(pages, click=np.where(bot[:, None], 0.0, pages.click), counts=~bot))


@awkward("Five sessions of a hundred are bots that click position 4 and nothing else.")
def bots_click_one_place(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    bot, fourth = some(pages, 0.05), np.arange(10) == 3
    click = np.where(bot[:, None], fourth, pages.click)
    return log_of(replace(pages, click=click, counts=~bot), theta=None)


@awkward("Nobody clicks anything.", run="none", estimate="none")
def no_clicks(seed: int, kind: Kind) -> Log:
    return log_of(plain_pages(seed, kind))


@awkward("Every row is a click.", run="refused", estimate="refused")
def clicks_everywhere(seed: int, kind: Kind) -> Log:
    pages = plain_pages(seed, kind)
    return log_of(replace(pages, click=np.ones_like(pages.click)))


@awkward("Position 1 plays by itself and counts as clicked.")
def autoplay(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    click = pages.click.copy()
    click[:, 0] = 1.0
    return log_of(replace(pages, click=click), theta=None)


@awkward("A fifth of the clicks land on a place by accident.")
def click_noise(seed: int, kind: Kind) -> Log:
    pages = plain_pages(seed, kind)
    looked = THETA[pages.position - 1]
    return log_of(pages.with_clicks(looked * (0.8 * pages.relevance + 0.06)))


@awkward("Readers trust the top: there they click what is not relevant.")
def trust(seed: int, kind: Kind) -> Log:
    return log_of(trusting(plain_pages(seed, kind)), theta=None)


@awkward("Readers trust the top, and the log is large enough to be sure of it.")
def trust_large(seed: int, kind: Kind) -> Log:
    pages = plain_pages(seed, kind, 40_000, n_queries=1000)
    return log_of(trusting(pages), theta=None)


@awkward("Production knows more about relevance than the features tell, and the log is large.")
def features_too_poor(seed: int, kind: Kind) -> Log:
    return log_of(read(plain_pages(seed, kind, 40_000, n_queries=1000)))


@awkward("Readers trust the top, and two rankers took turns.")
def trust_two_rankers(seed: int, kind: Kind) -> Log:
    return log_of(trusting(with_two_rankers(make_world(seed, kind=kind))), theta=None)


def trusting(pages: Pages) -> Pages:
    looked, wrongly = THETA[pages.position - 1], 0.5 / pages.position
    return pages.with_clicks(looked * (pages.relevance + wrongly * (1 - pages.relevance)))


@awkward("Readers go down the list and stop at the first click, or when they lose patience.")
def cascade(seed: int, kind: Kind) -> Log:
    return log_of(cascading(plain_pages(seed, kind)), theta=None)


@awkward("Readers stop at the first click, and two rankers took turns.")
def cascade_two_rankers(seed: int, kind: Kind) -> Log:
    return log_of(cascading(with_two_rankers(make_world(seed, kind=kind))), theta=None)


def cascading(pages: Pages) -> Pages:
    rng, shape = pages.world.rng, pages.document.shape
    would = rng.random(shape) < pages.relevance
    patient = np.cumprod(rng.random(shape) < 0.9, axis=1) > 0
    first = np.cumsum(would, axis=1) - would == 0
    return replace(pages, click=(would & patient & first).astype(float))


@awkward("Telephones show fewer documents at a glance: they are read less deeply.")
def devices(seed: int, kind: Kind) -> Log:
    pages = plain_pages(seed, kind)
    phone = some(pages, 0.5)
    looked = np.where(phone[:, None], 1.0 / pages.position**1.5, 1.0 / pages.position**0.4)
    mixed = (1.0 / np.arange(1, 11) ** 1.5 + 1.0 / np.arange(1, 11) ** 0.4) / 2
    clicked = pages.with_clicks(looked * pages.relevance)
    return log_of(replace(clicked, more={"device": np.where(phone, "phone", "desk")}), theta=mixed)


@awkward("Telephones get short lists and are read less deeply.")
def devices_of_their_own_length(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    phone = world.rng.random(SESSIONS) < 0.5
    pages = show(world, traffic(world, SESSIONS), length=np.where(phone, 5, 10))
    looked = np.where(phone[:, None], 1.0 / pages.position**1.5, 1.0 / pages.position**0.4)
    return log_of(pages.with_clicks(looked * pages.relevance), theta=None)


@awkward("The label is how many seconds people stayed, not a click.")
def dwell(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    seconds = pages.world.rng.exponential(30.0, size=pages.click.shape)
    return log_of(replace(pages, click=pages.click * seconds))


@awkward("The label is a purchase: one session of a hundred has one.")
def purchases(seed: int, kind: Kind) -> Log:
    pages = plain_pages(seed, kind)
    return log_of(pages.with_clicks(0.01 * THETA[pages.position - 1] * pages.relevance))


@awkward("People who click more also look deeper: half of the sessions see the top two alone.")
def two_kinds_of_people(seed: int, kind: Kind) -> Log:
    pages = plain_pages(seed, kind)
    hasty = some(pages, 0.5)[:, None]
    looked = np.where(hasty, pages.position <= 2, THETA[pages.position - 1] ** 0.5)
    theta = 0.5 * (np.arange(1, 11) <= 2) + 0.5 * THETA[:10] ** 0.5
    return log_of(pages.with_clicks(looked * pages.relevance), theta=theta)


# ---- who asks


@awkward("One query has 60% of the traffic.")
def giant_query(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    weight = np.where(np.arange(world.n_queries) == 7, 1.5 * world.n_queries, 1.0)
    return log_of(read(show(world, traffic(world, SESSIONS, weight))))


@awkward("Traffic follows Zipf's law.")
def zipf_traffic(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind, n_queries=400)
    return log_of(read(show(world, traffic(world, 2 * SESSIONS, zipf(world)))))


@awkward("Every query was asked once.")
def one_session_per_query(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind, n_queries=2500)
    return log_of(read(show(world, np.arange(2500))))


@awkward("There is one query alone, as in a feed.", run="careful")
def one_query(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind, n_queries=1, n_documents=30)
    score = world.score + 1.0 * world.rng.normal(size=(SESSIONS, 30))
    pages = show(world, np.zeros(SESSIONS, dtype=int), score=score)
    return log_of(read(pages), same=False)


@awkward("Every list has one document.", run="none", estimate="none")
def one_document_lists(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    return log_of(read(show(world, traffic(world, SESSIONS), length=1)))


@awkward("Half of the lists have one document.")
def many_one_document_lists(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    length = np.where(world.rng.random(SESSIONS) < 0.5, 1, 10)
    return log_of(read(show(world, traffic(world, SESSIONS), length=length)))


@awkward("There are sixty sessions in all.", run="none")
def sixty_sessions(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind, n_queries=40)
    return log_of(read(show(world, traffic(world, 60))))


@awkward("Sixteen clicks in all.", run="none")
def sixteen_clicks(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind, 2000, n_queries=100))
    rows = np.flatnonzero(pages.click.ravel())
    kept = pages.world.rng.choice(rows, size=16, replace=False)
    click = np.zeros(pages.click.size)
    click[kept] = 1.0
    return log_of(replace(pages, click=click.reshape(pages.click.shape)))


@awkward("Lists are personal: no two sessions show the same order.", run="right")
def personal_lists(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    query = traffic(world, SESSIONS)
    score = world.score[query] + 0.7 * world.rng.normal(size=(SESSIONS, world.n_documents))
    return log_of(read(show(world, query, score=score)), same=False)


@awkward("Visitors of 30% of the sessions sort by price; the log does not say so.")
def sorted_by_price(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    price = world.another_score(0.0)
    usual = show(world, traffic(world, int(0.7 * SESSIONS)))
    sorted_lists = show(world, traffic(world, int(0.3 * SESSIONS)), score=price)
    return log_of(read(stack(usual, sorted_lists)), same=False)


# ---- what changes over time


@awkward("Relevance drifts: at the end other documents are wanted than at the beginning.")
def drift_of_relevance(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    pages = show(world, traffic(world, SESSIONS))
    late = world.rng.permutation(SESSIONS)[:, None] / SESSIONS
    other = world.relevance[:, world.rng.permutation(world.n_documents)]
    query = pages.query[:, None]
    gamma = (1 - late) * world.relevance[query, pages.document] + late * other[
        query, pages.document
    ]
    return log_of(read(replace(pages, gamma=gamma)))


@awkward("Production learns: its order drifts from week to week, without a name for each.")
def drift_of_ranker(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    query, late = traffic(world, SESSIONS), world.rng.integers(0, 8, size=SESSIONS)[:, None] / 7
    score = (1 - late) * world.score[query] + late * world.another_score(0.7)[query]
    return log_of(read(show(world, query, score=score)), same=False)


@awkward("A better ranker was released in the middle, and relevance changed that day too.")
def release_with_drift(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    better = world.another_score(0.8)
    before = named(show(world, traffic(world, SESSIONS // 2)), "v1")
    after = named(show(world, traffic(world, SESSIONS // 2), score=better), "v2")
    pages = stack(before, after)
    season = np.where(pages.ranker == "v2", 0.6, 1.0)[:, None]
    return log_of(read(replace(pages, gamma=season * pages.relevance)), same=False)


@awkward("A better ranker was released in the middle; the log names both.", run="right")
def release(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    before = named(show(world, traffic(world, SESSIONS // 2)), "v1")
    after = named(show(world, traffic(world, SESSIONS // 2), score=world.another_score(0.6)), "v2")
    return log_of(read(stack(before, after)), same=False)


@awkward("Queries of summer had one ranker, those of winter another.")
def seasons(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    query = traffic(world, SESSIONS)
    winter = query >= world.n_queries // 2
    score = np.where(np.arange(world.n_queries)[:, None] >= world.n_queries // 2,
                     world.another_score(0.7), world.score)  # fmt: skip
    pages = read(show(world, query, score=score))
    return replace(log_of(replace(pages, ranker=np.where(winter, "w", "s"))), same=score)


@awkward("A feature changes with every impression, such as the stock.")
def changing_features(seed: int, kind: Kind) -> Log:
    log = log_of(read(plain_pages(seed, kind)))
    noise = np.random.default_rng(seed).normal(size=len(log.frame))
    return replace(log, frame=log.frame.assign(f6=noise))


# ---- experiments


def shuffled(world: World, n: int) -> Pages:
    return show(world, traffic(world, n), score=world.rng.random((n, world.n_documents)))


@awkward("A fifth of the sessions was shuffled.", run="right", estimate="right")
def shuffles(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    base = named(show(world, traffic(world, 4800)), "production")
    return log_of(read(stack(base, named(shuffled(world, 1200), "shuffle", counts=False))))


@awkward("A fifth of the sessions was shuffled and the log does not say which.")
def shuffles_without_name(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    pages = stack(show(world, traffic(world, 4800)), shuffled(world, 1200))
    return log_of(read(pages), same=False)


@awkward("Sessions called shuffled show two fixed orders per query.")
def fake_shuffles(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    base = named(show(world, traffic(world, 4000)), "production")
    first = named(show(world, traffic(world, 1000)), "shuffle", counts=False)
    other = world.another_score(0.8)
    second = named(show(world, traffic(world, 1000), score=other), "shuffle", counts=False)
    return log_of(read(stack(base, first, second)))


@awkward("Shuffles lift relevant documents, as a bandit does.")
def shuffles_of_a_bandit(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    base = named(show(world, traffic(world, 4000)), "production")
    query = traffic(world, 2000)
    lifted = world.worth[query] + world.rng.gumbel(size=(2000, world.n_documents))
    return log_of(
        read(stack(base, named(show(world, query, score=lifted), "shuffle", counts=False)))
    )


def swapping(seed: int, kind: Kind, share: Callable[[World, Array], Array]) -> Log:
    """Position 1 is swapped with each other, where `share` of the two documents says so."""
    world = make_world(seed, kind=kind)
    pages = show(world, traffic(world, SESSIONS))
    other = 1 + np.arange(SESSIONS) % 9
    rows = np.arange(SESSIONS)
    pair = pages.document[rows[:, None], np.stack([np.zeros(SESSIONS, dtype=int), other], axis=1)]
    swapped = world.rng.random(SESSIONS) < share(world, world.worth[pages.query[:, None], pair])
    document = pages.document.copy()
    document[rows[swapped], 0] = pair[swapped, 1]
    document[rows[swapped], other[swapped]] = pair[swapped, 0]
    names = np.where(swapped, np.char.add("swap:1-", (1 + other).astype(str)), "base")
    return log_of(read(replace(pages, document=document, ranker=names, counts=~swapped)))


@awkward("Half of the sessions have position 1 swapped with another.", run="right")
def swaps(seed: int, kind: Kind) -> Log:
    return swapping(seed, kind, lambda world, pair: np.full(len(pair), 0.5))


@awkward("Swaps happen rather where the lower document is better.")
def swaps_out_of_balance(seed: int, kind: Kind) -> Log:
    return swapping(seed, kind, lambda world, pair: np.where(pair[:, 1] > pair[:, 0], 0.6, 0.2))


# ---- features and scores


@awkward("A feature is known only after the click.")
def label_leak(seed: int, kind: Kind) -> Log:
    log = log_of(read(plain_pages(seed, kind)))
    spent = log.frame["click"] * np.random.default_rng(seed).uniform(5, 50, len(log.frame))
    return replace(log, frame=log.frame.assign(f6=spent))


@awkward("The position itself is among the features.")
def position_as_feature(seed: int, kind: Kind) -> Log:
    log = log_of(read(plain_pages(seed, kind)))
    return replace(log, frame=log.frame.assign(f6=log.frame["position"].astype(float)))


@awkward("Features are missing here and there.", run="refused", estimate="refused")
def missing_features(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    features = pages.world.features.copy()
    features[pages.world.rng.random(features.shape) < 0.1] = np.nan
    return log_of(replace(pages, world=replace(pages.world, features=features)))


@awkward("Features are missing here and there and filled with 0.", run="right")
def missing_features_filled(seed: int, kind: Kind) -> Log:
    return replace(missing_features(seed, kind), options={"missing": 0.0})


@awkward("No feature varies.", run="none")
def constant_features(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    return log_of(replace(pages, world=replace(pages.world, features=np.ones((240, 10, 6)))))


@awkward("There are more features than rows.")
def more_features_than_rows(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind, n_queries=30, n_features=400)
    return log_of(read(show(world, traffic(world, 36))))


@awkward("There are no features at all: documents are reordered by their own clicks.")
def no_features(seed: int, kind: Kind) -> Log:
    log = log_of(read(plain_pages(seed, kind)))
    return replace(log, frame=log.frame.drop(columns=log.features))


@awkward("No features and two rankers.")
def no_features_two_rankers(seed: int, kind: Kind) -> Log:
    log = two_rankers(seed, kind)
    return replace(log, frame=log.frame.drop(columns=log.features))


@awkward("Features tell nothing about relevance, only what production does.")
def features_of_production(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    noise = world.rng.normal(size=world.features.shape)
    world = replace(world, features=world.score[..., None] + 0.3 * noise)
    return log_of(read(show(world, traffic(world, SESSIONS))))


@awkward("New scores are round numbers, so that many documents tie.")
def ties(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    log = log_of(pages)
    return replace(
        log, orders={"round": np.round(pages.world.worth), "flat": 0 * pages.world.worth}
    )


@awkward("A candidate changes the order of the lowest four documents alone.")
def bottom_alone(seed: int, kind: Kind) -> Log:
    pages = read(plain_pages(seed, kind))
    world = pages.world
    rank = np.argsort(np.argsort(-world.score, axis=1), axis=1)
    better = np.where(rank < 6, 100.0 - rank, world.worth)
    worse = np.where(rank < 6, 100.0 - rank, -world.worth)
    return replace(log_of(pages), orders={"better bottom": better, "worse bottom": worse})


@awkward("Production is perfect already: nothing can be better.")
def perfect_production(seed: int, kind: Kind) -> Log:
    world = make_world(seed, kind=kind)
    world = replace(world, score=world.worth)
    return log_of(read(show(world, traffic(world, SESSIONS))))


@awkward("Production shows the worst first.", run="right")
def inverted_production(seed: int, kind: Kind) -> Log:
    return log_of(read(plain_pages(seed, kind, quality=-0.6)))
