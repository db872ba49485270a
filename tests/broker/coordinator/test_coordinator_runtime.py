"""Operations on a shard: what a commit changes, and what it leaves unchanged when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.coordinator.coordinator_result import CoordinatorResult
from kafkalog_broker.coordinator.coordinator_runtime import CoordinatorRuntime
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.write.encoded_batch import EncodedRecords
from tests.broker.groups.helpers.virtual_time import MemoryLog
from tests.broker.manual_clock import ManualClock


class Names:
    """A shard that holds the set of names in its records."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def encode(self, record: str) -> Record:
        if len(record) > 10:
            raise BrokerError(ErrorCode.unknown_server_error, "too long")
        return record.encode(), b""

    def replay(self, offset: int, record: str) -> None:
        self.names.add(record)


def load(batches: Iterable[CoordinatorBatch]) -> set[str]:
    return {key.decode() for batch in batches for key, _ in batch.records}


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(ManualClock())


@pytest.fixture
def runtime(log: MemoryLog) -> CoordinatorRuntime[set[str], Names]:
    return CoordinatorRuntime(log, load, lambda partition, loaded: Names(loaded))


def test_run_appends_replays_and_then_calls_on_commit(
    runtime: CoordinatorRuntime[set[str], Names], log: MemoryLog
) -> None:
    seen: list[set[str]] = []

    def operation(shard: Names) -> CoordinatorResult[str, int]:
        return CoordinatorResult(["a", "b"], 7, [lambda: seen.append(set(shard.names))])

    assert runtime.run(0, operation) == 7
    assert seen == [{"a", "b"}]
    assert [key for key, _ in log.records()] == [b"a", b"b"]
    runtime.unload(0)
    assert runtime.get(0).names == {"a", "b"}


def test_run_changes_nothing_when_the_append_fails(
    runtime: CoordinatorRuntime[set[str], Names], log: MemoryLog
) -> None:
    log.failure = ErrorCode.kafka_storage_error
    called: list[bool] = []
    with pytest.raises(BrokerError) as refused:
        runtime.run(0, lambda shard: CoordinatorResult(["a"], None, [lambda: called.append(True)]))
    assert refused.value.code is ErrorCode.not_coordinator
    assert (runtime.get(0).names, called) == (set(), [])


def test_run_appends_nothing_when_a_record_cannot_be_encoded(
    runtime: CoordinatorRuntime[set[str], Names], log: MemoryLog
) -> None:
    with pytest.raises(BrokerError):
        runtime.run(0, lambda shard: CoordinatorResult(["a", "a" * 11], None))
    assert (log.records(), runtime.get(0).names) == ([], set())


def test_commit_of_encoded_records_appends_without_replay(
    runtime: CoordinatorRuntime[set[str], Names], log: MemoryLog
) -> None:
    records = EncodedRecords()
    records.add(b"a", b"")
    runtime.run(0, lambda shard: CoordinatorResult(records, None))
    assert ([key for key, _ in log.records()], runtime.get(0).names) == ([b"a"], set())


def test_commit_after_the_partition_was_unloaded_is_refused(runtime: CoordinatorRuntime[set[str], Names]) -> None:
    runtime.get(0)
    runtime.unload(0)
    with pytest.raises(BrokerError) as refused:
        runtime.commit(0, CoordinatorResult(["a"], None))
    assert refused.value.code is ErrorCode.not_coordinator


def test_damaged_partition_is_read_once_and_answers_not_coordinator(log: MemoryLog) -> None:
    reads: list[int] = []

    def damaged(batches: Iterable[CoordinatorBatch]) -> set[str]:
        reads.append(1)
        raise CorruptBatch("the CRC is wrong", offset=7)

    runtime = CoordinatorRuntime(log, damaged, lambda partition, loaded: Names(loaded))
    for _ in range(3):
        with pytest.raises(BrokerError, match="the CRC is wrong") as refused:
            runtime.get(0)
        assert refused.value.code is ErrorCode.not_coordinator
    assert runtime.all_shards() == []
    assert len(reads) == 1


def test_damaged_partition_is_read_again_after_it_was_unloaded(log: MemoryLog) -> None:
    damage = [CorruptBatch("the CRC is wrong")]

    def load_once_damaged(batches: Iterable[CoordinatorBatch]) -> set[str]:
        if damage:
            raise damage.pop()
        return load(batches)

    runtime = CoordinatorRuntime(log, load_once_damaged, lambda partition, loaded: Names(loaded))
    with pytest.raises(BrokerError):
        runtime.get(0)
    runtime.unload(0)
    assert runtime.get(0).names == set()


def test_first_listing_with_a_damaged_partition_has_the_other_partitions() -> None:
    log = MemoryLog(ManualClock(), partitions=2)
    log.append(0, [(b"a", b"")])

    def load_partition_0(batches: Iterable[CoordinatorBatch]) -> set[str]:
        names = load(batches)
        if not names:
            raise CorruptBatch("the CRC is wrong")
        return names

    runtime = CoordinatorRuntime(log, load_partition_0, lambda partition, loaded: Names(loaded))
    assert [shard.names for shard in runtime.all_shards()] == [{"a"}]


def test_partition_is_loaded_again_if_its_topic_was_deleted_while_it_was_loading(
    runtime: CoordinatorRuntime[set[str], Names], log: MemoryLog
) -> None:
    runtime.run(0, lambda shard: CoordinatorResult(["deleted"], None))
    runtime.unload_all()
    runtime.begin_loading([0])

    async def run_blocking(read: Callable[[int], set[str]], partition: int) -> set[str]:
        loaded = read(partition)
        log.batches.clear()
        runtime.unload_all()
        return loaded

    asyncio.run(runtime.load_owned(run_blocking, "names"))
    assert runtime.get(0).names == set()
