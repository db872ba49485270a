"""Remote storage of this broker: which partitions have it, and when they are copied, expired and read (Kafka's
RemoteLogManager).

Used from the event loop. Calls of the store block in threads: those that copy, those that delete and those that read do
not wait for each other, and no other work waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import is_tiered
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataManager
from kafkalog_broker.remote.remote_partition import RemoteCounts, RemotePartition
from kafkalog_broker.remote.remote_reads import RemoteReads
from kafkalog_broker.remote.restore import restore_lineage, restore_log, restore_topics
from kafkalog_broker.remote.segment_copier import SegmentCopier
from kafkalog_broker.remote.segment_expirer import SegmentExpirer
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.file_handles import FileSlice
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.batch_header import parse_header
from kafkalog_spark.format.layout import RECORDS_AT
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.tiered.remote_log_metadata import PartitionDeleteState
from kafkalog_spark.log.tiered.remote_names import TopicIdPartition

_log = logging.getLogger(__name__)

STOP_S = 2.0
"""Seconds for which a stop waits for copies and deletions, before the logs are closed."""
THREAD_NAMES = "kafkalog-remote-"
"""Prefix of the names of all threads that wait for remote storage."""


class RemoteLogManager:
    """config: the broker's, asked anew each time. call: runs something that waits for a disk in a thread. stay_above:
    is given producer ids of logs that were lost. deleted: ids of topics whose deletion a crash has interrupted."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        storage: RemoteStorage,
        metadata: RemoteLogMetadataManager,
        *,
        logs: LogManager,
        topics: TopicRegistry,
        clock: Clock,
        call: Callable[..., Awaitable[Any]],
        stay_above: Callable[[Iterable[int]], None] = lambda ids: None,
        deleted: Collection[UUID] = (),
        jitter: random.Random | None = None,
    ) -> None:
        self._config, self._storage, self.metadata = config, storage, metadata
        self._logs, self._topics, self._clock, self._call = logs, topics, clock, call
        self._stay_above = stay_above
        self._deleted = deleted
        self.partitions: dict[tuple[UUID, int], RemotePartition] = {}
        self.counts = RemoteCounts()
        self.reads = RemoteReads(config, storage, metadata, clock, call, self.counts)
        self._expirer = SegmentExpirer(config, storage, metadata, clock, self.counts, self._forget)
        self._copier = SegmentCopier(
            config, storage, metadata, clock, call, self.counts,
            after_copy=self._expirer.add,  # what a failed copy has left is deleted
            jitter=jitter or random.Random(),
        )  # fmt: skip

    # ---- start and stop

    async def start(self, topic: Topic, settle: Callable[[], None] = lambda: None) -> None:
        """Learn what there is remotely from `topic`, which is `__remote_log_metadata`, and make logs again that end
        before their remote segments. Before the broker serves. settle: called, in a thread, when the remote segments
        are known and nothing was done about them. Raises BrokerError, KafkalogError."""
        await self._call(self._load, topic, settle)
        for cache in list(self.metadata.partitions.values()):
            if cache.partition.topic_id in self._deleted:
                try:
                    await self.metadata.mark_deleted([cache.partition], PartitionDeleteState.DELETE_PARTITION_MARKED)
                except BrokerError as error:
                    _log.error("remote segments of %s, which was deleted, stay: %s", cache.partition, error)

    def _load(self, topic: Topic, settle: Callable[[], None]) -> None:
        self.metadata.load(topic, self._name_of)
        settle()
        restore_topics(self.metadata, self._topics, self._logs, self._deleted)
        for known in self._topics:
            if is_tiered(known.configs):
                for number in range(known.partitions):
                    self._open(known, number)

    def _name_of(self, topic_id: UUID) -> str | None:
        topic = self._topics.by_id(topic_id)
        return None if topic is None else topic.name

    def _open(self, topic: Topic, number: int) -> None:
        """Open a log and restore it from its remote segments where that is necessary.

        A log that cannot be restored goes offline, because it must not be written to from another offset on. The other
        partitions are served.
        """
        try:
            log = self._logs.get(topic.name, number)
        except BrokerError as error:
            _log.error("%s", error)
            return
        if log is None:
            return
        try:
            why = self.metadata.why_unknown(log.identity)
            if why is not None:
                raise KafkalogError(why)
            remote = self.metadata.partitions.get((topic.id, number))
            if remote is not None:
                restore_lineage(log, remote, self._storage)
                gone, producer_ids = restore_log(log, remote, self._storage, self._clock.now_ms())
                self._logs.remove_later(gone, log.config)
                self._stay_above(producer_ids)
            self._adopt(log)
        except Exception as error:  # noqa: BLE001 - one partition must not keep the broker from serving the others
            known = isinstance(error, KafkalogError | OSError)
            reason = str(error) if known else f"{type(error).__name__}: {error}"
            if log.failure is None:
                log.take_offline(OSError(f"its remote segments cannot be taken into account: {reason}"))
            _log.error(
                "%s is offline until the next start: its remote segments cannot be taken into account: %s",
                log.name, reason, exc_info=None if known else error,
            )  # fmt: skip

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._config().remote_log_manager_task_interval_ms / 1000)
            try:
                await self.run_due()
            except Exception:  # noqa: BLE001 - the next round may go well
                _log.exception("looking for segments to copy failed and is tried again")

    def begin_stop(self) -> None:
        """Refuse reads from now on, and cancel those that are waiting; requests to the store are not retried any more.

        Called before the network stops, because the network waits for the responses to the requests it has received.
        """
        self._storage.stop_retries()
        self._copier.begin_stop()
        self._expirer.begin_stop()
        self.reads.begin_stop()

    async def stop(self) -> None:
        """Return when no segment is copied or deleted any more, at most soon after STOP_S."""
        self.begin_stop()
        until = asyncio.get_running_loop().time() + STOP_S
        await asyncio.gather(self._copier.stop(until), self._expirer.stop(until))
        self.reads.stop()

    async def idle(self) -> None:
        """Return when no segment is being copied or deleted."""
        await self._copier.idle()
        await self._expirer.idle()

    # ---- partitions

    def _adopt(self, log: Log) -> RemotePartition:
        """Know a log's remote side from now on, and where the log starts if a crash came before the checkpoint of that
        (maybeUpdateLogStartOffsetOnBecomingLeader). Raises BrokerError."""
        key = (log.topic_id, log.partition)
        partition = self.partitions.get(key)
        if partition is not None and partition.log is log:
            return partition
        remote = self.metadata.of(log.identity)
        lineage = log.epochs.entries
        log.highest_offset_in_remote_storage = remote.highest_offset(lineage, log.log_end_offset)
        first = remote.first_offset(lineage)
        begins = log.segments[0].base_offset
        if first is not None or (lineage and _has_epochs(log)):  # they may be cut further than the checkpoint says
            begins = max(begins if first is None else min(first, begins), lineage[0].start_offset)
        log.move_log_start(min(begins, log.high_watermark))
        partition = self.partitions.setdefault(key, RemotePartition(remote))
        partition.log = log  # what an earlier object of the log began to copy is still being copied
        return partition

    async def run_due(self) -> None:
        """Look at all partitions that have, or are to have, remote segments."""
        turn = TimeSlice()
        async for topic in turn.spread(self._topics):
            if is_tiered(topic.configs):
                async for number in turn.spread(range(topic.partitions)):
                    self._look_at(topic, number)
        async for key, cache in turn.spread(list(self.metadata.partitions.items())):
            if len(cache) or cache.is_deleted:
                partition = self.partitions.setdefault(key, RemotePartition(cache))
                self._find_log(partition)
                self._expirer.add(partition)

    def _find_log(self, partition: RemotePartition) -> None:
        """Find the log of a topic that left remote storage before the start: a crash may have interrupted the deletion
        of its segments."""
        name, topic_id, number = partition.remote.partition
        topic = self._topics.by_id(topic_id)
        if partition.log is not None or topic is None or is_tiered(topic.configs):
            return
        try:
            partition.log = self._logs.get(name, number)
        except BrokerError as error:
            _log.warning("remote segments of %s-%d cannot be deleted: %s", name, number, error)

    def _look_at(self, topic: Topic, number: int) -> None:
        try:
            log = self._logs.get(topic.name, number)
            if log is None or log.failure is not None:
                return
            partition = self._adopt(log)
        except BrokerError as error:
            _log.warning("%s-%d cannot be copied: %s", topic.name, number, error)
            return
        if partition.update_copy_lag(log):
            self._copier.add(partition)

    def _forget(self, partition: RemotePartition) -> None:
        identity = partition.remote.partition
        self.partitions.pop((identity.topic_id, identity.partition), None)

    def topic_changed(self, topic: Topic) -> None:
        for number in range(topic.partitions):
            partition = self.partitions.get((topic.id, number))
            if partition is not None:
                self._expirer.add(partition)

    async def topic_deleted(self, topic: Topic) -> None:
        """A topic is gone from the registry: so are its remote segments."""
        partitions = [TopicIdPartition(topic.name, topic.id, number) for number in range(topic.partitions)]
        await self.metadata.mark_deleted(partitions, PartitionDeleteState.DELETE_PARTITION_MARKED)
        for number in range(topic.partitions):
            partition = self.partitions.get((topic.id, number))
            if partition is not None:
                partition.log = None
                self._expirer.add(partition)


def _has_epochs(log: Log) -> bool:
    """True if the first batch was written in a leader epoch: then that is known unless its records were deleted."""
    head = log.read_slice(FileSlice(log.segments[0].handle(), 0, RECORDS_AT))
    return len(head) == RECORDS_AT and parse_header(head, 0, 0).leader_epoch >= 0
