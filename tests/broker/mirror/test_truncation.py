"""A mirror syncs the truncation of its log before it fetches the source's records from there on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.mirror.mirrored_topics import CONFIGS
from kafkalog_broker.mirror.partition_mirror import PartitionMirror
from kafkalog_broker.runtime.clock import SystemClock
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.topic import Topic
from kafkalog_spark.format.partition_metadata import new_uuid
from tests.broker.mirror.test_takeover_crashes import Opened, append, batch
from tests.log.helpers.sync_watch import SyncWatch


@pytest.mark.parametrize(("offset", "end"), [(0, 0), (12, 10), (30, 30)], ids=["all", "some", "start-over"])
def test_mirror_syncs_a_truncation_before_the_next_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, end: int
) -> None:
    directory = tmp_path / "mirror"
    opened, workers = Opened(directory), Workers()
    topic = Topic("orders", new_uuid(), 1, CONFIGS)
    opened.topics.create_all([topic])
    opened.logs.create("orders", 0, topic.id, LogConfig.of(opened.config, CONFIGS))
    append(opened, 0, batch(0, 10) + batch(10, 5))
    watch = SyncWatch(monkeypatch)

    async def cut() -> int:
        partition = PartitionMirror(("orders", 0), topic.id, opened.logs, workers, SystemClock())
        if offset == 30:
            await partition.start_over(offset, "a test")
        else:
            await partition.truncate_to(offset, "a test")
        return partition.next_offset

    assert asyncio.run(cut()) == end
    active = f"{30 if offset == 30 else 0:020d}.log"
    assert watch.is_synced(directory / "orders-0" / active)
    assert watch.is_synced(directory / "orders-0")
    workers.shutdown()
    opened.close()


@pytest.mark.parametrize("method", ["truncate_to", "start_over"])
def test_lag_after_a_truncation_is_that_to_the_present_end_of_the_source(tmp_path: Path, method: str) -> None:
    """The source's log may have become shorter: its topic was created again, or its leader election was unclean."""
    opened, workers = Opened(tmp_path / "mirror"), Workers()
    topic = Topic("orders", new_uuid(), 1, CONFIGS)
    opened.topics.create_all([topic])
    opened.logs.create("orders", 0, topic.id, LogConfig.of(opened.config, CONFIGS))
    append(opened, 0, batch(0, 10) + batch(10, 5))
    partition = PartitionMirror(("orders", 0), topic.id, opened.logs, workers, SystemClock())
    partition.update_bounds(1000, 0)
    assert partition.lag == 985
    asyncio.run(getattr(partition, method)(0, "a test"))
    assert partition.lag is None
    partition.update_bounds(20, 0)
    assert partition.lag == 20
    workers.shutdown()
    opened.close()
