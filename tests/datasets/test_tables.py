"""Logs released as tables, and judged sets, in small files and in the real ones."""

import numpy as np
import pandas as pd
import pytest

import untilt as ut

HOTELS = pd.DataFrame(
    {
        "srch_id": [1, 1, 2, 2], "date_time": ["2013-03-17 10:33:23"] * 4, "prop_id": [7, 8, 7, 9],
        "srch_destination_id": 5, "prop_starrating": [2, 3, 2, 4], "prop_review_score": 3.5,
        "prop_brand_bool": 0, "prop_location_score1": 1.0,
        "prop_location_score2": ["0.5", "NULL"] * 2, "prop_log_historical_price": 4.0,
        "position": [1, 2, 2, 1], "price_usd": 90.0,
        "promotion_flag": 0, "orig_destination_distance": "NULL", "random_bool": [0, 0, 1, 1],
        "comp1_rate": "NULL", "comp1_inv": "NULL", "comp1_rate_percent_diff": "NULL",
        "click_bool": [1, 0, 1, 0], "gross_bookings_usd": "NULL", "booking_bool": [1, 0, 0, 0],
    }
)  # fmt: skip
SLOTS = pd.DataFrame(
    {
        "timestamp": ["2019-11-24 00:00:34.762830+00:00"] * 3, "item_id": [3, 5, 3],
        "position": [1, 3, 3], "click": [0, 1, 0], "propensity_score": [0.0125, 0.02, 0.5],
        "user_feature_0": "x",
    }
)  # fmt: skip
FEED = pd.DataFrame(
    {
        "query_id": 8, "session_id": ["28-8"] * 3, "doc_id": [99, 7, 129], "position": [1, 2, 3],
        "click": [1, 0, 1], "viewport_ms": [13961, 0, 20818],
    }
)  # fmt: skip


@pytest.fixture
def bandit(tmp_path):
    for policy, campaign in (("random", "men"), ("bts", "men"), ("bts", "all"), ("other", "all")):
        (tmp_path / policy / campaign).mkdir(parents=True)
        SLOTS.to_csv(tmp_path / policy / campaign / f"{campaign}.csv")
    SLOTS.to_csv(tmp_path / "random" / "men" / "item_context.txt")
    return tmp_path


def test_hotels_by_search_and_by_destination(tmp_path):
    HOTELS.to_csv(tmp_path / "train.csv", index=False)
    log = ut.datasets.read_expedia(tmp_path / "train.csv", labels=("booking_bool",))
    assert (log.n_queries, log.n_sessions, log.n_documents) == (2, 2, 4)
    assert log.ranker_names == ("production", "shuffle")
    assert log.extra_labels["booking_bool"].sum() == 1
    assert "prop_id" not in log.feature_names
    assert not any("book" in name or "click" in name for name in log.feature_names)
    assert np.isnan(log.features[:, log.feature_names.index("prop_location_score2")]).sum() == 2
    hotels = ut.datasets.read_expedia(tmp_path / "train.csv", by="destination")
    assert hotels.n_queries == 1
    with pytest.raises(ut.UntiltError, match="by must be one of"):
        ut.datasets.read_expedia(tmp_path / "train.csv", by="hotel")  # type: ignore[arg-type]
    HOTELS.drop(columns="random_bool").to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(ut.UntiltError, match="random_bool"):
        ut.datasets.read_expedia(tmp_path / "test.csv")


def test_open_bandit_folders_are_campaigns_of_policies(bandit):
    log = ut.datasets.read_open_bandit(bandit)
    assert log.n_sessions == 9  # every slot is a session; the folder of no policy is left out
    assert set(log.ranker_names) == {"bts", "shuffle"}
    assert sorted(log.query_id.tolist()) == ["all", "men"]
    assert set(log.doc_id.tolist()) == {"all-3", "all-5", "men-3", "men-5"}
    assert sorted({round(float(p), 4) for p in log.propensity}) == [0.0125, 0.02, 0.5]
    with pytest.raises(ut.UntiltError, match="random and bts"):
        ut.datasets.read_open_bandit(bandit / "bts")


def test_open_bandit_without_propensities_is_refused(tmp_path):
    (tmp_path / "bts" / "all").mkdir(parents=True)
    SLOTS.drop(columns="propensity_score").to_csv(tmp_path / "bts" / "all" / "all.csv")
    with pytest.raises(ut.UntiltError, match="propensity_score"):
        ut.datasets.read_open_bandit(tmp_path)


def test_the_feed_keeps_what_was_on_the_screen():
    log = ut.datasets.read_thuir_news(FEED)
    assert log.extra_labels["viewport_ms"].tolist() == [13961, 0, 20818]
    with pytest.raises(ut.UntiltError, match="viewport_ms"):
        ut.datasets.read_thuir_news(FEED.drop(columns="viewport_ms"))


def test_judged_sets_share_the_layouts_of_the_papers(tmp_path):
    for fold in range(1, 6):
        (tmp_path / f"Fold{fold}").mkdir()
        for part, n in (("train", 3), ("test", 1), ("vali", 1)):
            lines = [f"{q % 3} qid:{q} " + " ".join(f"{j}:{fold}" for j in range(1, 137))
                     for q in range(n)]  # fmt: skip
            (tmp_path / f"Fold{fold}" / f"{part}.txt").write_text("\n".join(lines) + "\n")
    train, test = ut.datasets.read_judged_set("mslr-web10k", tmp_path, fold=2)
    assert (train.n_queries, test.n_queries) == (3, 1)
    assert np.all(train.features == 2)
    with pytest.raises(ut.UntiltError, match=r"has folds 1\.\.5"):
        ut.datasets.read_judged_set("mslr-web10k", tmp_path, fold=6)
    with pytest.raises(ut.UntiltError, match="not of MQ2007"):
        ut.datasets.read_judged_set("mq2007", tmp_path)
    with pytest.raises(ut.UntiltError, match="Did you mean 'istella-s'"):
        ut.datasets.read_judged_set("istela-s")


# ---- real files


def real(data_dir, *parts):
    path = data_dir.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no real data: {path} is missing")
    return path


def test_the_real_hotels(data_dir):
    log = ut.datasets.read_expedia(real(data_dir, "expedia-sample", "searches.csv.gz"))
    assert (log.n_sessions, log.n_impressions) == (1000, 25149)
    assert dict(zip(log.ranker_names, np.bincount(log.ranker), strict=True)) == {
        "production": 668, "shuffle": 332
    }  # fmt: skip


def test_the_real_slots_in_the_layout_of_the_release(data_dir, tmp_path):
    table = pd.read_parquet(real(data_dir, "obd", "impressions.parquet"))
    for (campaign, ranker), part in table.groupby(["query_id", "ranker"]):
        folder = tmp_path / {"shuffle": "random"}.get(ranker, ranker) / campaign
        folder.mkdir(parents=True)
        item = part.doc_id.str.rpartition("-")[2]
        written = part.assign(item_id=item).rename(columns={"propensity": "propensity_score"})
        written = written[["timestamp", "item_id", "position", "click", "propensity_score"]]
        written.to_csv(folder / f"{campaign}.csv")
    found = ut.datasets.read_open_bandit(tmp_path)
    expected = ut.read_log(table)
    assert found.n_sessions == expected.n_sessions == 60000
    assert set(found.doc_id.tolist()) == set(expected.doc_id.tolist())
    for name in expected.ranker_names:
        ours, theirs = (log.ranker == log.ranker_names.index(name) for log in (found, expected))
        assert found.label[ours].sum() == expected.label[theirs].sum()
        assert (1 / found.propensity[ours]).sum() == pytest.approx(
            (1 / expected.propensity[theirs]).sum()
        )


def test_the_real_feed(data_dir):
    table = pd.read_parquet(real(data_dir, "thuir-news", "impressions.parquet"))
    log = ut.datasets.read_thuir_news(table)
    assert (log.n_sessions, log.n_impressions) == (352, 5280)
    assert log.extra_labels["viewport_ms"].sum() == pytest.approx(table.viewport_ms.sum())


def test_real_judged_sets(data_dir):
    train, test = ut.datasets.read_judged_set("mq2008", real(data_dir, "mq2008"), fold=2)
    assert (train.n_queries, test.n_queries) == (471, 157)
    train, _ = ut.datasets.read_judged_set("mslr-sample", real(data_dir, "mslr-sample"))
    assert train.n_features == 136
