"""A judged set of searches, made here in plain NumPy for quality_world.py.

A search has a kind (one of four), a length and a demand for news; a document has text matches in
three fields, a site, an age, links, flags. Worth is a sum of rules over what the document is, with
weights that depend on the kind of search:

    worth = match(kind) + steep match if all words stand in the title + links where the search is
            for a site + freshness where news are wanted + site + language - spam - thin pages

Features see it through noise, on scales of their own: heavy tails, counts, shares, codes without an
order, zeros where a field is missing, copies of one another, columns of the query and columns that
mean nothing.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FEWEST, MOST = 20, 40  # documents of a query
N_KINDS, N_SITES, N_FIELDS = 4, 12, 3
NOISE = 0.6  # of worth, whose own standard deviation is 1
LEVEL = 0.5  # standard deviation of the level of a query: some have many good documents
LINKS = 10  # the column that counts them
SHARES = (0.50, 0.72, 0.86, 0.95)  # of documents below labels 1..4
# The same in every set: what the four kinds of search ask of title, body and anchor text.
ASKED = np.array([[1.2, 0.5, 0.2], [0.4, 1.1, 0.3], [0.3, 0.3, 1.3], [0.8, 0.8, -0.2]])
SITE_WORTH = np.random.default_rng(1964).normal(size=N_SITES)


def synthetic_set(
    n: int, rng: np.random.Generator, length: int = 0
) -> tuple[Array, Array, Array, Array]:
    """(features, labels 0..4, indptr, query ids) of n queries; 20 to 40 documents, or `length`."""
    lengths = rng.integers(length or FEWEST, (length or MOST) + 1, size=n)
    owner = np.repeat(np.arange(n), lengths)
    rows = len(owner)
    kind = rng.integers(N_KINDS, size=n)
    words = 1 + rng.poisson(2.0, size=n)
    news = rng.beta(0.6, 1.2, size=n)

    shared = rng.normal(size=rows)  # a good page is good in several fields
    match = 0.55 * shared[:, None] + 0.84 * rng.normal(size=(rows, N_FIELDS))
    covered = rng.binomial(words[owner], 1 / (1 + np.exp(-0.3 - match[:, 0]))) / words[owner]
    links = rng.normal(size=rows) + 0.3 * shared
    age = rng.exponential(1.0, size=rows) * np.exp(0.3 * rng.normal(size=n))[owner]
    site = rng.integers(N_SITES, size=rows)
    spam = rng.random(rows) < 0.08
    size = rng.normal(size=rows)
    foreign = rng.random(rows) < 0.12
    no_anchor = rng.random(rows) < 0.3

    match[no_anchor, 2] = 0
    worth = (ASKED[kind[owner]] * match).sum(axis=1)
    worth += 0.9 * (covered == 1) * np.maximum(match[:, 0], 0)
    worth += 0.8 * links * (kind[owner] == 2) + 0.25 * np.tanh(links)
    worth -= 1.6 * news[owner] * np.minimum(age, 2.0)
    worth += 0.5 * SITE_WORTH[site] - 0.8 * foreign - 2.0 * spam * (links < 1) - 0.7 * (size < -1)
    worth = (worth - worth.mean()) / worth.std()
    worth += NOISE * rng.normal(size=rows) + LEVEL * rng.normal(size=n)[owner]
    labels = np.searchsorted(np.quantile(worth, SHARES), worth).astype(float)

    def seen(signal: Array, noise: float) -> Array:
        return signal + noise * rng.normal(size=rows)

    anchor = np.where(no_anchor, 0, np.exp(0.8 * seen(match[:, 2], 0.4)))
    columns = [
        # matches, as scores that grow with the number of words
        np.log1p(np.exp(seen(match[:, 0], 0.3))) * np.sqrt(words)[owner],
        np.log1p(np.exp(seen(match[:, 1], 0.3))) * np.sqrt(words)[owner],
        anchor,
        1 / (1 + np.exp(-2 * seen(match[:, 0], 0.7))),
        1 / (1 + np.exp(-2 * seen(match[:, 1], 0.7))),
        np.where(no_anchor, 0, rng.poisson(np.exp(0.6 * match[:, 2]))),
        covered,
        np.rint(covered * words[owner]),
        seen(match.mean(axis=1), 0.8),
        # the document
        np.exp(1.5 * seen(links, 0.3)),
        rng.poisson(np.exp(1 + 0.7 * links)),
        rng.pareto(1.5, size=rows) + np.exp(seen(links, 1.0)),
        np.exp(2 * seen(np.log(age + 0.05), 0.1)),
        np.floor(3 * age),
        site,
        np.where(rng.random(rows) < 0.9, site % 5, rng.integers(5, size=rows)),
        spam ^ (rng.random(rows) < 0.03),
        foreign,
        np.exp(5 + size),
        np.rint(10 * seen(size, 0.5)),
        seen(SITE_WORTH[site], 1.5),
        # the query: equal for all its documents
        kind[owner],
        words[owner],
        news[owner],
        lengths[owner],
        # nothing
        rng.normal(size=rows),
        rng.standard_cauchy(size=rows),
        rng.integers(7, size=rows),
        rng.random(rows) < 0.5,
        np.exp(rng.normal(size=n))[owner],
    ]  # fmt: skip
    features = np.stack(columns, axis=1).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return features, labels, indptr, np.arange(n)


def with_missing(features: Array, rng: np.random.Generator) -> Array:
    """Every second column is missing in .7 of the documents with few links, in .2 of the others."""
    links = features[:, LINKS]
    chance = np.where(links <= np.median(links), 0.7, 0.2)[:, None]
    missing = rng.random(features.shape) < chance
    missing[:, 1::2] = False
    return np.where(missing, np.float32(np.nan), features)
