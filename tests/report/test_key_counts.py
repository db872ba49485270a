"""The most frequent keys: exact while they fit, and with a bound on what is missed when they do not."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa

from kafkalog_spark.report.key_counts import KeyCount, KeyCounts


def batches(keys: list[bytes | None], size: int = 500) -> list[tuple[pa.Array, pa.Array]]:
    values = pa.array([None if at % 5 == 0 else b"v" * (at % 7) for at in range(len(keys))], pa.binary())
    whole = pa.array(keys, pa.binary())
    return [(whole.slice(at, size), values.slice(at, size)) for at in range(0, len(keys), size)]


def test_counts_are_exact_while_the_keys_fit() -> None:
    chance = random.Random(3)
    keys = [None if chance.random() < 0.1 else b"k%d" % int(chance.expovariate(0.05)) for _ in range(5000)]
    counts = KeyCounts()
    for part in batches(keys):
        counts.add(*part)
    expected = Counter(keys)
    found = counts.top(10_000)
    assert {one.key: one.records for one in found} == dict(expected)
    assert [one.records for one in found] == sorted(expected.values(), reverse=True)
    sizes: Counter[bytes | None] = Counter()
    for at, key in enumerate(keys):
        sizes[key] += 0 if at % 5 == 0 else at % 7
    assert {one.key: one.size for one in found} == {key: sizes[key] for key in expected}
    assert (counts.records, counts.missed) == (5000, 0)


def test_frequent_keys_are_found_with_bounded_error_when_not_all_fit() -> None:
    chance = random.Random(4)
    keys: list[bytes | None] = [*(b"once-%d" % at for at in range(20_000)), *[b"often"] * 2000, *[b"also"] * 1500]
    chance.shuffle(keys)
    counts = KeyCounts(max_keys=1000)
    for part in batches(keys):
        counts.add(*part)
    first, second, *_ = counts.top(5)
    assert (first.key, second.key) == (b"often", b"also")
    assert counts.missed > 0
    for found, true in ((first, 2000), (second, 1500)):
        assert true - counts.missed <= found.records <= true


def test_long_keys_are_kept_up_to_a_number_of_bytes() -> None:
    """At any time, not only in the end: the frequent one is found, however many long ones there are."""
    chance = random.Random(5)
    long: list[bytes | None] = [b"%09d" % at * 1000 for at in range(300)]
    keys = [*long, *[b"often"] * 900]
    chance.shuffle(keys)
    counts = KeyCounts(max_bytes=200_000)
    held = []
    for part in batches(keys, 10):
        counts.add(*part)
        held.append(sum(len(one.key or b"") for one in counts.top(10_000)))
    assert max(held) <= 200_000
    first = counts.top(1)[0]
    assert first.key == b"often"
    assert 900 - counts.missed <= first.records <= 900
    assert 0 < counts.missed < 100
    assert (counts.records, counts._bytes) == (1200, held[-1])


def test_key_longer_than_the_capacity_is_counted_as_missed() -> None:
    counts = KeyCounts(max_bytes=10)
    counts.add(pa.array([b"x" * 100, b"x" * 100, b"y"], pa.binary()), pa.array([b"v"] * 3, pa.binary()))
    assert (counts.top(5), counts.missed, counts.records) == ([], 2, 3)


def test_no_records_give_no_keys() -> None:
    assert KeyCounts().top(3) == []
    counts = KeyCounts()
    counts.add(pa.array([None], pa.binary()), pa.array([None], pa.binary()))
    assert counts.top(3) == [KeyCount(None, 1, 0)]
