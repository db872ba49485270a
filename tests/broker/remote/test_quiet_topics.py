"""A tiered topic without new records: its active segment is rolled, copied, removed locally and expires."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from kafkalog_broker.fetching.offset_query import EARLIEST_PENDING_UPLOAD, query_offset
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.names import LOG_SUFFIX
from tests.broker.remote.helpers.remote_logs import Killed, RemoteLogs, Steps, begun
from tests.broker.storage.helpers.cleaned_logs import append_transactional, end_transaction

QUIET = {"local_retention_bytes": -2, "local_retention_ms": 5_000, "retention_ms": 60_000}


async def started_with_records(directory: Path, steps: Steps | None = None, **configs: object) -> RemoteLogs:
    logs = await begun(directory, steps, **{**QUIET, **configs})
    logs.append(range(3))
    return logs


def test_active_segment_beyond_local_retention_is_copied_and_leaves_the_disk(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await started_with_records(tmp_path / "data")
        log = logs.broker.log("orders")
        await logs.settle()
        assert (log.local_log_start_offset, log.highest_offset_in_remote_storage) == (0, -1)
        logs.broker.clock.advance(6_000)
        await logs.settle()
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 3, 3)
        assert log.highest_offset_in_remote_storage == 2
        assert await logs.offsets() == [0, 1, 2]
        assert query_offset(log, EARLIEST_PENDING_UPLOAD, read_committed=False) == (-1, -1, -1)
        logs.append(range(1))
        assert query_offset(log, EARLIEST_PENDING_UPLOAD, read_committed=False) == (-1, 3, 0)
        await logs.stop()

    asyncio.run(run())


@pytest.mark.parametrize("local_ms", [5_000, -2])
def test_active_segment_beyond_retention_expires(tmp_path: Path, local_ms: int) -> None:
    async def run() -> None:
        logs = await started_with_records(tmp_path / "data", local_retention_ms=local_ms)
        log = logs.broker.log("orders")
        logs.broker.clock.advance(61_000)
        await logs.settle()
        await logs.settle()
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (3, 3, 3)
        assert logs.objects() == set()
        logs.append(range(2))
        assert await logs.offsets() == [3, 4]
        await logs.stop()

    asyncio.run(run())


def test_rolled_segment_with_an_open_transaction_is_copied_once_its_records_are_stable(tmp_path: Path) -> None:
    async def run() -> None:
        logs = await started_with_records(tmp_path / "data")
        log = logs.broker.log("orders")
        append_transactional(log, 7, 0, (b"k", b"v"))
        logs.broker.clock.advance(6_000)
        await logs.settle()
        assert (log.local_log_start_offset, log.last_stable_offset, logs.objects()) == (0, 3, set())
        end_transaction(log, 7, ControlType.COMMIT)
        await logs.settle()
        assert (log.local_log_start_offset, log.last_stable_offset) == (5, 5)
        await logs.stop()

    asyncio.run(run())


def test_kill_while_an_idle_topic_is_copied_loses_no_record(tmp_path: Path) -> None:
    async def moved(directory: Path, kill_at: int | None) -> int:
        logs = await started_with_records(directory, Steps(kill_at=kill_at))
        logs.broker.clock.advance(6_000)
        try:
            await logs.settle()
        except Killed:
            pass
        clock, steps = logs.broker.clock, len(logs.steps.what)
        await logs.kill()
        logs = RemoteLogs(directory, clock=clock)
        await logs.start()
        assert await logs.offsets() == [0, 1, 2]
        await logs.settle()
        await logs.settle()
        log = logs.broker.log("orders")
        assert await logs.offsets() == [0, 1, 2]
        assert log.local_log_start_offset == 3
        assert logs.objects() == logs.finished() != set()
        assert [path.name for path in log.directory.glob(f"*{LOG_SUFFIX}")] == [f"{3:020d}{LOG_SUFFIX}"]
        await logs.stop()
        return steps

    steps = asyncio.run(moved(tmp_path / "whole", None))
    for number in random.Random(3).sample(range(steps), 6):
        asyncio.run(moved(tmp_path / f"killed-{number}", number))


def test_segment_with_a_future_timestamp_is_copied_and_deleted_locally_by_file_age(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds up retention.ms until its timestamp has passed, which is reported once."""

    async def run() -> None:
        logs = await started_with_records(tmp_path / "data")
        log, clock = logs.broker.log("orders"), logs.broker.clock
        logs.broker.append("orders", 0, 1, timestamp=clock.now_ms() + 900_000_000_000)
        clock.advance(log.segments[0].modified_ms - clock.now_ms() + 61_000)
        await logs.settle()
        await logs.settle()
        # The records below it, which segment.ms rolled when it came, have expired.
        assert (log.log_start_offset, log.local_log_start_offset) == (3, 4)
        assert [record.getMessage()[:18] for record in caplog.records if "in the future" in record.getMessage()] == [
            "the remote segment"
        ]
        await logs.stop()

    asyncio.run(run())
