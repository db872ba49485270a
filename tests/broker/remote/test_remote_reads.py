"""Remote reads, restored logs, and remote segments of changed topics, without a broker process."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.remote import remote_log_reader
from kafkalog_broker.remote.remote_log_metadata_cache import COPY_FINISHED, DELETE_STARTED
from kafkalog_broker.remote.remote_log_reader import RemoteLogReader
from kafkalog_broker.runtime.byte_budget import ByteBudget, Lease
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from tests.broker.remote.helpers.remote_logs import SEGMENT, TOPIC, Killed, RemoteLogs, begun
from tests.broker.storage.helpers.stored_logs import NOW


async def read_ranges(logs: RemoteLogs, most: int) -> None:
    log = logs.broker.log("orders")
    assert log.local_log_start_offset > 40
    for begin in (0, 1, 6, 7, 20, log.local_log_start_offset - 1):
        assert await logs.offsets(begin=begin, most=most) == list(range(begin, 60))


def test_remote_read_at_any_offset_and_limit_returns_the_records(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        for most in (1, 600, 1500, SEGMENT, 1 << 20):
            await read_ranges(logs, most)
        log = logs.broker.log("orders")
        read = await logs.manager.reads.read(log, 3, 10, at_least_one=False, committed=True)
        assert read is not None
        assert (read.records, read.next_offset, read.aborted) == (b"", 3, [])
        log.delete_records(10)
        with pytest.raises(BrokerError) as refused:
            await logs.manager.reads.read(log, 3, 10, at_least_one=True, committed=False)
        assert refused.value.code is ErrorCode.offset_out_of_range
        await logs.stop()

    asyncio.run(run())


def test_remote_read_reserves_memory_from_its_start_until_its_records_are_released(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        log, manager = logs.broker.log("orders"), logs.manager
        budget = manager.reads.memory = ByteBudget(100_000)
        leases: list[Lease] = []

        async def read(most: int = 30_000) -> int | None:
            found = await manager.reads.read(log, 0, most, at_least_one=True, committed=False, hold=leases.append)
            return None if found is None else len(found.records)

        size = await read()
        assert size
        assert [lease.size for lease in leases] == [size] == [budget.used]
        leases[0].resize(90_000)  # as if it were larger
        waiting = asyncio.create_task(read())
        await asyncio.sleep(0)
        assert budget.has_waiting
        leases[0].release()
        assert await waiting == size
        logs.broker.config = replace(logs.broker.config, remote_fetch_max_wait_ms=1)
        leases[1].resize(90_000)
        assert await read() is None, "its time was over"
        leases[1].release()
        assert budget.used == 0
        await logs.stop()

    asyncio.run(run())


def test_failed_or_cancelled_remote_read_releases_its_memory_when_it_ends(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        log, budget = logs.broker.log("orders"), logs.manager.reads.memory

        async def read() -> None:
            await logs.manager.reads.read(log, 0, 1000, at_least_one=True, committed=False)

        logs.steps.fails = lambda step: step == "fetch"
        with pytest.raises(BrokerError):
            await read()
        await asyncio.sleep(0)
        assert budget.used == 0
        may_end = threading.Event()
        logs.steps.fails = lambda step: not may_end.wait(60)
        given_up = asyncio.create_task(read())
        while not budget.used:
            await asyncio.sleep(0.001)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert budget.used, "a thread still reads"
        may_end.set()
        while budget.used:
            await asyncio.sleep(0.001)
        await logs.stop()

    asyncio.run(run())


def test_aborted_transactions_are_found_in_remote_and_local_indexes(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        broker = logs.broker
        for producer, control in ((7, ControlType.ABORT), (8, ControlType.COMMIT), (9, ControlType.ABORT)):
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10}
            broker.append("orders", 0, 1, size=500, **fields)
            logs.append(range(10))  # the marker lies in a later segment
            broker.log().append_control(control, producer, 0, 0, NOW)
        logs.append(range(20))
        await logs.settle()
        log = broker.log()
        assert log.local_log_start_offset > 36
        expected = [(7, 0), (9, 24)]
        for begin in range(0, log.local_log_start_offset, 5):
            read = await logs.manager.reads.read(log, begin, 100_000, at_least_one=True, committed=True)
            assert read is not None
            markers = {7: 11, 9: 35}
            assert [(one.producer_id, one.first_offset) for one in read.aborted or ()] == [
                (producer, first)
                for producer, first in expected
                if first < read.next_offset and begin <= markers[producer]
            ]
        await logs.stop()

    asyncio.run(run())


def test_offset_for_timestamp_searches_remote_and_local_segments(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        for number in range(60):
            logs.broker.append("orders", 0, 1, size=500, timestamp=NOW + 10 * number)
        await logs.settle()
        log = logs.broker.log()
        for number in range(60):
            found = await logs.manager.reads.offset_for_timestamp(log, NOW + 10 * number - 5)
            assert found is not None
            assert (found.offset, found.timestamp) == (number, NOW + 10 * number)
        assert await logs.manager.reads.offset_for_timestamp(log, NOW + 1000) is None
        await logs.stop()

    asyncio.run(run())


def retention_between(monkeypatch: pytest.MonkeyPatch, logs: RemoteLogs) -> None:
    """Run local retention after the first search of remote segments, before the search of local ones."""
    original = remote_log_reader.remote_segments
    ends = iter([True])

    def segments(*arguments: Any) -> Iterator[RemoteSegment]:
        yield from original(*arguments)
        if next(ends, False):
            logs.broker.tick(10)

    monkeypatch.setattr(remote_log_reader, "remote_segments", segments)


def test_aborted_transaction_is_found_when_retention_removes_its_local_segment_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data", local_retention_bytes=1)
        logs.append(range(5))
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10}
        logs.broker.append("orders", 0, 1, size=500, **fields)
        logs.append(range(4))
        log = logs.broker.log()
        log.append_control(ControlType.ABORT, 7, 0, 0, NOW)  # in the second segment, which is still active
        await logs.settle()
        logs.append(range(20))
        await logs.settle(retains_local=True)
        before = log.local_log_start_offset
        [remote] = [each for each in logs.manager.metadata.partitions.values() if each.in_state(COPY_FINISHED)]
        retention_between(monkeypatch, logs)
        read = RemoteLogReader(logs.storage).read(log, remote, 5, 1, at_least_one=True, committed=True)
        assert 5 < before < log.local_log_start_offset
        assert [one.producer_id for one in read.aborted or ()] == [7]
        await logs.stop()

    asyncio.run(run())


def test_offset_for_timestamp_is_found_when_retention_removes_its_local_segment_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        for number in range(30):
            logs.broker.append("orders", 0, 1, size=500, timestamp=NOW + 10 * number)
        await logs.settle()
        log = logs.broker.log()
        before = log.local_log_start_offset
        for number in range(30, 60):
            logs.broker.append("orders", 0, 1, size=500, timestamp=NOW + 10 * number)
        await logs.settle(retains_local=True)
        [remote] = [each for each in logs.manager.metadata.partitions.values() if each.in_state(COPY_FINISHED)]
        retention_between(monkeypatch, logs)
        found = RemoteLogReader(logs.storage).offset_for_timestamp(log, remote, NOW + 10 * before)
        assert log.local_log_start_offset > before
        assert found is not None
        assert found.offset == before
        await logs.stop()

    asyncio.run(run())


def test_remote_read_timeout_fails_only_its_fetch(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        logs.broker.config = logs.broker.config.with_dynamic({"remote.fetch.max.wait.ms": "1"}, {})
        answers = threading.Event()
        logs.steps.fails = lambda step: step == "fetch" and not answers.wait(30)
        log = logs.broker.log()
        assert await logs.manager.reads.read(log, 0, 1000, at_least_one=True, committed=False) is None
        answers.set()
        logs.broker.config = logs.broker.config.with_dynamic({"remote.fetch.max.wait.ms": "60000"}, {})
        assert await logs.offsets() == list(range(60))
        logs.steps.fails = lambda step: step == "fetch"
        with pytest.raises(BrokerError) as failed:
            await logs.manager.reads.read(log, 0, 1000, at_least_one=True, committed=False)
        assert failed.value.code is ErrorCode.kafka_storage_error
        assert logs.manager.counts.fetch_errors == 1
        await logs.stop()

    asyncio.run(run())


def test_read_of_a_lost_remote_segment_is_a_non_retriable_error(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        for path in logs.remote_dir.rglob("*.log"):
            path.unlink()
        with pytest.raises(BrokerError) as failed:
            await logs.manager.reads.read(logs.broker.log(), 0, 1000, at_least_one=True, committed=False)
        assert failed.value.code is ErrorCode.unknown_server_error
        await logs.stop()

    asyncio.run(run())


def test_offset_for_timestamp_in_an_unresponsive_storage_ends_at_the_request_timeout(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        answers = threading.Event()
        logs.steps.fails = lambda step: step.startswith("fetch") and not answers.wait(30)
        begin = time.monotonic()
        with pytest.raises(BrokerError) as failed:
            await logs.manager.reads.offset_for_timestamp(logs.broker.log(), 1, timeout_ms=50)
        assert failed.value.code is ErrorCode.request_timed_out
        assert time.monotonic() - begin < 10  # remote.list.offsets.request.timeout.ms is 30 s
        answers.set()
        await logs.stop()

    asyncio.run(run())


def test_cancelled_remote_read_is_removed_from_the_queue(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        limits = {"remote.fetch.max.wait.ms": "10", "remote.log.reader.threads": "1"}
        logs.broker.config = logs.broker.config.with_dynamic(limits, {})
        answers, log = threading.Event(), logs.broker.log()
        logs.steps.fails = lambda step: step.startswith("fetch") and not answers.wait(30)
        for _ in range(5):
            assert await logs.manager.reads.read(log, 0, 1000, at_least_one=True, committed=False) is None
        await asyncio.sleep(0.01)
        assert len(logs.manager.reads._reads) == 1
        answers.set()
        logs.broker.config = logs.broker.config.with_dynamic({"remote.fetch.max.wait.ms": "60000"}, {})
        assert await logs.offsets() == list(range(60))
        await logs.stop()

    asyncio.run(run())


def test_stop_with_an_unresponsive_storage_refuses_reads_and_waits_for_none(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        answers, log = threading.Event(), logs.broker.log()
        logs.steps.fails = lambda step: step.startswith("fetch") and not answers.wait(30)
        waiting = [
            asyncio.create_task(logs.manager.reads.read(log, 0, 1000, at_least_one=True, committed=False))
            for _ in range(20)
        ]
        await asyncio.sleep(0.05)
        begin = time.monotonic()
        logs.manager.begin_stop()
        for read in [*waiting, logs.manager.reads.read(log, 0, 1000, at_least_one=True, committed=False)]:
            with pytest.raises(BrokerError) as failed:
                await read
            assert failed.value.code is ErrorCode.kafka_storage_error
        await logs.stop()
        assert time.monotonic() - begin < 8
        answers.set()

    asyncio.run(run())


def test_stop_while_a_copy_hangs_closes_the_logs_and_the_next_start_copies_again(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        answers = threading.Event()
        logs.steps.fails = lambda step: step == "put LOG" and not answers.wait(30)
        logs.append(range(60))
        await logs.manager.run_due()
        while "put LOG" not in logs.steps.what:
            await asyncio.sleep(0.01)
        begin = time.monotonic()
        await logs.stop()
        assert time.monotonic() - begin < 8
        assert logs.broker.logs.to_recover == []
        answers.set()
        logs.broker.dirs.close()
        logs = RemoteLogs(tmp_path / "data")
        await logs.start()
        await logs.settle()
        assert logs.objects() == logs.finished() != set()
        assert await logs.offsets() == list(range(60))
        await logs.stop()

    asyncio.run(run())


def test_lost_log_directory_is_restored_from_remote_segments(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        producer = {"producer_id": 4, "producer_epoch": 0}
        for number in range(60):
            logs.broker.append("orders", 0, 1, size=500, base_sequence=number, **producer)
        await logs.settle()
        until = logs.broker.log().highest_offset_in_remote_storage + 1
        topic_id = logs.broker.topic().id
        await logs.stop()
        lost = tmp_path / "lost"
        lost.mkdir()
        for path in (tmp_path / "data").glob("__remote_log_metadata-*"):
            shutil.copytree(path, lost / path.name)
        shutil.copytree(tmp_path / "data-remote", tmp_path / "lost-remote")
        for _ in range(2):  # the second time as an ordinary start
            logs = RemoteLogs(lost)
            await logs.start()
            log = logs.broker.log()
            assert (logs.broker.topic().id, log.log_start_offset, log.log_end_offset) == (topic_id, 0, until)
            assert log.config.retention_ms == log.config.retention_bytes == -1
            assert await logs.offsets() == list(range(until))
            assert [entry.start_offset for entry in log.epochs.entries] == [0, until]
            await logs.stop()
        logs = RemoteLogs(lost)
        await logs.start()
        log = logs.broker.log()
        assert {one.id: one.last_sequence for one in log.producer_state.producers()}[4] == until - 1
        logs.broker.append("orders", 0, 1, size=500, base_sequence=until, **producer)  # it goes on
        logs.append(range(40))
        await logs.settle()
        assert await logs.offsets() == list(range(until + 41))
        assert logs.objects() == logs.finished()
        await logs.stop()

    asyncio.run(run())


def test_open_transactions_of_a_restored_log_are_aborted(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10}
        logs.broker.append("orders", 0, 1, size=500, **fields)
        logs.append(range(9))
        logs.broker.log().append_control(ControlType.COMMIT, 7, 0, 0, NOW)
        logs.broker.log().flush()
        await logs.settle()
        assert logs.broker.log().highest_offset_in_remote_storage == 6  # the marker was not copied
        await logs.stop()
        shutil.rmtree(tmp_path / "data" / "orders-0")
        logs = RemoteLogs(tmp_path / "data")
        await logs.start()
        log = logs.broker.log()
        assert log.log_end_offset == log.last_stable_offset == 8
        read = await logs.manager.reads.read(log, 0, 100_000, at_least_one=True, committed=True)
        assert read is not None
        assert [(one.producer_id, one.first_offset) for one in read.aborted or ()] == [(7, 0)]
        await logs.stop()

    asyncio.run(run())


def test_topic_with_remote_storage_disabled_has_no_remote_segments_left(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        broker, log = logs.broker, logs.broker.log()
        first_local = log.local_log_start_offset
        changed = {**broker.topic().configs, "remote.storage.enable": "false"}
        broker.topics.set_all_configs({"orders": changed})
        broker.logs.update_topic_config("orders")
        await logs.settle()
        assert logs.objects() != set()  # nobody said that they may go
        broker.topics.set_all_configs({"orders": {**changed, "remote.log.delete.on.disable": "true"}})
        broker.logs.update_topic_config("orders")
        logs.manager.topic_changed(broker.topic())
        await logs.settle()
        assert logs.objects() == set()
        assert log.log_start_offset == first_local > 40
        assert await logs.offsets() == list(range(first_local, 60))
        await logs.stop()

    asyncio.run(run())


def test_topic_with_remote_storage_enabled_again_is_copied_again(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data", local_retention_bytes=4 * SEGMENT)
        logs.append(range(60))
        await logs.settle()
        broker, before = logs.broker, logs.broker.topic().configs
        first_local = broker.log().local_log_start_offset
        away = {**before, "remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        broker.topics.set_all_configs({"orders": away})
        broker.logs.update_topic_config("orders")
        logs.manager.topic_changed(broker.topic())
        await logs.idle()
        assert logs.objects() == set()
        broker.topics.set_all_configs({"orders": {**before, "local.retention.bytes": str(SEGMENT)}})
        await logs.stop()
        logs = RemoteLogs(tmp_path / "data")  # it knows no more than what the metadata says
        await logs.start()
        await logs.settle()
        assert logs.broker.log().local_log_start_offset > first_local
        assert await logs.offsets() == list(range(first_local, 60))
        await logs.stop()

    asyncio.run(run())


@pytest.mark.parametrize("comes_back", [False, True])
def test_kill_while_remote_storage_is_disabled_leaves_no_remote_segment(tmp_path: Path, comes_back: bool) -> None:
    """The deletion goes on after the start. A topic that has come back begins where it has begun since it left."""

    async def left(directory: Path, kill_after: int) -> tuple[int, bool]:
        logs = await begun(directory)
        logs.append(range(60))
        await logs.settle()
        before, first_local = logs.broker.topic().configs, logs.broker.log().local_log_start_offset
        away = {**before, "remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        logs.broker.topics.set_all_configs({"orders": away})
        logs.broker.logs.update_topic_config("orders")
        steps = len(logs.steps.what)
        logs.steps.kill_at = steps + kill_after
        logs.manager.topic_changed(logs.broker.topic())
        with contextlib.suppress(Killed):
            await logs.idle()
        taken = len(logs.steps.what) - steps
        await logs.kill()
        if comes_back:  # before the kill
            logs.broker.topics.set_all_configs({"orders": before})
        logs = RemoteLogs(directory)
        await logs.start()
        await logs.settle()
        log = logs.broker.log()
        start = log.log_start_offset
        assert start == first_local or (comes_back and start == 0), kill_after  # or nothing was to go yet
        assert log.epochs.entries[0].start_offset == start, kill_after
        assert await logs.offsets() == list(range(start, 60)), kill_after
        assert logs.objects() == logs.finished()
        if not comes_back:
            assert logs.objects() == set(), kill_after
        await logs.stop()
        return taken, start == first_local

    steps, _ = asyncio.run(left(tmp_path / "whole", 1 << 20))
    assert steps > 5
    has_left = [asyncio.run(left(tmp_path / f"killed-{number}", number))[1] for number in range(0, steps, 4)]
    assert all(has_left[1:])


def test_running_copy_is_kept_when_the_log_object_is_replaced(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        goes_on, begun_to_put = threading.Event(), threading.Event()

        def waits(step: str) -> bool:
            if step == "put LOG" and not goes_on.is_set():
                begun_to_put.set()
                goes_on.wait(30)
            return False

        logs.steps.fails = waits
        logs.append(range(60))
        await logs.manager.run_due()
        assert await asyncio.to_thread(begun_to_put.wait, 30)
        (partition,) = logs.manager.partitions.values()
        partition.log = None  # as after a move to another directory: the present one is found anew
        await logs.manager.run_due()
        goes_on.set()
        await logs.settle()
        assert logs.steps.what.count("objects to delete") == 0
        assert logs.objects() == logs.finished() != set()
        await logs.stop()

    asyncio.run(run())


def test_segment_with_deleted_first_records_is_copied_whole(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        logs.broker.log().delete_records(10)
        await logs.settle()
        assert await logs.offsets() == list(range(10, 60))
        await logs.stop()

    asyncio.run(run())
    assert not check_log_dirs([tmp_path / "data-remote"]).findings.kept


def test_total_retention_of_remote_segments_advances_the_log_start_offset(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data", retention_ms=100_000, local_retention_ms=-2)
        for number in range(60):
            logs.broker.append("orders", 0, 1, size=500, timestamp=NOW + 1000 * number)
        await logs.settle()
        assert logs.broker.log().log_start_offset == 0
        logs.broker.clock.set(NOW + 130_000)
        await logs.settle()
        log = logs.broker.log()
        assert log.log_start_offset == 28  # segments have 7 records; that of offsets 28 to 34 is new enough
        assert await logs.offsets() == list(range(log.log_start_offset, 60))
        assert logs.objects() == logs.finished() != set()
        await logs.stop()

    asyncio.run(run())


def test_recreated_topic_does_not_read_remote_segments_of_its_predecessor(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        broker, old = logs.broker, logs.broker.topic()
        broker.topics.delete_all(["orders"])
        removal = broker.logs.detach_topic(old)
        logs.steps.fails = lambda step: step.startswith("objects")  # the store is away
        (partition,) = logs.manager.partitions.values()
        await logs.manager.delete_topic_segments(old)
        removal.finish()
        broker.create("orders", 1, **TOPIC)
        logs.append(range(30))
        await logs.settle()
        assert await logs.offsets() == list(range(30))
        waiting = partition.remote.in_state(DELETE_STARTED)
        assert partition.delete_lag == (len(waiting), sum(segment.size for segment in waiting))
        assert partition.delete_lag[0] > 5
        logs.steps.fails = lambda step: False
        await logs.settle()
        assert partition.delete_lag == (0, 0)
        assert logs.objects() == logs.finished()
        assert list(logs.manager.metadata.partitions) == [(broker.topic().id, 0)]  # of the other one nothing is kept
        assert await logs.offsets() == list(range(30))
        await logs.stop()

    asyncio.run(run())
