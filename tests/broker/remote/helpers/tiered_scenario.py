"""Requests about tiered storage in order, asked of a real Kafka once (record_tiered.py) and of this broker in tests.

Steps are those of the admin scenario: (API key, versions, fields).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from tests.broker.api.helpers.admin_scenario import (
    BROKER,
    DELETE,
    SET,
    TOPIC,
    Step,
    change,
    create,
    describe,
    incremental,
    new_topic,
    replacing,
)

REMOTE = "remote.storage.enable"
COPY_OFF, DELETE_OFF = "remote.log.copy.disable", "remote.log.delete.on.disable"
LOCAL_MS, LOCAL_BYTES = "local.retention.ms", "local.retention.bytes"
LIST_OFFSETS, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH = 2, 21, 23


def _sets(topic: str, **configs: str | None) -> Step:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    operations = ((name, DELETE if value is None else SET, value) for name, value in named.items())
    return incremental(change(TOPIC, topic, *operations))


def configuration_steps() -> Iterator[Step]:
    """Topics and brokers that are given properties of tiered storage, allowed and refused ones."""
    for number, configs in enumerate(REFUSED_TOPICS):
        yield create(new_topic(f"refused-{number}", configs=configs))
    yield create(new_topic("tiered", configs={REMOTE: "true", "retention.ms": "10000", LOCAL_MS: "1000"}))
    yield create(new_topic("plain"))
    yield create(new_topic("compacted", configs={"cleanup.policy": "compact"}))
    yield create(new_topic("flags", configs={COPY_OFF: "true", DELETE_OFF: "true", LOCAL_MS: "5", LOCAL_BYTES: "6"}))
    yield create(new_topic("read-only", configs={REMOTE: "true", COPY_OFF: "true"}))
    yield _sets("compacted", remote_storage_enable="true")
    yield _sets("tiered", cleanup_policy="compact")
    yield _sets("tiered", cleanup_policy="compact,delete")
    yield _sets("tiered", local_retention_ms="10001")
    yield _sets("tiered", local_retention_ms="-1")
    yield _sets("tiered", local_retention_ms="-3")
    yield _sets("tiered", retention_ms="999")
    yield _sets("tiered", retention_bytes="1000", local_retention_bytes="1001")
    yield _sets("tiered", retention_bytes="1000", local_retention_bytes="-1")
    yield _sets("tiered", retention_bytes="1000", local_retention_bytes="1000")
    yield _sets("tiered", remote_log_copy_disable="true")
    yield _sets("tiered", remote_log_copy_disable="true", local_retention_ms="10000")
    yield _sets("tiered", remote_log_copy_disable="true", local_retention_ms="-2", local_retention_bytes="-2")
    yield _sets("tiered", local_retention_ms="500")
    yield _sets("tiered", remote_log_copy_disable="false", local_retention_ms="500")
    yield _sets("tiered", remote_storage_enable="false")
    yield _sets("tiered", remote_storage_enable=None)
    yield replacing({"resource_type": TOPIC, "resource_name": "tiered", "configs": []})
    yield _sets("tiered", remote_storage_enable="false", remote_log_delete_on_disable="true")
    yield _sets("tiered", remote_storage_enable="true")
    yield _sets("plain", remote_storage_enable="perhaps")
    yield _sets("plain", remote_storage_enable="true")
    yield _sets("plain", remote_storage_enable="false")
    for name, value in BROKER_CHANGES:
        for node in ("1", ""):
            yield incremental(change(BROKER, node, (name, SET, value)))
            yield incremental(change(BROKER, node, (name, DELETE, None)))
    names = [REMOTE, COPY_OFF, DELETE_OFF, LOCAL_MS, LOCAL_BYTES]
    yield describe((TOPIC, "tiered", names), (TOPIC, "read-only", names), (TOPIC, "flags", names))


REFUSED_TOPICS: tuple[Mapping[str, str], ...] = (
    {REMOTE: "true", "cleanup.policy": "compact"},
    {REMOTE: "true", "cleanup.policy": "compact,delete"},
    {REMOTE: "true", "retention.ms": "1000", LOCAL_MS: "1001"},
    {REMOTE: "true", "retention.ms": "1000", LOCAL_MS: "-1"},
    {REMOTE: "true", "retention.bytes": "1000", LOCAL_BYTES: "1001"},
    {REMOTE: "true", "retention.bytes": "1000", LOCAL_BYTES: "-1"},
    {REMOTE: "true", "retention.bytes": "1000", LOCAL_BYTES: "-3"},
    {REMOTE: "true", "retention.bytes": "1000", LOCAL_MS: "x"},
    {REMOTE: "true", COPY_OFF: "true", "retention.ms": "1000", LOCAL_MS: "500"},
    {REMOTE: "true", COPY_OFF: "true", "retention.bytes": "1000", LOCAL_BYTES: "500"},
)

BROKER_CHANGES = (
    ("log.local.retention.ms", "700000000"),
    ("log.local.retention.ms", "-1"),
    ("log.local.retention.ms", "-3"),
    ("log.local.retention.bytes", "-1"),
    ("log.local.retention.bytes", "1000"),
    ("remote.log.manager.copier.thread.pool.size", "30"),
    ("remote.log.manager.copier.thread.pool.size", "4"),
    ("remote.log.manager.copier.thread.pool.size", "5"),
    ("remote.log.manager.expiration.thread.pool.size", "30"),
    ("remote.log.manager.follower.thread.pool.size", "5"),
    ("remote.log.reader.threads", "30"),
    ("remote.log.reader.threads", "0"),
    ("remote.log.manager.copy.max.bytes.per.second", "0"),
    ("remote.log.manager.copy.max.bytes.per.second", "1000000"),
    ("remote.log.manager.fetch.max.bytes.per.second", "-1"),
    ("remote.log.index.file.cache.total.size.bytes", "0"),
    ("remote.log.index.file.cache.total.size.bytes", "1000"),
    ("remote.fetch.max.wait.ms", "0"),
    ("remote.fetch.max.wait.ms", "600"),
    ("remote.list.offsets.request.timeout.ms", "0"),
    ("remote.log.manager.task.interval.ms", "1000"),
    ("remote.log.storage.system.enable", "false"),
)

REFUSED_AT_START: tuple[Mapping[str, str | None], ...] = (
    {"remote.log.metadata.manager.listener.name": None},
    {"remote.log.metadata.manager.listener.name": "OTHER"},
    {"remote.log.storage.manager.class.name": None},
    {"remote.log.storage.manager.class.name": "org.example.None"},
    {"log.retention.ms": "1000", "log.local.retention.ms": "1001"},
    {"log.retention.bytes": "1000", "log.local.retention.bytes": "1001"},
    {"log.cleanup.policy": "compact"},
    {"remote.log.manager.task.interval.ms": "0"},
)
"""Properties on top of those that work; None takes one away. Kafka starts with some of them all the same."""

RECORDS = 100
"""Of the topic whose offsets are asked for; each is a batch of some 1,070 bytes, at OFFSETS_FROM_MS + 1,000 an offset.
"""
OFFSETS_FROM_MS = 1_700_000_000_000
OFFSETS_TOPIC_CONFIGS = {
    REMOTE: "true", "internal.segment.bytes": "16384", "retention.ms": "-1", LOCAL_MS: "-2",
    LOCAL_BYTES: "20000", "file.delete.delay.ms": "100", "index.interval.bytes": "1024",
    "segment.index.bytes": "4096",
}  # fmt: skip


def list_offsets(topic: str, timestamp: int, versions: tuple[int, ...]) -> Step:
    """The offset for a timestamp, in partition 0."""
    partition = {
        "partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp, "max_num_offsets": 5,
    }  # fmt: skip
    topics = [{"name": topic, "partitions": [partition]}]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": 30_000}
    return LIST_OFFSETS, versions, fields


def offset_for_leader_epoch(topic: str, epoch: int) -> Step:
    """Where an epoch ended, in partition 0."""
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
    return OFFSET_FOR_LEADER_EPOCH, (4,), {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]}


def offset_steps() -> Iterator[Step]:
    """Questions about the offsets of a topic whose records are remote and local, of one that is empty, of
    one that has nothing to copy yet, and of one that is not tiered."""
    for topic, timestamp in itertools.product(("offsets", "empty", "pending", "local"), range(-1, -8, -1)):
        yield list_offsets(topic, timestamp, (7, 9, 11))
    for record in (-1, 0, 1, 14, 15, 16, 50, 77, 84, 85, RECORDS - 1, RECORDS):
        yield list_offsets("offsets", OFFSETS_FROM_MS + 1000 * record, (11,))
        yield list_offsets("offsets", OFFSETS_FROM_MS + 1000 * record - 500, (1,))
    for epoch in (-1, 0, 1):
        yield offset_for_leader_epoch("offsets", epoch)


def delete_records(topic: str, offset: int) -> Step:
    """Let partition 0 begin at `offset`."""
    partitions = [{"partition_index": 0, "offset": offset}]
    return DELETE_RECORDS, (2,), {"topics": [{"name": topic, "partitions": partitions}], "timeout": 30_000}
