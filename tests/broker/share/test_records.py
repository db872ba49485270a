"""The records of share partitions that a real Kafka 4.3.0 wrote (kafka-4.3.0-records.json), read and written again."""

from __future__ import annotations

import json
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.share.state_records import (
    SNAPSHOT,
    UPDATE,
    StateBatch,
    combined,
    decode_snapshot,
    decode_state_key,
    decode_update,
    snapshot_value,
    state_key,
    update_value,
)
from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from tests.searches import examples

RECORDS = json.loads(Path(__file__).with_name("kafka-4.3.0-records.json").read_text())
rank = attrgetter("delivery_count", "delivery_state")
ORDERS = UUID("3e0a6dba-bc5b-4376-8bd2-a06421ecab66")


def records(topic: str) -> list[tuple[bytes, bytes | None]]:
    return [
        (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        for partition, found in RECORDS.items()
        if partition.startswith(topic)
        for _, key, value in found
    ]


def test_share_state_is_what_kafka_wrote():
    kinds = []
    for key, value in records("__share_group_state"):
        found = decode_state_key(key)
        assert found is not None
        assert value is not None
        kind, share_partition = found
        assert share_partition.topic_id == ORDERS
        assert share_partition.group_id == "g1"
        assert state_key(kind, share_partition) == key
        again = snapshot_value(decode_snapshot(value)) if kind == SNAPSHOT else update_value(decode_update(value))
        assert again == value
        kinds.append(kind)
    assert kinds.count(SNAPSHOT) == 4
    assert kinds.count(UPDATE) == 10


@pytest.mark.parametrize("size", [1, 2, 10])
def test_a_record_that_is_cut_short_is_damage(size: int):
    for key, value in records("__share_group_state"):
        assert value is not None
        decode = decode_snapshot if key[1] == SNAPSHOT else decode_update
        with pytest.raises(CorruptLog):
            decode(value[:-size])


def test_a_later_version_is_not_guessed_at():
    with pytest.raises(UnsupportedFormat, match="version 1"):
        decode_snapshot(b"\0\1" + bytes(40))
    assert decode_state_key(b"\0\7abc") is None


BATCHES = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 30), st.integers(0, 12), st.sampled_from([0, 2, 4]), st.integers(1, 3),
    ),
    max_size=8,
)  # fmt: skip


@settings(max_examples=examples(500))
@given(BATCHES, BATCHES, st.integers(-1, 40))
def test_combined_batches_say_of_each_offset_what_ranks_highest(one, other, start):
    result = combined(one, other, start)
    expected: dict[int, tuple[int, int]] = {}
    for batch in [*one, *other]:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            if offset >= start:
                expected[offset] = max(expected.get(offset, (0, 0)), rank(batch))
    said = {offset: rank(batch) for batch in result for offset in range(batch.first_offset, batch.last_offset + 1)}
    assert said == expected
    assert result == sorted(result)
    assert sum(batch.last_offset - batch.first_offset + 1 for batch in result) == len(expected)
    if len([*one, *other]) > 1:
        for before, after in pairwise(result):
            assert before.last_offset + 1 < after.first_offset or rank(before) != rank(after)
