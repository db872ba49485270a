"""The share coordinator over a log in memory: writing, loading, fencing, cold snapshots and pruning."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch, Record
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.share.share_coordinator import ShareCoordinator
from kafkalog_broker.share.share_state import UNKNOWN_STATE, SharePartitionKey, StateBatch
from kafkalog_broker.share.share_state_records import SNAPSHOT
from kafkalog_broker.share.share_state_shard import KEYS_PER_STEP
from kafkalog_spark.format.messages.internal import decode_key
from kafkalog_spark.format.names import SHARE_STATE_TOPIC
from kafkalog_spark.log.write.encoded_batch import EncodedRecords
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.manual_clock import ManualClock

TOPIC = UUID(int=7)
KEY = SharePartitionKey("g", TOPIC, 0)
UPDATES = 5


class Topic(CoordinatorLog):
    """__share_group_state in memory, one partition."""

    def __init__(self) -> None:
        self.name = SHARE_STATE_TOPIC
        self.records: list[Record] = []
        self.start = 0
        self.fails: ErrorCode | None = None

    @property
    def partitions(self) -> int:
        return 1

    def owned(self) -> range:
        return range(1)

    def scan(self, partition: int) -> Iterator[CoordinatorBatch]:
        for offset in range(self.start, len(self.records)):
            yield CoordinatorBatch(offset, -1, False, None, [self.records[offset]])

    def append(
        self, partition: int, records: Sequence[Record] | EncodedRecords,
        transaction: ProducerIdAndEpoch | None = None, *, is_awaited: bool = True,
    ) -> int:  # fmt: skip
        assert not isinstance(records, EncodedRecords)
        if self.fails is not None:
            raise BrokerError(self.fails, "no room")
        self.records += records
        return len(self.records) - len(records)

    async def prune(self, partition: int, offset: int) -> None:
        self.start = max(self.start, offset)


@pytest.fixture
def topic() -> Topic:
    return Topic()


def coordinator(topic: Topic, clock: ManualClock | None = None) -> ShareCoordinator:
    config = BrokerConfig.from_properties(
        {"log.dirs": "/data", "share.coordinator.snapshot.update.records.per.snapshot": UPDATES}
    )
    topics: Any = SimpleNamespace(by_id=lambda topic_id: SimpleNamespace(partitions=2) if topic_id == TOPIC else None)
    return ShareCoordinator(config, clock or ManualClock(), topic, topics)


def write(
    one: ShareCoordinator, number: int, key: SharePartitionKey = KEY, *, state_epoch: int = 1, leader_epoch: int = 0
) -> None:
    """Write a state that begins at offset `number`, with one batch."""
    one.write(
        key,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=number,
        delivery_complete_count=0,
        batches=[StateBatch(number, number + 9, 0, 1)],
    )


def kinds(topic: Topic) -> list[int]:
    return [found[0] for key, _ in topic.records if (found := decode_key(SHARE_STATE_TOPIC, key)) is not None]


def test_written_state_is_loaded_after_a_restart(topic: Topic) -> None:
    one = coordinator(topic)
    one.initialize(KEY, 1, 0)
    for number in range(12):
        write(one, number)
        two = coordinator(topic)
        assert two.read(KEY, 0) == one.read(KEY, 0)
        assert two.read(KEY, 0).batches == (StateBatch(number, number + 9, 0, 1),)
    assert kinds(topic) == [0, *[1] * UPDATES, 0, *[1] * UPDATES, 0]


def test_pruning_keeps_the_last_snapshot_and_later_records(topic: Topic) -> None:
    one = coordinator(topic)
    other = SharePartitionKey("g", TOPIC, 1)
    for key in (KEY, other):
        one.initialize(key, 1, 0)
    for number in range(20):
        write(one, number)
    asyncio.run(one.prune())
    assert topic.start == 1  # the other one's snapshot is needed
    one.delete(other)
    asyncio.run(one.prune())
    assert topic.start == max(at for at, kind in enumerate(kinds(topic)[:-1]) if kind == SNAPSHOT)
    again = coordinator(topic)
    assert again.read(KEY, 0) == one.read(KEY, 0)
    assert again.summary(other) == UNKNOWN_STATE


def test_pruning_waits_until_the_superseding_snapshot_is_on_disk(tmp_path: Path) -> None:
    """Or after a power cut the log would end below its start, and the state of all share groups would be gone."""
    with BrokerInProcess(tmp_path / "data", {"share.coordinator.state.topic.num.partitions": "1"}) as broker:
        state_topic = broker.broker.share_coordinator.runtime.log
        broker.run(broker.broker.ensure_internal_topic(SHARE_STATE_TOPIC))
        for number in range(4):
            state_topic.append(0, [(b"key", b"snapshot %d" % number)])
        log = broker.broker.log(SHARE_STATE_TOPIC, 0)
        assert log.recovery_point == 0
        broker.run(state_topic.prune(0, 2))
        assert log.log_start_offset == 2
        assert log.recovery_point > 2


def test_unchanged_share_partitions_are_snapshotted_at_the_interval(topic: Topic) -> None:
    clock = ManualClock()
    one = coordinator(topic, clock)
    other = SharePartitionKey("g", TOPIC, 1)
    for key in (KEY, other):
        one.initialize(key, 1, 5)
    for number in range(10):
        write(one, number)
    clock.advance(300_001)
    list(one.snapshot_cold_if_due())
    asyncio.run(one.prune_if_due())
    assert topic.start > 1
    assert coordinator(topic).read(other, 0).start_offset == 5


def many(topic: Topic, clock: ManualClock) -> tuple[ShareCoordinator, list[SharePartitionKey]]:
    """Share partitions for more than ten steps, which are due to be snapshotted."""
    one = coordinator(topic, clock)
    keys = [SharePartitionKey(f"group {number}", TOPIC, 0) for number in range(10 * KEYS_PER_STEP + 1)]
    for key in keys:
        one.initialize(key, 1, 5)
    clock.advance(300_001)
    return one, keys


def test_cold_snapshots_are_written_in_steps(topic: Topic) -> None:
    one, keys = many(topic, clock := ManualClock())
    written = [len(topic.records)]
    for _ in one.snapshot_cold_if_due():
        written.append(len(topic.records))
    asyncio.run(one.prune_if_due())
    assert len(topic.records) == 2 * len(keys)
    assert max(after - before for before, after in pairwise(written)) == KEYS_PER_STEP
    assert topic.start == len(keys), "what the snapshots supersede is pruned"
    again = coordinator(topic, clock)
    assert {again.read(key, 0).start_offset for key in keys} == {5}
    clock.advance(300_001)
    assert not [len(topic.records) for _ in one.snapshot_cold_if_due() if len(topic.records) != 2 * len(keys)], (
        "nothing has moved since"
    )


def test_changes_between_two_steps_of_cold_snapshots_are_kept(topic: Topic) -> None:
    one, keys = many(topic, clock := ManualClock())
    steps = one.snapshot_cold_if_due()
    while len(topic.records) == len(keys):
        next(steps)
    last, gone = keys[-1], keys[-2]
    clock.advance(1)
    write(one, 9, last)
    one.delete(gone)
    list(steps)
    assert coordinator(topic, clock).read(last, 0).start_offset == 9
    assert coordinator(topic, clock).summary(gone) == UNKNOWN_STATE


def test_cold_snapshots_stop_when_the_partition_is_unloaded(topic: Topic) -> None:
    one, keys = many(topic, ManualClock())
    steps = one.snapshot_cold_if_due()
    while len(topic.records) == len(keys):
        next(steps)
    written = len(topic.records)
    one.runtime.unload(0)
    list(steps)
    assert len(topic.records) == written


def test_state_of_deleted_topics_is_deleted_in_steps(topic: Topic) -> None:
    one, keys = many(topic, ManualClock())
    assert len(list(one.on_topics_deleted([TOPIC]))) == 11
    assert len(topic.records) == 2 * len(keys)
    again = coordinator(topic)
    assert {again.summary(key) for key in keys} == {UNKNOWN_STATE}


def test_older_epochs_are_fenced(topic: Topic) -> None:
    one = coordinator(topic)
    one.initialize(KEY, 1, 0)
    assert one.read(KEY, 3).leader_epoch == 0
    assert coordinator(topic).summary(KEY).leader_epoch == 3
    for ask, code in (
        (lambda: one.read(KEY, 2), ErrorCode.fenced_leader_epoch),
        (lambda: write(one, 0, leader_epoch=2), ErrorCode.fenced_leader_epoch),
        (lambda: write(one, 0, state_epoch=0, leader_epoch=3), ErrorCode.fenced_state_epoch),
        (lambda: one.initialize(KEY, 0, 0), ErrorCode.fenced_state_epoch),
        (lambda: one.initialize(SharePartitionKey("g", TOPIC, 2), 0, 0), ErrorCode.unknown_topic_or_partition),
        (lambda: one.summary(SharePartitionKey("g", UUID(int=8), 0)), ErrorCode.unknown_topic_or_partition),
    ):
        with pytest.raises(BrokerError) as refused:
            ask()
        assert refused.value.code is code


def test_failed_append_leaves_the_state_unchanged(topic: Topic) -> None:
    one = coordinator(topic)
    one.initialize(KEY, 1, 0)
    before = one.read(KEY, 0)
    topic.fails = ErrorCode.kafka_storage_error
    with pytest.raises(BrokerError) as refused:
        write(one, 3)
    assert refused.value.code is ErrorCode.not_coordinator
    topic.fails = None
    assert one.read(KEY, 0) == before == coordinator(topic).read(KEY, 0)


def test_state_of_deleted_topic_is_deleted(topic: Topic) -> None:
    one = coordinator(topic)
    one.initialize(KEY, 1, 0)
    for _ in one.on_topics_deleted({TOPIC}):
        pass
    assert one.summary(KEY) == UNKNOWN_STATE == coordinator(topic).summary(KEY)


def test_damaged_record_is_skipped(topic: Topic) -> None:
    one = coordinator(topic)
    one.initialize(KEY, 1, 0)
    key, value = topic.records[0]
    topic.records.append((key[:-3], value))
    write(one, 1)
    assert coordinator(topic).read(KEY, 0).start_offset == 1
