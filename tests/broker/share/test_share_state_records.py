"""Records of __share_group_state that Kafka 4.3.0 wrote (kafka-4.3.0-records.json), decoded and encoded again."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.share.share_state_records import SnapshotRecord, UpdateRecord, decode_record, encode_record
from kafkalog_spark.errors import CorruptLog, UnsupportedFormat

RECORDS = json.loads(Path(__file__).with_name("kafka-4.3.0-records.json").read_text())
ORDERS = UUID("3e0a6dba-bc5b-4376-8bd2-a06421ecab66")


def records(topic: str) -> list[Record]:
    return [
        (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        for partition, found in RECORDS.items()
        if partition.startswith(topic)
        for _, key, value in found
    ]


def test_records_of_kafka_are_encoded_to_the_same_bytes() -> None:
    kinds = []
    for record in records("__share_group_state"):
        decoded = decode_record(record)
        assert decoded is not None
        assert decoded.key.topic_id == ORDERS
        assert decoded.key.group_id == "g1"
        assert encode_record(decoded) == record
        kinds.append(type(decoded))
    assert kinds.count(SnapshotRecord) == 4
    assert kinds.count(UpdateRecord) == 10


@pytest.mark.parametrize("size", [1, 2, 10])
def test_truncated_value_is_corrupt(size: int) -> None:
    for key, value in records("__share_group_state"):
        assert value is not None
        with pytest.raises(CorruptLog):
            decode_record((key, value[:-size]))


def test_later_version_is_refused_and_unknown_key_type_is_none() -> None:
    snapshot_key, _ = records("__share_group_state")[0]
    with pytest.raises(UnsupportedFormat, match="version 1"):
        decode_record((snapshot_key, b"\0\1" + bytes(40)))
    assert decode_record((b"\0\7abc", b"")) is None


def test_tombstone_of_a_snapshot_has_no_state() -> None:
    snapshot_key, _ = records("__share_group_state")[0]
    decoded = decode_record((snapshot_key, None))
    assert isinstance(decoded, SnapshotRecord)
    assert decoded.state is None
    assert encode_record(decoded) == (snapshot_key, None)
