"""Records of consumer groups: bit for bit those that Apache Kafka 4.3.0 wrote, and what a start makes of them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog_broker.coordinator.coordinator_log import OffsetsBatch, Record
from kafkalog_broker.coordinator.java_order import group_hash, topic_hash
from kafkalog_broker.groups.consumer.changes import Change, Kind, TargetEpochValue, decode, encode
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, TopicInfo
from kafkalog_broker.groups.consumer.draft import apply
from kafkalog_broker.groups.group_shard import load
from kafkalog_spark.errors import KafkalogError, UnsupportedFormat

KAFKAS = json.loads(lzma.decompress(Path(__file__).with_name("kafka-4.3.0-consumer-groups.json.xz").read_bytes()))
RECORDS: list[Record] = [
    (bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for key, value in KAFKAS["records"]
]
CHANGES = [change for key, value in RECORDS if (change := decode(key, value)) is not None]


def test_kafka_wrote_records_of_all_kinds_and_their_tombstones() -> None:
    written = {kind for kind in Kind if kind is not Kind.TOPICS}  # only Kafka 4.0 wrote that one
    assert {change.kind for change in CHANGES if change.value is not None} == written
    assert {change.kind for change in CHANGES if change.value is None} == set(Kind)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.TOPICS])
def test_what_is_read_is_written_bit_for_bit(kind: Kind) -> None:
    checked = 0
    for key, value in RECORDS:
        change = decode(key, value)
        if change is not None and change.kind is kind:
            assert encode(change) == (key, value)
            checked += 1
    assert checked > 1


def test_the_metadata_hash_is_kafkas() -> None:
    """The epochs that Kafka wrote for members of these topics hold their hashes."""
    topics = {
        name: TopicInfo(name, UUID(topic_id), count)
        for (name, topic_id), count in zip(KAFKAS["topics"].items(), (6, 4, 3, 2), strict=True)
    }
    hashes = {name: topic_hash(topic.name, topic.topic_id, topic.partitions, None) for name, topic in topics.items()}
    found = {change.value.metadata_hash for change in CHANGES if change.kind is Kind.EPOCH and change.value}
    for names in (["orders"], ["orders", "clicks"], ["logs"], ["orders", "clicks", "logs"]):
        assert group_hash((name, hashes[name]) for name in names) in found
    assert group_hash([]) == 0


def test_a_start_finds_what_the_records_say() -> None:
    """Record by record, as Kafka replays them, and by what is left of each key."""
    one_by_one: dict[str, ConsumerGroup] = {}
    apply(one_by_one, CHANGES)
    loaded = load([OffsetsBatch(number, -1, False, None, [record]) for number, record in enumerate(RECORDS)])
    at_once: dict[str, ConsumerGroup] = {}
    apply(at_once, loaded.changes)
    assert loaded.skipped == 0
    assert at_once.keys() == one_by_one.keys()
    assert len(at_once) > 5
    for group_id, group in one_by_one.items():
        assert _shown(at_once[group_id]) == _shown(group)


def _shown(group: ConsumerGroup) -> Any:
    return (
        group.epoch, group.metadata_hash, group.assignment_epoch, group.members, group.static_members, group.target,
        group.regexes, group.names, group.regex_names, group.subscribed_regexes, group.classic_members, group.state,
    )  # fmt: skip


def test_a_record_of_a_later_version_is_not_guessed_at() -> None:
    key, value = encode(Change(Kind.TARGET_EPOCH, "g", "", TargetEpochValue(3, 7)))
    assert value is not None
    with pytest.raises(UnsupportedFormat, match="of version 1, expected 0"):
        decode(key, b"\0\1" + value[2:])


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.TOPICS])
def test_a_record_that_is_cut_short_is_an_error_that_names_it(kind: Kind) -> None:
    key, value = max(
        (record for record in RECORDS if record[1] and record[0][:2] == kind.to_bytes(2, "big")),
        key=lambda record: len(record[1] or b""),
    )
    assert value is not None
    for end in range(2, len(value)):
        with pytest.raises(KafkalogError, match="record of a consumer group"):
            decode(key, value[:end])
