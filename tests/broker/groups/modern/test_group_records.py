"""Records of consumer, share and streams groups: bit for bit those that Apache Kafka 4.3.0 wrote, and what a start
reads."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup
from kafkalog_broker.groups.group_loader import load
from kafkalog_broker.groups.modern.group_record_codec import decode, encode
from kafkalog_broker.groups.modern.group_records import GroupRecord, GroupType, RecordKind
from kafkalog_broker.groups.modern.metadata_hash import group_hash, topic_hash
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.storage.topic import Topic
from kafkalog_spark.errors import KafkalogError, UnsupportedFormat
from tests.broker.groups.helpers.virtual_time import World

TESTS = Path(__file__).parents[2]
KAFKAS = json.loads(lzma.decompress((TESTS / "groups/kafka-4.3.0-consumer-groups.json.xz").read_bytes()))
SHARE = json.loads((TESTS / "share/kafka-4.3.0-records.json").read_text())


def _records(file: str) -> list[Record]:
    written = json.loads(lzma.decompress((TESTS / file).read_bytes()))["records"]
    return [(bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for key, value in written]


CONSUMER_RECORDS = _records("groups/kafka-4.3.0-consumer-groups.json.xz")
SHARE_RECORDS: list[Record] = [
    (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    for partition, written in SHARE.items()
    if partition.startswith("__consumer_offsets")
    for _, key, value in written
]
STREAMS_RECORDS = _records("groups/kafka-4.3.0-streams-groups.json.xz")
DECODED = [
    (record, decoded)
    for record in CONSUMER_RECORDS + SHARE_RECORDS + STREAMS_RECORDS
    if (decoded := decode(*record)) is not None
]
CONSUMER_KINDS = set(RecordKind) - {RecordKind.STATE_PARTITIONS, RecordKind.TOPOLOGY}
SHARE_KINDS = set(RecordKind) - {RecordKind.TOPICS, RecordKind.REGEX, RecordKind.TOPOLOGY}
STREAMS_KINDS = SHARE_KINDS - {RecordKind.STATE_PARTITIONS} | {RecordKind.TOPOLOGY}
KINDS = [(GroupType.CONSUMER, kind) for kind in RecordKind if kind in CONSUMER_KINDS - {RecordKind.TOPICS}]
KINDS += [(GroupType.SHARE, kind) for kind in RecordKind if kind in SHARE_KINDS]
KINDS += [(GroupType.STREAMS, kind) for kind in RecordKind if kind in STREAMS_KINDS]


def test_kafka_wrote_records_of_all_kinds_and_their_tombstones() -> None:
    written = {(record.group_type, record.kind) for _, record in DECODED if record.value is not None}
    assert written == set(KINDS)  # TOPICS were written by Kafka 4.0 only
    removed = {(record.group_type, record.kind) for _, record in DECODED if record.value is None}
    assert {kind for group_type, kind in removed if group_type is GroupType.CONSUMER} == CONSUMER_KINDS
    assert {kind for group_type, kind in removed if group_type is GroupType.STREAMS} == STREAMS_KINDS
    of_members = {RecordKind.MEMBER, RecordKind.TARGET, RecordKind.CURRENT}
    assert {kind for group_type, kind in removed if group_type is GroupType.SHARE} == of_members
    groups = sum(record[0][:2] > b"\0\2" for record in CONSUMER_RECORDS + STREAMS_RECORDS)
    assert len(DECODED) == len(SHARE_RECORDS) + groups


@pytest.mark.parametrize(("group_type", "kind"), KINDS)
def test_decoded_record_is_encoded_with_the_same_bytes(group_type: GroupType, kind: RecordKind) -> None:
    checked = 0
    for bytes_, record in DECODED:
        if (record.group_type, record.kind) == (group_type, kind):
            assert encode(record) == bytes_
            checked += 1
    assert checked > 1


def test_metadata_hash_equals_that_of_kafka() -> None:
    """The epochs that Kafka wrote for members of these topics hold their hashes."""
    topics = {
        name: Topic(name, UUID(topic_id), count)
        for (name, topic_id), count in zip(KAFKAS["topics"].items(), (6, 4, 3, 2), strict=True)
    }
    hashes = {name: topic_hash(topic, None) for name, topic in topics.items()}
    found = {record.value.metadata_hash for _, record in DECODED if record.kind is RecordKind.EPOCH and record.value}
    for names in (["orders"], ["orders", "clicks"], ["logs"], ["orders", "clicks", "logs"]):
        assert group_hash((name, hashes[name]) for name in names) in found
    assert group_hash([]) == 0


def groups() -> ModernGroups[ConsumerGroup]:
    """Without a log."""
    return World().coordinator.shard("g").consumer


def test_loading_gives_the_same_groups_as_replaying_each_record() -> None:
    """Record by record, as Kafka replays them, and by what is left of each key."""
    one_by_one, at_once = groups(), groups()
    for written in CONSUMER_RECORDS:
        decoded = decode(*written)
        if decoded is not None and decoded.group_type is GroupType.CONSUMER:
            one_by_one.replay(decoded)
    loaded = load([CoordinatorBatch(at, -1, False, None, [record]) for at, record in enumerate(CONSUMER_RECORDS)])
    for record in loaded.records:
        if record.group_type is GroupType.CONSUMER:
            at_once.replay(record)
    assert loaded.skipped == 0
    assert at_once.groups.keys() == one_by_one.groups.keys()
    assert len(at_once.groups) > 5
    for group_id, group in one_by_one.groups.items():
        assert _shown(at_once.groups[group_id]) == _shown(group)


def _shown(group: ConsumerGroup) -> Any:
    return (
        group.epoch, group.metadata_hash, group.assignment_epoch, group.members, group.static_members, group.target,
        group.regexes, group.subscribed_topics, group.matched_topics, group.subscribed_regexes, group.classic_members,
        group.state,
    )  # fmt: skip


@pytest.mark.parametrize("group_type", list(GroupType)[1:])
def test_record_of_a_later_version_raises_unsupported_format(group_type: GroupType) -> None:
    key, value = encode(GroupRecord(group_type, RecordKind.TARGET_EPOCH, "g", "", (3, 7)))
    assert value is not None
    with pytest.raises(UnsupportedFormat, match="of version 1, expected 0"):
        decode(key, b"\0\1" + value[2:])


@pytest.mark.parametrize(("group_type", "kind"), KINDS)
def test_truncated_record_raises_an_error_that_names_its_kind(group_type: GroupType, kind: RecordKind) -> None:
    key, value = max(
        (
            record for record, decoded in DECODED
            if (decoded.group_type, decoded.kind) == (group_type, kind) and decoded.value is not None
        ),
        key=lambda record: len(record[1] or b""),
    )  # fmt: skip
    assert value is not None
    for end in range(2, len(value)):
        with pytest.raises(KafkalogError, match=f"{kind.name} record of a {group_type.value} group"):
            decode(key, value[:end])


def test_keys_of_other_kinds_decode_to_none() -> None:
    assert decode(b"\0\1\0\1g\0\1t\0\0\0\0", b"") is None
    assert decode(b"\0\x7fabc", b"") is None
