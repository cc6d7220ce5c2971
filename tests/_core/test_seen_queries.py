"""The memory of queries: which were seen, in how many bytes, and how often it errs."""

import hashlib

import numpy as np

from untilt._core.arrays import identifiers
from untilt._core.seen_queries import SeenQueries, id_hashes, row_hashes, seen_queries


def memory(ids, *, scale=1.0, most=1 << 20) -> SeenQueries:
    """Queries with two documents each, whose features follow from the id."""
    numbers = np.repeat(np.arange(len(ids)), 2)
    features = np.column_stack(
        [np.asarray([float(i) for i in ids])[numbers], np.tile([1, 2], len(ids))]
    )
    return seen_queries(identifiers(ids), numbers, features * scale, most=most)  # fmt: skip


def test_what_was_seen_is_found_and_nothing_else():
    seen, asked = memory(range(0, 1000, 2)), memory(range(1000))
    found = seen.lookup(asked.query, asked.document)
    even = np.isin(asked.query, id_hashes(np.arange(0, 1000, 2)))
    assert even.sum() == 500
    assert np.array_equal(found.seen, even)
    assert np.array_equal(found.same_documents, even)
    assert found.told.all()


def test_ids_are_known_by_their_text():
    ours = id_hashes(identifiers(["7", "blue shoes", "é"]))
    assert ours[0] == id_hashes(identifiers([7]))[0]
    digest = hashlib.blake2b(b"blue shoes", digest_size=8).digest()
    assert int(ours[1]) == int.from_bytes(digest, "little")
    assert len(set(ours.tolist())) == 3


def test_the_same_ids_with_other_documents_are_told_apart():
    seen, again = memory(range(100)), memory(range(100), scale=2.0)
    found = seen.lookup(again.query, again.document)
    assert found.seen.all()
    # Two hashes of 32 bits are alike by chance once in 4 * 10^9.
    assert not found.same_documents.any()


def test_the_order_of_documents_and_of_queries_does_not_matter():
    ids, owner = np.array([3, 1, 2]), np.array([0, 0, 1, 2, 2])
    features = np.arange(10, dtype=np.float32).reshape(5, 2)
    first = seen_queries(ids, owner, features)
    shuffled = np.array([4, 1, 0, 3, 2])
    second = seen_queries(ids[::-1], 2 - owner[shuffled], features[shuffled])
    assert np.array_equal(first.query, second.query)
    assert np.array_equal(first.document, second.document)


def test_above_the_bound_a_sample_is_kept_and_says_what_it_can_tell():
    seen, asked = memory(range(2000), most=500), memory(range(1000, 3000))
    assert (len(seen.query), len(seen)) == (500, 2000)
    found = seen.lookup(asked.query, asked.document)
    assert found.told.sum() < 2000 / 3
    share = found.seen[found.told].mean()
    # Half of the asked queries were seen: 500 drawn of 2000 say so within 4 standard errors.
    assert abs(share - 0.5) < 4 * np.sqrt(0.25 / found.told.sum())


def test_rows_of_different_features_have_different_hashes():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20_000, 7)).astype(np.float32)
    hashes = row_hashes(features)
    # 20,000^2 / 2^33: two hundredths of a pair alike by chance.
    assert len(np.unique(hashes)) >= 19_998
    assert np.array_equal(row_hashes(features[::-1]), hashes[::-1])
    changed = features.copy()
    changed[:, 3] = np.nextafter(changed[:, 3], np.float32(9))
    assert not (row_hashes(changed) == hashes).any()


def test_nothing_seen_finds_nothing():
    asked = memory(range(5))
    found = memory([]).lookup(asked.query, asked.document)
    assert not found.seen.any()
    assert found.told.all()


def test_a_query_takes_twelve_bytes():
    seen = memory(range(1000))
    assert seen.query.nbytes + seen.document.nbytes == 12 * 1000
    assert not seen.query.flags.writeable
