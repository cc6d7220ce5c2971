"""Do exported models score as LightGBM does: rows at splits, one step beside, NaN, zeros.

    python benchmarks/bench_export.py [--quick]

A ranker of 300 trees, trained where a tenth of the values is missing and some features are mostly
0, is written for every engine and read back by the evaluator of that engine's own rules (LightGBM,
onnxruntime and C by the real thing). 1,000 lists of 10 documents of each kind:

- ordinary: documents that the ranker has not seen;
- at threshold: a third of the values replaced by split values of their feature;
- one step: by the single floats just above and below split values;
- NaN: a third of the values missing;
- zeros: by 0, -0, 1e-35, -1e-35 and denormal numbers.

"As they are" is the same with what scripts usually write: thresholds rounded to single floats, the
engine's comparison, and no way for missing values.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import lightgbm
import numpy as np
from _harness import save, table

import untilt as ut
from untilt import catalog
from untilt.exports import forms, solr
from untilt.exports.format import Target, compared, format_of
from untilt.exports.forms import Forest, form_of

LISTS, DOCUMENTS, SEED = 1_000, 10, 0
STEP = np.float32(np.inf)


def data(n_queries, seed):
    """Judged lists with gaps in a tenth of the values and five features that are mostly 0."""
    judged = ut.make_judged(n_queries=n_queries, n_features=20, seed=seed)
    rng = np.random.default_rng(seed)
    features = judged.features.copy()
    features[:, :5] = np.maximum(features[:, :5], 0)
    features[rng.random(features.shape) < 0.1] = np.nan
    return ut.JudgedLists(features, judged.labels, judged.indptr, judged.query_id, missing="keep")


def replaced(rows, pools, rng):
    """A third of the values replaced by those of their feature's pool."""
    made = rows.copy()
    for feature, pool in enumerate(pools):
        if len(pool):
            chosen = rng.random(len(made)) < 1 / 3
            made[chosen, feature] = rng.choice(pool, int(chosen.sum()))
    return made


def known(rows):
    """Other values of the feature in place of missing ones."""
    rng = np.random.default_rng(SEED)
    pools = [column[~np.isnan(column)] for column in rows.T]
    drawn = np.column_stack([rng.choice(pool, len(rows)) for pool in pools])
    return np.ascontiguousarray(np.where(np.isnan(rows), drawn, rows), np.float32)


def kinds(forest, ordinary):
    rng = np.random.default_rng(SEED)
    feature = np.concatenate([tree.feature for tree in forest.trees])
    cut = np.concatenate([tree.cut for tree in forest.trees])
    at = [np.unique(cut[feature == number]) for number in range(ordinary.shape[1])]
    at = [c[np.abs(c) < np.finfo(np.float32).max] for c in at]  # where NaN alone goes right
    beside = [np.concatenate([np.nextafter(c, STEP), np.nextafter(c, -STEP)]) for c in at]
    nothing = [np.array([np.nan], np.float32)] * len(at)
    zeros = [np.array([0.0, -0.0, 1e-35, -1e-35, 1e-40, -1e-40], np.float32)] * len(at)
    return {
        "ordinary": ordinary,
        "at threshold": replaced(ordinary, at, rng),
        "one step": replaced(ordinary, beside, rng),
        "NaN": replaced(ordinary, nothing, rng),
        "zeros": replaced(ordinary, zeros, rng),
    }


@contextmanager
def as_they_are() -> Iterator[None]:
    """Thresholds rounded to single floats, NaN never to the left."""

    def single(values):
        return np.asarray(values).astype(np.float32)

    real = forms._tree

    def tree(text, weight):
        made = real(text, weight)
        return forms.Tree(made.feature, made.cut, np.zeros(made.n_splits, bool), made.left,
                          made.right, made.leaf)  # fmt: skip

    with (
        mock.patch.object(forms, "cuts", single),
        mock.patch.object(forms, "_tree", tree),
        mock.patch.object(forms, "next32", single),
        mock.patch.object(solr, "thresholds", single),
        mock.patch.object(solr, "_scaling", lambda forest: ([0] * len(forest.names), 0)),
    ):
        yield


def written(name, form, folder):
    format = format_of(catalog.find("export", name))
    path = Path(folder) / f"model{format.endings[Forest]}"
    files = format.files(form, Target(path, "model"))
    path.write_bytes(files.model if isinstance(files.model, bytes) else files.model.encode())
    for ending, text in files.beside.items():
        path.with_name(f"model{ending}").write_text(text)
    return format, path


def compare(name, form, rows, expected, folder):
    format, path = written(name, form, folder)
    indptr = np.arange(0, len(expected["ordinary"]) + 1, DOCUMENTS)
    cells = {}
    for kind, features in rows.items():
        found = compared(name, expected[kind], format.scores(path, form.names, features), indptr)
        cells[kind] = {
            "rows": found.beyond, "lists": found.reordered, "near_ties": found.tied,
            "largest": found.largest,
        }  # fmt: skip
    return cells


def cpu_seconds(work, repeats=3):
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def main(quick):
    train, test = data(100 if quick else 500, 1), data(100 if quick else 600, 2)
    n_trees, many = (50, 100) if quick else (300, 1_000)
    n_rows = 100 * DOCUMENTS if quick else LISTS * DOCUMENTS
    ranker = ut.LambdaMART(n_trees=n_trees, n_threads=1).fit(train)
    forest = form_of(ranker)
    ordinary = known(np.resize(test.features, (n_rows, test.features.shape[1])))
    rows = kinds(forest, ordinary)
    booster = lightgbm.Booster(model_str=forest.text)
    expected = {kind: booster.predict(each, num_threads=1) for kind, each in rows.items()}
    names = [each.name for each in catalog.methods("export")
             if Forest in format_of(each).endings]  # fmt: skip
    results: dict[str, object] = {"trees": n_trees, "rows": n_rows, "lists": n_rows // DOCUMENTS}
    with tempfile.TemporaryDirectory() as folder:
        exact = {name: compare(name, forest, rows, expected, folder) for name in names}
        with as_they_are():
            plain = Forest(forest.names, forest.text, forest.missing)
            touched = [
                n for n in names if n in ("es-ltr", "opensearch", "solr", "vespa", "xgboost")
            ]
            naive = {name: compare(name, plain, rows, expected, folder) for name in touched}
        large = ut.LambdaMART(n_trees=many, n_threads=1).fit(train)
        whole = form_of(large)
        assert isinstance(whole, Forest)
        sizes = {}
        for name in names:
            format, path = written(name, whole, folder)

            def write(format=format, path=path):
                fresh = Forest(whole.names, whole.text, whole.missing)
                return format.files(fresh, Target(path, "model"))

            sizes[name] = {"bytes": path.stat().st_size, "cpu_seconds": cpu_seconds(write)}
    results |= {"exact": exact, "as_they_are": naive, "written": {"trees": many, "files": sizes}}
    for title, cells in (("exact", exact), ("as they are", naive)):
        print(f"{title}: rows that differ by more than 1e-5 / lists reordered")
        table(
            ["engine", *rows],
            [[n, *(f"{c[k]['rows']} / {c[k]['lists']}" for k in rows)] for n, c in cells.items()],
        )
    table(
        ["engine", "bytes", "CPU s"], [[n, s["bytes"], s["cpu_seconds"]] for n, s in sizes.items()]
    )
    if not quick:
        print(save("export", results, seed=SEED, packages=["lightgbm", "xgboost-cpu",
                                                           "onnxruntime"]))  # fmt: skip


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
