"""Records land where a Kafka producer would put them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import InvalidRecord, UnknownPartition
from kafkalog_spark.kernels.partitioner import choose_slots
from kafkalog_spark.log.write.arrow_columns import binary_column
from kafkalog_spark.sink.partitioner import Partitioner

NOTHING_I32, NOTHING_U8 = np.empty(0, np.int32), np.empty(0, np.uint8)


def partitions_of(keys: list[bytes | None], count: int) -> list[int]:
    slots = np.empty(len(keys), np.int32)
    fault = choose_slots(
        len(keys), binary_column("key", pa.array(keys, pa.binary())), NOTHING_I32, NOTHING_U8, 0,
        NOTHING_I32, np.array([count]), np.array([0]), slots,
    )  # fmt: skip
    assert fault == -1
    return slots.tolist()


# org.apache.kafka.common.utils.UtilsTest.testMurmur2
KAFKAS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), KAFKAS.items())
def test_murmur2_partitions_equal_kafkas(key: bytes, hashed: int) -> None:
    for count in (1, 7, 100, 2**31 - 1):
        assert partitions_of([key], count) == [(hashed & 0x7FFFFFFF) % count]


def plain_murmur2(data: bytes) -> int:
    """Utils.murmur2, statement by statement."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    for i in range(len(data) // 4):
        k = int.from_bytes(data[4 * i : 4 * i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    tail = data[len(data) // 4 * 4 :]
    for i in reversed(range(len(tail))):
        h ^= tail[i] << 8 * i
    if tail:
        h = h * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), min_size=1), st.integers(1, 5000))
def test_any_key_is_partitioned_by_murmur2(keys: list[bytes | None], count: int) -> None:
    expected = [-1 if key is None else plain_murmur2(key) % count for key in keys]
    assert partitions_of(keys, count) == expected


def divided(partitioner: Partitioner, batch: pa.RecordBatch) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}
    for share in partitioner.shares([batch]):
        assert share.records.num_rows
        assert share.records.schema.names == list(partitioner.record_columns)
        found.setdefault((share.topic, share.partition), []).extend(share.records["value"].to_pylist())
    return found


def batch(**columns: list[Any]) -> pa.RecordBatch:
    kinds = {"key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32()}
    return pa.record_batch({name: pa.array(cells, kinds[name]) for name, cells in columns.items()})


def test_keyless_rows_are_spread_over_all_partitions_in_order() -> None:
    partitioner = Partitioner("t", ("value",), lambda topic: 3, first=1)
    rows = [b"%d" % n for n in range(10)]
    assert divided(partitioner, batch(value=rows)) == {("t", 1): rows[:3], ("t", 2): rows[3:6], ("t", 0): rows[6:]}
    assert divided(partitioner, batch(value=rows[:2])) == {("t", 1): rows[:1], ("t", 2): rows[1:2]}
    assert divided(partitioner, batch(value=rows[:1])) == {("t", 0): rows[:1]}, "the next one's turn"


def test_keyless_rows_are_sliced_without_a_copy() -> None:
    partitioner = Partitioner("t", ("value",), lambda topic: 2)
    window = [batch(value=[b"%d" % n for n in rows]) for rows in (range(3), (), range(3, 5), range(5, 8))]
    shares = partitioner.shares(window)
    assert [(share.partition, share.records["value"].to_pylist()) for share in shares] == [
        (0, [b"0", b"1", b"2"]),
        (0, [b"3"]),
        (1, [b"4"]),
        (1, [b"5", b"6", b"7"]),
    ]
    data = {batch["value"].buffers()[2].address for batch in window if batch.num_rows}
    assert {share.records["value"].buffers()[2].address for share in shares} == data
    again = partitioner.shares(window[:1])
    assert [share.partition for share in again] == [0, 1], "each had its turn"


def test_rows_with_keys_are_partitioned_batch_by_batch() -> None:
    partitioner = Partitioner("t", ("key", "value"), lambda topic: 2)
    first = batch(key=[None, None], value=[b"0", b"1"])
    second = batch(key=[b"foobar", None], value=[b"2", b"3"])
    found = [(share.partition, share.records["value"].to_pylist()) for share in partitioner.shares([first, second])]
    by_key = (-790332482 & 0x7FFFFFFF) % 2
    assert by_key == 0
    assert found == [(0, [b"0"]), (1, [b"1"]), (0, [b"2", b"3"])]


def test_partition_column_takes_precedence_over_key_and_key_over_round_robin() -> None:
    partitioner = Partitioner("t", ("key", "value"), lambda topic: 10)
    key = b"foobar"
    by_key = (-790332482 & 0x7FFFFFFF) % 10
    found = divided(
        partitioner,
        batch(key=[key, key, None, None], value=[b"a", b"b", b"c", b"d"], partition=[None, 3, 4, None]),
    )
    assert found == {("t", by_key): [b"a"], ("t", 3): [b"b"], ("t", 4): [b"c"], ("t", 0): [b"d"]}


def test_each_topic_of_a_batch_has_its_own_partitions() -> None:
    counts = {"a": 1, "b": 4}
    partitioner = Partitioner(None, ("value",), counts.__getitem__)
    rows = [b"%d" % n for n in range(12)]
    found = divided(partitioner, batch(value=rows, topic=["a", "b", "b"] * 4))
    assert found["a", 0] == rows[0::3]
    assert [found["b", n] for n in range(4)] == [rows[1:3], rows[4:6], rows[7:9], rows[10:12]]
    assert partitioner.partitions == counts


def test_slices_and_nulls_of_all_columns_are_written_correctly() -> None:
    partitioner = Partitioner(None, ("key", "value"), lambda topic: 5)
    whole = batch(
        key=[b"x", None, b"foobar", None, b"21"],
        value=[b"0", None, b"2", b"3", b"4"],
        topic=["a", "b", "a", "b", "a"],
        partition=[4, None, None, 2, None],
    )
    assert divided(partitioner, whole.slice(1)) == {
        ("b", 0): [None],
        ("a", (-790332482 & 0x7FFFFFFF) % 5): [b"2"],
        ("b", 2): [b"3"],
        ("a", (-973932308 & 0x7FFFFFFF) % 5): [b"4"],
    }


def test_batch_without_rows_has_no_shares() -> None:
    assert Partitioner("t", ("value",), lambda topic: 3).shares([batch(value=[])]) == []


def test_null_topic_is_an_error_in_the_connectors_words() -> None:
    partitioner = Partitioner(None, ("value",), lambda topic: 1)
    with pytest.raises(InvalidRecord, match=r"KAFKA_NULL_TOPIC_IN_DATA.*row 1 of"):
        partitioner.shares([batch(value=[b"a", b"b"], topic=["t", None])])


@pytest.mark.parametrize(
    ("partition", "text"),
    [(3, r"t-3: the topic has 3 partitions, 0 to 2; option numPartitions"), (-1, r"Invalid partition number: -1")],
)
def test_partition_that_does_not_exist_is_an_error(partition: int, text: str) -> None:
    partitioner = Partitioner("t", ("value",), lambda topic: 3)
    with pytest.raises(UnknownPartition, match=text):
        partitioner.shares([batch(value=[b"a", b"b"], partition=[0, partition])])
