"""The neural click model: what its network computes, and what it learns."""

import itertools
import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from untilt import NCM, PBM, UBM, ClickLog, compare_click_models
from untilt.clickmodels.compare import advise
from untilt.clickmodels.ncm import Pages, Reader, conditional, in_own_order, marginal, reader_loss
from untilt.errors import OptionError

jax = pytest.importorskip("jax")
SMALL: dict[str, Any] = {"width": 8, "vector_length": 3, "epochs": 10, "batch_size": 128}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def browsing():
    """Sessions of readers who look on near their last click: a UBM far from any PBM."""
    rng = np.random.default_rng(0)
    n_lists, depth, n_queries, n_candidates = 6000, 5, 10, 8
    theta = np.full((depth, depth), 0.15)
    theta[:, 0] = 0.9 / np.arange(1, depth + 1)
    for k in range(1, depth):
        theta[k, k] = 0.95  # the row just below a click
    query = rng.integers(n_queries, size=n_lists)
    document = (
        query[:, None] * n_candidates + np.argsort(rng.random((n_lists, n_candidates)))[:, :depth]
    )
    gamma = rng.uniform(0.1, 0.9, n_queries * n_candidates)
    click, last = np.zeros((n_lists, depth)), np.zeros(n_lists, dtype=int)
    for k in range(depth):
        click[:, k] = rng.random(n_lists) < theta[k, last] * gamma[document[:, k]]
        last = np.where(click[:, k] > 0, k + 1, last)
    log = ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(len(gamma)),
        doc_query=np.repeat(np.arange(n_queries), n_candidates),
        indptr=np.arange(0, n_lists * depth + 1, depth),
        query=query,
        document=document.ravel(),
        position=np.tile(np.arange(1, depth + 1), n_lists),
        label=click.ravel(),
    )
    return log.split(0.75, by="session", seed=0)


@pytest.fixture(scope="module")
def fitted(browsing):
    return NCM(**{**SMALL, "epochs": 20}).fit(browsing[0])


def one_list_with_all_patterns(log, length=5):
    """The first list of the log with every pattern of clicks."""
    patterns = np.array(list(itertools.product([0.0, 1.0], repeat=length)))
    many = log.take(np.zeros(len(patterns), dtype=int))
    return many._with(label=patterns.ravel(), count=np.ones(len(patterns), dtype=np.int64))


# ---- what the network computes


def slow_conditional(reader, vectors, positions, clicks):
    """One list, row by row, in the formula's symbols."""
    h = len(reader.start)

    def sigma(x):
        return 1 / (1 + np.exp(-x))

    s, above, found = reader.start, 0.0, []
    for v, position, c in zip(vectors, positions, clicks, strict=True):
        a = reader.gates_document.T @ v + reader.gates_position[position - 1]
        a = a + reader.gates_click * above
        U = reader.gates_state.T @ s
        r, u = sigma(a[:h] + U[:h]), sigma(a[h : 2 * h] + U[h : 2 * h])
        n = np.tanh(a[2 * h :] + r * U[2 * h :])
        s = (1 - u) * n + u * s
        out = reader.out_state @ s + reader.out_document @ v + reader.out_position[position - 1]
        found.append(sigma(out))
        above = c
    return found


def random_reader(rng, *, h=4, m=3, depth=6):
    shapes = {
        "start": (h,),
        "gates_document": (m, 3 * h),
        "gates_position": (depth, 3 * h),
        "gates_click": (3 * h,),
        "gates_state": (h, 3 * h),
        "out_state": (h,),
        "out_document": (m,),
        "out_position": (depth,),
    }
    return Reader.of({name: rng.normal(size=shape) for name, shape in shapes.items()})


def random_pages(rng, *, lengths=(3, 6, 1, 0, 4), m=3, depth=6):
    position = np.concatenate([np.sort(rng.permutation(depth)[:n]) + 1 for n in lengths])
    return Pages(
        np.concatenate([[0], np.cumsum(lengths)]),
        position.astype(np.int64),
        rng.integers(7, size=len(position)),
        rng.normal(size=(7, m)),
    )


def test_numpy_reads_as_the_formula_says(rng):
    reader, pages = random_reader(rng), random_pages(rng)
    click = (rng.random(len(pages.position)) < 0.5).astype(float)
    found = conditional(reader, pages, click)
    for i in range(len(pages)):
        mine = slice(pages.indptr[i], pages.indptr[i + 1])
        expected = slow_conditional(
            reader, pages.vectors[pages.document[mine]], pages.position[mine], click[mine]
        )
        assert found[mine] == pytest.approx(np.array(expected))


def test_marginals_are_sums_over_all_patterns(rng):
    reader, pages = random_reader(rng), random_pages(rng, lengths=(4, 2))
    found = marginal(reader, pages, exact_rows=10, n_samples=1, seed=0)
    for i, n in enumerate((4, 2)):
        mine = slice(pages.indptr[i], pages.indptr[i + 1])
        expected = np.zeros(n)
        for clicks in itertools.product([0.0, 1.0], repeat=n):
            p = np.array(
                slow_conditional(
                    reader, pages.vectors[pages.document[mine]], pages.position[mine], clicks
                )
            )
            chance = np.prod(np.where(clicks, p, 1 - p))
            expected += chance * np.array(clicks)
        assert found[mine] == pytest.approx(expected)


def test_sampled_marginals_are_near_the_exact_ones(rng):
    reader, pages = random_reader(rng), random_pages(rng)
    exact = marginal(reader, pages, exact_rows=10, n_samples=1, seed=0)
    sampled = marginal(reader, pages, exact_rows=3, n_samples=20_000, seed=0)
    short = np.repeat(np.diff(pages.indptr) <= 3, np.diff(pages.indptr))
    assert np.array_equal(sampled[short], exact[short])
    # A mean of 20,000 numbers between 0 and 1: standard error at most 0.0036.
    assert sampled == pytest.approx(exact, abs=4 * 0.5 / np.sqrt(20_000))
    assert np.any(sampled[~short] != exact[~short])


def test_jax_and_numpy_agree_and_the_gradient_is_right(browsing):
    log = in_own_order(browsing[0].take(np.arange(100)))
    model = NCM(**SMALL)
    features = np.random.default_rng(1).normal(size=(log.n_documents, 2)).astype(np.float32)
    params = model._start(log, features)
    params["out_state"] = np.random.default_rng(2).normal(size=8).astype(np.float32)
    batch = next(model._batches(log).epoch(0))
    constants = {"features": features, "per_batch": 1.0, "prior": 0.1, "l2": 0.01, "by_id": 1.0}
    constants["vector"] = np.arange(log.n_documents)
    vectors = features @ params["by_feature"] + params["vectors"]
    pages = Pages(log.indptr, log.position, log.document, vectors)  # type: ignore[arg-type]
    p = conditional(Reader.of(params), pages, log.label)
    likelihood = np.dot(np.log(np.where(log.label > 0, p, 1 - p)), log.row_count)
    squares = sum(np.sum(params[name] ** 2.0) for name in ("gates_document", "gates_state"))
    penalty = 0.1 * np.sum(params["vectors"] ** 2.0) + 0.01 * squares
    assert float(reader_loss()(params, {**constants, **batch})) == pytest.approx(
        penalty - likelihood, rel=1e-5
    )
    value = jax.jit(reader_loss())
    gradient = jax.jit(jax.grad(reader_loss()))(params, {**constants, **batch})
    for name in params:
        direction = np.random.default_rng(3).normal(size=params[name].shape).astype(np.float32)
        ends = [
            float(
                value(
                    {**params, name: params[name] + sign * 1e-2 * direction}, {**constants, **batch}
                )
            )
            for sign in (1, -1)
        ]
        slope = float(np.sum(np.asarray(gradient[name]) * direction))
        assert (ends[0] - ends[1]) / 2e-2 == pytest.approx(slope, rel=0.02, abs=0.05)


# ---- what it promises


def test_patterns_share_all_probability(fitted, browsing):
    every = one_list_with_all_patterns(browsing[1])
    each = [np.exp(fitted.log_likelihood(every.take([i]))) for i in range(32)]
    assert sum(each) == pytest.approx(1)
    expected = np.array(each) @ every.label.reshape(32, 5)
    assert fitted.click_probability(every.take([0])) == pytest.approx(expected)


def test_it_learns_what_a_position_based_model_cannot(fitted, browsing):
    train, test = browsing
    table = compare_click_models(
        train,
        test,
        models={"pbm": PBM(), "ubm": UBM(), "ncm": NCM(**{**SMALL, "epochs": 20})},
        n_draws=100,
    )
    assert table["ncm"].gain.interval.low > 0
    ours, theirs = (table[name].conditional_perplexity.value for name in ("ncm", "pbm"))
    truth = table["ubm"].conditional_perplexity.value  # the model that drew the sessions
    assert (theirs - ours) / (theirs - truth) > 0.7
    assert not advise(table).enough


def test_own_samples_round_trip(fitted, browsing):
    lists = browsing[1]
    drawn = fitted.sample(lists, seed=3)
    p = fitted.click_probability(drawn)
    for k in range(1, 6):
        at = drawn.position == k
        error = np.sqrt(np.sum(p[at] * (1 - p[at]))) / at.sum()
        assert drawn.label[at].mean() == pytest.approx(p[at].mean(), abs=4.5 * error)
    again = NCM(**{**SMALL, "epochs": 20}).fit(fitted.sample(browsing[0], seed=4))
    gap = again.conditional_probability(drawn) - fitted.conditional_probability(drawn)
    # 4,500 sessions, 22,500 rows: a stated tolerance, not an error bound.
    assert np.sqrt(np.mean(gap**2)) < 0.05


def test_relevance_is_the_chance_alone_at_the_top(fitted, browsing):
    log = browsing[0]
    alone = log._with(
        indptr=np.arange(log.n_documents + 1),
        query=log.doc_query,
        document=np.arange(log.n_documents),
        position=np.ones(log.n_documents, dtype=int),
        label=np.zeros(log.n_documents),
        count=np.ones(log.n_documents, dtype=int),
    )
    assert fitted.click_probability(alone) == pytest.approx(fitted.relevance_)
    ubm = UBM().fit(log)
    assert np.corrcoef(fitted.relevance_, ubm.relevance_)[0, 1] > 0.9


def test_another_seed_gives_another_network(browsing):
    log = browsing[0].take(np.arange(300))
    one, two = (NCM(**SMALL, seed=seed).fit(log) for seed in (0, 1))
    assert not np.array_equal(one.relevance_, two.relevance_)
    assert one.relevance_ == pytest.approx(two.relevance_, abs=0.15)


# ---- features


@pytest.fixture(scope="module")
def described(browsing):
    """Clicks follow one feature; the other is noise. Test sessions are of documents never seen."""
    rng = np.random.default_rng(5)
    train, test = browsing
    x = rng.normal(size=(train.n_documents, 2)).astype(np.float32)

    def clicked(log, first_query):
        p = 1 / (1 + np.exp(-(1.5 * x[log.document, 0] - 1 - 0.3 * log.position)))
        label = (rng.random(len(p)) < p).astype(float)
        return replace(log, features=x, label=label, query_id=log.query_id + first_query)

    return clicked(train, 0), clicked(test, 1000)


def test_features_speak_for_documents_never_seen(described):
    train, test = described
    by_feature = NCM(**SMALL, documents="features").fit(train)
    both = NCM(**SMALL).fit(train)
    ids = NCM(**SMALL, documents="ids").fit(train)
    likelihood = [model.log_likelihood(test) / test.n_sessions for model in (by_feature, both, ids)]
    assert likelihood[0] > likelihood[2] + 0.3
    assert likelihood[1] > likelihood[2] + 0.3
    assert np.ptp(ids.click_probability(test)[test.position == 1]) < 1e-12


def test_the_same_features_must_come_along(described):
    train, test = described
    model = NCM(**SMALL).fit(train)
    with pytest.raises(OptionError, match="fitted on 2 features"):
        model.click_probability(replace(test, features=None, feature_names=()))


# ---- errors and packages


def test_options_that_make_no_sense(browsing):
    log = browsing[0].take(np.arange(50))
    for options, message in (
        ({"documents": "words"}, "documents must be one of"),
        ({"documents": "features"}, "needs features, and this log has none"),
        ({"width": 0}, "width must be at least 1"),
        ({"exact_rows": 40}, "exact_rows must be from 0 to 20"),
        ({"validation": 1.0}, "validation must be from 0"),
        ({"l2": -1}, "l2 must be at least 0"),
        ({"prior_strength": -1}, "prior_strength must be at least 0"),
        ({"epochs": 0}, "epochs must be at least 1"),
    ):
        with pytest.raises(OptionError, match=message):
            NCM(**options).fit(log)


WITHOUT_JAX = """
import sys
sys.modules["jax"] = None
import json
import numpy as np
from untilt.clickmodels.compare import compare_click_models
from untilt.clickmodels.ncm import NCM
from untilt.data.clicklog import ClickLog
log = ClickLog(query_id=[0], doc_id=[0, 1], doc_query=[0, 0], indptr=[0, 2, 4, 6], query=[0] * 3,
               document=[0, 1, 1, 0, 0, 1], position=[1, 2] * 3, label=[1, 0, 0, 1, 0, 0])
table = compare_click_models(log, log, n_draws=20, by="session")
try:
    NCM().fit(log)
except ValueError as error:
    message = str(error)
print(json.dumps({"left_out": table.left_out, "n": len(table), "message": message}))
"""


def test_without_jax_it_is_left_out_and_says_what_to_install():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAX], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert list(told["left_out"]) == ["ncm"]
    assert told["n"] == 10
    assert "pip install 'untilt[neural]'" in told["message"]


# ---- real pages


@pytest.mark.slow
def test_on_real_pages_it_predicts_best(data_dir):
    path = data_dir / "yandex-sample" / "train.txt.gz"
    if not path.exists():
        pytest.skip(f"no result pages: {path}")
    log, _ = runpy.run_path(str(ROOT / "examples" / "yandex_pages.py"))["read_pages"](
        path, in_order=True
    )
    train, test = log.split(0.75, by="time")
    table = compare_click_models(
        train, test, models=["pbm", "ubm", "ncm"], by="session", n_draws=60
    )
    assert table.best.name == "ncm"
    assert table["ncm"].log_likelihood.value > table["ubm"].log_likelihood.value + 0.04
