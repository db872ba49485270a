"""Logs with remote storage in this process, with kills at chosen steps and injected storage errors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from kafkalog_broker.remote.remote_log_manager import RemoteLogManager
from kafkalog_broker.remote.remote_log_metadata_cache import COPY_FINISHED
from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataManager
from kafkalog_spark.errors import RemoteStorageError
from kafkalog_spark.format.names import REMOTE_LOG_METADATA_TOPIC
from kafkalog_spark.format.records import read_records
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.remote.remote_storage_options import RemoteStorageOptions
from kafkalog_spark.log.write.encoded_batch import split_batches
from tests.broker.remote.helpers.tiered_broker import LOCAL_TIERED
from tests.broker.storage.helpers.managed_logs import Started, started

SEGMENT = 4096
TOPIC = {
    "remote_storage_enable": "true", "internal_segment_bytes": SEGMENT, "local_retention_bytes": SEGMENT,
    "index_interval_bytes": 512, "retention_ms": -1, "file_delete_delay_ms": 0,
}  # fmt: skip


class Killed(BaseException):
    """Raised at the step of a kill, so that no further step runs."""


class Steps:
    """What happens at each step: nothing, a kill from one on, or faults. what: the steps so far, by name."""

    def __init__(self, kill_at: int | None = None, fails: Callable[[str], bool] = lambda step: False) -> None:
        self.kill_at, self.fails = kill_at, fails
        self.what: list[str] = []

    def at(self, step: str) -> None:
        self.what.append(step)
        if self.kill_at is not None and len(self.what) > self.kill_at:
            raise Killed(step)
        if self.fails(step):
            raise RemoteStorageError(f"a fault at {step}")


class FaultyStorage(RemoteStorage):
    def __init__(self, options: RemoteStorageOptions, steps: Steps) -> None:
        super().__init__(options)
        self.steps = steps

    def _remove(self, segment: Any) -> None:
        self.steps.at("objects to delete")
        super()._remove(segment)
        self.steps.at("objects deleted")

    def _put(self, segment: Any, file: Any, *rest: Any) -> int:
        self.steps.at(f"put {file.name}")
        written = super()._put(segment, file, *rest)
        self.steps.at(f"put {file.name} done")
        return written

    def fetch(self, *arguments: Any) -> bytes:
        self.steps.at("fetch")
        return super().fetch(*arguments)

    def fetch_index(self, *arguments: Any) -> bytes:
        self.steps.at("fetch index")
        return super().fetch_index(*arguments)


class WatchedMetadata(RemoteLogMetadataManager):
    steps: Steps

    async def _append(self, partition: Any, events: Any) -> None:
        self.steps.at("append")
        await super()._append(partition, events)
        self.steps.at("appended")


class RemoteLogs:
    """Logs over `directory`, remote segments in `directory`-remote. Use `run` for what takes an event loop.
    properties: besides those of LocalTieredStorage, or instead of them."""

    def __init__(
        self, directory: Path, steps: Steps | None = None, clock: Any = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.directory = directory
        self.remote_dir = directory.with_name(directory.name + "-remote")
        place = "rsm.config.storage.root" if properties else "rsm.config.dir"
        properties = {
            "remote.log.storage.system.enable": "true", place: str(self.remote_dir),
            "remote.log.storage.manager.class.name": LOCAL_TIERED, "log.retention.check.interval.ms": "1",
            "remote.log.manager.task.retry.backoff.ms": "1", "remote.log.manager.task.retry.backoff.max.ms": "1",
            "remote.fetch.max.wait.ms": "60000", **(properties or {}),
        }  # fmt: skip
        self.steps = steps or Steps()
        self.broker: Started = started(directory, properties=properties, clock=clock)
        if self.broker.topics.get(REMOTE_LOG_METADATA_TOPIC) is None:
            self.broker.create(REMOTE_LOG_METADATA_TOPIC, 2, retention_ms=-1)
        self.storage = FaultyStorage(RemoteStorageOptions.of(properties), self.steps)
        self.storage.mark()
        self.manager: RemoteLogManager
        self.deleted: frozenset[UUID] = frozenset()

    async def start(self) -> None:
        broker = self.broker

        async def call(function: Callable[..., Any], *arguments: Any) -> Any:
            return await asyncio.to_thread(function, *arguments)

        metadata = WatchedMetadata(1, broker.clock, broker.log, call)
        metadata.steps = self.steps
        self.manager = RemoteLogManager(
            lambda: broker.config, self.storage, metadata, logs=broker.logs, topics=broker.topics, clock=broker.clock,
            call=call, deleted=self.deleted, jitter=random.Random(1),
        )  # fmt: skip
        await self.manager.start(broker.topic(REMOTE_LOG_METADATA_TOPIC))

    async def idle(self) -> None:
        """Wait until no copy or deletion is running."""
        await self.manager.wait_until_idle()

    async def settle(self, *, retains_local: bool = False) -> None:
        """Run copies, deletions and, unless `retains_local`, local retention until none is due."""
        for _ in range(6):
            self.broker.clock.advance(10)
            await self.manager.run_due()
            await self.idle()
            if not retains_local:
                self.broker.tick(10)

    def append(self, numbers: range, topic: str = "orders") -> None:
        for _ in numbers:
            self.broker.append(topic, 0, 1, size=500)

    async def offsets(self, topic: str = "orders", begin: int | None = None, most: int = 1500) -> list[int]:
        """Offsets of all records from the log's start on, remote and local ones, as a consumer reads them."""
        log = self.broker.log(topic)
        offset, found = log.log_start_offset if begin is None else begin, []
        while offset < log.high_watermark:
            if offset < log.local_log_start_offset:
                read = await self.manager.reads.read(log, offset, most, at_least_one=True, committed=False)
                assert read is not None
                chunks, following = [read.records], read.next_offset
            else:
                chunks, following = log.read_range(offset, most, up_to=log.high_watermark, at_least_one=True)
            found += [number for chunk in chunks for number in offsets_in(chunk)]
            assert following > offset
            offset = following
        return found

    def objects(self) -> set[str]:
        """Return base offsets and IDs of all segments with a file in remote storage."""
        return {path.name[:43] for path in self.remote_dir.rglob("*-*.*") if path.is_file()}

    def finished(self) -> set[str]:
        """Base offsets and IDs of all segments whose copy is finished according to the metadata."""
        return {
            segment.name
            for cache in self.manager.metadata.partitions.values()
            for segment in cache.in_state(COPY_FINISHED)
        }

    async def kill(self) -> None:
        """Stop without a clean shutdown; the next RemoteLogs over the directory recovers its files."""
        self.steps.kill_at = -1
        await self.idle()
        self.broker.crash()

    async def stop(self) -> None:
        await self.manager.stop()
        self.storage.close()
        self.broker.logs.shutdown()


async def begun(directory: Path, steps: Steps | None = None, **configs: object) -> RemoteLogs:
    """Started logs with the topic `orders`, without records. configs: besides those of TOPIC, or instead of them."""
    logs = RemoteLogs(directory, steps)
    logs.broker.create("orders", 1, **{**TOPIC, **configs})
    await logs.start()
    return logs


def offsets_in(chunk: bytes) -> Iterator[int]:
    for data, header in split_batches(chunk):
        count = sum(1 for _ in read_records(memoryview(data)[61:], header.record_count, header.base_timestamp))
        yield from range(header.base_offset, header.base_offset + count)
