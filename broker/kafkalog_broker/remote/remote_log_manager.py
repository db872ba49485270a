"""Remote storage of this broker: the partitions that use it, and when their segments are copied and deleted.

Corresponds to Kafka's `RemoteLogManager`. Called from the event loop. Copies, deletions and reads have separate
threads, so they do not wait for each other, and no other work waits for them.
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
from kafkalog_broker.remote.remote_services import RemoteServices
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
from kafkalog_spark.log.tiered.remote_log_events import PartitionDeleteState
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition

_log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 2.0
"""Seconds for which a stop waits for copies and deletions, before the logs are closed."""
THREAD_NAMES = "kafkalog-remote-"
"""Prefix of the names of all threads that wait for remote storage."""


class RemoteLogManager:
    """Owns the copier, the expirer and the reads of remote segments.

    Attributes:
        metadata: Events of `__remote_log_metadata`.
        partitions: Partitions with remote storage, by topic ID and number.
        counts: Totals since the start.
        reads: Reads for requests.
    """

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
        """Create the manager; `start` comes next.

        Args:
            config: Returns the current configuration.
            call: Runs a function that waits for a disk on another thread.
            stay_above: Receives the producer IDs of restored logs.
            deleted: IDs of topics whose deletion a crash interrupted.
            jitter: Source of the random part of pauses after failures.
        """
        self._config = config
        self._storage = storage
        self.metadata = metadata
        self._logs = logs
        self._topics = topics
        self._clock = clock
        self._call = call
        self._stay_above = stay_above
        self._deleted = deleted
        self.partitions: dict[tuple[UUID, int], RemotePartition] = {}
        self.counts = RemoteCounts()
        services = RemoteServices(config, storage, metadata, clock, call, self.counts)
        self.reads = RemoteReads(services)
        self._expirer = SegmentExpirer(services, self._forget)
        self._copier = SegmentCopier(
            services,
            after_copy=self._expirer.add,  # the expirer deletes the objects of a failed copy
            random_source=jitter or random.Random(),
        )

    async def start(self, topic: Topic, settle: Callable[[], None] = lambda: None) -> None:
        """Load the remote segments' metadata, and restore logs that end before their remote segments.

        Called before the broker handles requests.

        Args:
            topic: `__remote_log_metadata`.
            settle: Called on another thread when the metadata is loaded and nothing has been changed yet.

        Raises:
            BrokerError, KafkalogError: If the metadata or the location of the segments cannot be used.
        """
        await self._call(self._load, topic, settle)
        for cache in list(self.metadata.partitions.values()):
            if cache.partition.topic_id in self._deleted:
                try:
                    await self.metadata.mark_deleted([cache.partition], PartitionDeleteState.DELETE_PARTITION_MARKED)
                except BrokerError as error:
                    _log.error("remote segments of the deleted topic %s cannot be deleted: %s", cache.partition, error)

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
        """Open a log, and restore it from its remote segments if necessary.

        A log that cannot be restored goes offline, because records must not be appended at a wrong offset. The other
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
            reason = self.metadata.unreadable_reason(log.identity)
            if reason is not None:
                raise KafkalogError(reason)
            remote = self.metadata.partitions.get((topic.id, number))
            if remote is not None:
                restore_lineage(log, remote, self._storage)
                restored = restore_log(log, remote, self._storage, self._clock.now_ms())
                if restored is not None:
                    self._logs.remove_later(restored.removed_files, log.config)
                    self._stay_above(restored.producer_ids)
            self._attach(log)
        except Exception as error:  # noqa: BLE001 - one partition must not keep the broker from serving the others
            known = isinstance(error, KafkalogError | OSError)
            reason = str(error) if known else f"{type(error).__name__}: {error}"
            if log.failure is None:
                log.take_offline(OSError(f"its remote segments cannot be used: {reason}"))
            _log.error(
                "%s is offline until the next start: its remote segments cannot be used: %s",
                log.name, reason, exc_info=None if known else error,
            )  # fmt: skip

    async def run(self) -> None:
        """Check all partitions every remote.log.manager.task.interval.ms, until cancelled."""
        while True:
            await asyncio.sleep(self._config().remote_log_manager_task_interval_ms / 1000)
            try:
                await self.run_due()
            except Exception:  # noqa: BLE001 - the next round may succeed
                _log.exception("the check for segments to copy failed and will be repeated")

    def begin_stop(self) -> None:
        """Refuse reads from now on, cancel waiting ones, and stop retries of requests to the store.

        Called before the network stops, because the network waits for the responses to received requests.
        """
        self._storage.stop_retries()
        self._copier.begin_stop()
        self._expirer.begin_stop()
        self.reads.begin_stop()

    async def stop(self) -> None:
        """Wait until no segment is copied or deleted any more, at most a little longer than STOP_TIMEOUT_S."""
        self.begin_stop()
        until = asyncio.get_running_loop().time() + STOP_TIMEOUT_S
        await asyncio.gather(self._copier.tasks.stop(until), self._expirer.tasks.stop(until))
        self.reads.stop()

    async def wait_until_idle(self) -> None:
        """Return when no segment is being copied or deleted."""
        await self._copier.tasks.wait_until_idle()
        await self._expirer.tasks.wait_until_idle()

    def _attach(self, log: Log) -> RemotePartition:
        """Connect a log with its remote segments, and correct its log start offset.

        A crash may have prevented the checkpoint of the log start offset (Kafka:
        `maybeUpdateLogStartOffsetOnBecomingLeader`). Raises BrokerError.
        """
        key = (log.topic_id, log.partition)
        partition = self.partitions.get(key)
        if partition is not None and partition.log is log:
            return partition
        remote = self.metadata.cache_of(log.identity)
        lineage = log.epochs.entries
        log.highest_offset_in_remote_storage = remote.highest_offset(lineage, log.log_end_offset)
        first = remote.first_offset(lineage)
        begins = log.segments[0].base_offset
        # After a crash the epochs may show a later log start than the checkpoint, because they are truncated first.
        if first is not None or (lineage and _has_epochs(log)):
            begins = max(begins if first is None else min(first, begins), lineage[0].start_offset)
        log.move_log_start(min(begins, log.high_watermark))
        partition = self.partitions.setdefault(key, RemotePartition(remote))
        partition.log = log  # the RemotePartition stays, because copies of an earlier Log object may still run
        return partition

    async def run_due(self) -> None:
        """Queue copies and deletions of all partitions that have, or will have, remote segments."""
        turn = TimeSlice()
        async for topic in turn.spread(self._topics):
            if is_tiered(topic.configs):
                async for number in turn.spread(range(topic.partitions)):
                    self._queue_copy(topic, number)
        async for key, cache in turn.spread(list(self.metadata.partitions.items())):
            if len(cache) or cache.is_deleted:
                partition = self.partitions.setdefault(key, RemotePartition(cache))
                self._find_log(partition)
                self._expirer.add(partition)

    def _find_log(self, partition: RemotePartition) -> None:
        """Open the log of a topic whose remote storage was disabled before the start.

        A crash may have interrupted the deletion of its segments.
        """
        name, topic_id, number = partition.remote.partition
        topic = self._topics.by_id(topic_id)
        if partition.log is not None or topic is None or is_tiered(topic.configs):
            return
        try:
            partition.log = self._logs.get(name, number)
        except BrokerError as error:
            _log.warning("remote segments of %s-%d cannot be deleted: %s", name, number, error)

    def _queue_copy(self, topic: Topic, number: int) -> None:
        try:
            log = self._logs.get(topic.name, number)
            if log is None or log.failure is not None:
                return
            partition = self._attach(log)
        except BrokerError as error:
            _log.warning("%s-%d cannot be copied: %s", topic.name, number, error)
            return
        if partition.update_copy_lag(log):
            self._copier.add(partition)

    def _forget(self, partition: RemotePartition) -> None:
        identity = partition.remote.partition
        self.partitions.pop((identity.topic_id, identity.partition), None)

    def topic_changed(self, topic: Topic) -> None:
        """Apply a changed configuration: its segments may have to be deleted."""
        for number in range(topic.partitions):
            partition = self.partitions.get((topic.id, number))
            if partition is not None:
                self._expirer.add(partition)

    async def delete_topic_segments(self, topic: Topic) -> None:
        """Delete the remote segments of a topic that was deleted from the registry. Raises BrokerError."""
        partitions = [TopicIdPartition(topic.name, topic.id, number) for number in range(topic.partitions)]
        await self.metadata.mark_deleted(partitions, PartitionDeleteState.DELETE_PARTITION_MARKED)
        for number in range(topic.partitions):
            partition = self.partitions.get((topic.id, number))
            if partition is not None:
                partition.log = None
                self._expirer.add(partition)


def _has_epochs(log: Log) -> bool:
    """Return whether the first batch has a leader epoch; the log then has epochs unless its records were deleted."""
    head = log.read_slice(FileSlice(log.segments[0].handle(), 0, RECORDS_AT))
    return len(head) == RECORDS_AT and parse_header(head, 0, 0).leader_epoch >= 0
