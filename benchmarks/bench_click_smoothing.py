"""Click models with learned smoothing against textbook fits, on later pages of a real log.

    python benchmarks/bench_click_smoothing.py [--train 0.62]

Textbook fits, written here in plain NumPy as open-source packages have them: every parameter
starts from (1 + x) / (2 + n), or (1 + x) / (5 + n) as one of them has it for EM, which takes 50
steps; a document that was not seen has the value without data. Both sides are measured by the
same figures: perplexity and conditional perplexity, means over positions.
"""

import argparse
import os
import runpy
from pathlib import Path

import numpy as np
from _harness import save, table

ROOT = Path(__file__).resolve().parent.parent
STEPS = 50


class Rows:
    """A log as flat arrays; documents by their number in the training log, the last for others."""

    def __init__(self, log, number):
        self.indptr, self.position, self.count = log.indptr, log.position, log.row_count * 1.0
        self.click = log.label > 0
        self.list = np.repeat(np.arange(log.n_lists), np.diff(log.indptr))
        pairs = zip(log.query_id[log.doc_query].tolist(), log.doc_id.tolist(), strict=True)
        of_document = np.array([number.get(pair, len(number)) for pair in pairs])
        self.document = of_document[log.document]
        self.last_above = np.zeros(len(self.list), dtype=int)
        for rows in self.lists():
            last = 0
            for row in rows:
                self.last_above[row] = last
                last = self.position[row] if self.click[row] else last
        k = self.position.astype(int)
        self.condition = k * (k - 1) // 2 + self.last_above

    def lists(self):
        return (range(*self.indptr[i : i + 2]) for i in range(len(self.indptr) - 1))


def numbers(log):
    """(query id, document id) -> number, of documents that were shown."""
    shown = np.unique(log.document)
    pairs = zip(
        log.query_id[log.doc_query[shown]].tolist(), log.doc_id[shown].tolist(), strict=True
    )
    return {pair: i for i, pair in enumerate(pairs)}


def by_em(train, key, n_keys, n_documents, pseudo):
    """alpha by document and theta by key, P(click) = alpha theta."""
    alpha, theta = np.full(n_documents, 1 / pseudo), np.full(n_keys, 1 / pseudo)
    for _ in range(STEPS):
        a, t = alpha[train.document], theta[key]
        attractive = np.where(train.click, 1, (1 - t) * a / (1 - a * t)) * train.count
        examined = np.where(train.click, 1, (1 - a) * t / (1 - a * t)) * train.count
        alpha = rates(train.document, attractive, train.count, n_documents, pseudo)
        theta = rates(key, examined, train.count, n_keys, pseudo)
    return alpha, theta


def rates(key, x, n, size, pseudo=2):
    return (1 + np.bincount(key, x, size)) / (pseudo + np.bincount(key, n, size))


def chain(test, alpha, on_click):
    """Marginal and conditional probabilities of readers who go on after no click."""
    marginal, conditional = np.empty((2, len(alpha)))
    for rows in test.lists():
        reached = looked = 1.0
        for row in rows:
            marginal[row], conditional[row] = reached * alpha[row], looked * alpha[row]
            reached *= alpha[row] * on_click[row] + 1 - alpha[row]
            missed = looked * (1 - alpha[row]) / (1 - conditional[row])
            looked = on_click[row] if test.click[row] else missed
    return marginal, conditional


def browsing(test, alpha, theta):
    marginal = np.empty(len(alpha))
    for rows in test.lists():
        reach = np.zeros(test.position.max() + 1)
        reach[0] = 1
        for row in rows:
            k = int(test.position[row])
            here = reach[:k] * theta[k * (k - 1) // 2 + np.arange(k)] * alpha[row]
            marginal[row] = reach[k] = here.sum()
            reach[:k] -= here
    return marginal, alpha * theta[test.condition]


def textbook(train, test, n_documents):
    """name -> (marginal, conditional) probabilities of the test rows."""
    depth = int(train.position.max())
    position, n, c = train.position - 1, train.count, train.click
    row = np.arange(len(train.list))
    last = train.indptr[:-1] - 1
    np.maximum.at(last, train.list[c], row[c])
    end = np.where(last < train.indptr[:-1], train.indptr[1:] - 1, last)
    looked, final = row <= end[train.list], c & (row == end[train.list])
    first = train.last_above == 0

    def of_document(x, tried):
        return rates(train.document, x * n, tried * n, n_documents)[test.document]

    attraction = of_document(c, looked)
    went_on = rates(position, (c & ~final) * n, c * n, depth)[test.position - 1]
    rate = of_document(c, np.ones(len(n)))
    by_rank = rates(position, c * n, n, depth)[test.position - 1]
    found = {
        "rctr": (by_rank, by_rank),
        "dctr": (rate, rate),
        "cm": chain(test, of_document(c & first, first), np.zeros(len(rate))),
        "dcm": chain(test, attraction, went_on),
        "sdbn": chain(test, attraction, 1 - of_document(final, c)),
    }
    for pseudo in (2, 5):
        alpha, theta = by_em(train, position, depth, n_documents, pseudo)
        p = alpha[test.document] * theta[test.position - 1]
        found[f"pbm, 1/{pseudo}"] = (p, p)
        n_keys = depth * (depth + 1) // 2
        alpha, theta = by_em(train, train.condition, n_keys, n_documents, pseudo)
        found[f"ubm, 1/{pseudo}"] = browsing(test, alpha[test.document], theta)
    return found


def perplexity(p, test):
    bits = -np.log2(np.clip(np.where(test.click, p, 1 - p), 1e-6, 1)) * test.count
    k = test.position - 1
    return float(np.mean(2 ** (np.bincount(k, bits) / np.bincount(k, test.count))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=float, default=0.62)
    share = parser.parse_args().train
    from untilt import catalog

    data = Path(os.environ.get("UNTILT_DATA", ROOT.parent / "shared" / "data"))
    read = runpy.run_path(str(ROOT / "examples" / "yandex_pages.py"))["read_pages"]
    log = read(data / "yandex-sample" / "train.txt.gz", in_order=True)[0]
    learned, asked = (part.collapse() for part in log.split(share, by="time"))
    number = numbers(learned)
    train, test = Rows(learned, number), Rows(asked, number)
    found = {
        name: [perplexity(p, test) for p in both]
        for name, both in textbook(train, test, len(number) + 1).items()
    }
    ours = {}
    for record in catalog.methods("click model", choose="run"):
        model = record.make().fit(learned)
        both = model.click_probability(asked), model.conditional_probability(asked)
        ours[record.name] = [perplexity(p, test) for p in both]
    rows = [
        (name, *(f"{x:.5f}" for x in figures), *(f"{x:.5f}" for x in ours[name.split(",")[0]]))
        for name, figures in found.items()
    ]
    table(("model", "textbook", "conditional", "untilt", "conditional"), rows)
    sizes = {"train_sessions": learned.n_sessions, "test_sessions": asked.n_sessions}
    print(save("click_smoothing", {**sizes, "textbook": found, "untilt": ours}, seed=0))


if __name__ == "__main__":
    main()
