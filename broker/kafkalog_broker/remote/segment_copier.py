"""Copying of closed segments to remote storage, with a quota, and pauses after failures (Kafka's `RLMCopyTask`)."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from kafkalog_broker.remote.copy_candidates import prepare_copy, segments_to_copy
from kafkalog_broker.remote.partition_tasks import PartitionTasks
from kafkalog_broker.remote.remote_log_metadata_cache import COPY_FINISHED
from kafkalog_broker.remote.remote_partition import RemotePartition
from kafkalog_broker.remote.remote_quota import RemoteQuota
from kafkalog_broker.remote.remote_services import RemoteServices
from kafkalog_spark.errors import KafkalogError, RemoteStorageError
from kafkalog_spark.log.remote.segment_upload import LogSegmentData
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment

_log = logging.getLogger(__name__)

_QUOTA_CHECK_S = 0.05
"""Interval at which a copy that waits for the quota checks the quota, and whether the broker is stopping."""


class _CustomMetadataTooLarge(RemoteStorageError):
    """The custom metadata of a copy is longer than remote.log.metadata.custom.metadata.max.bytes.

    Kafka: `CustomMetadataSizeLimitExceededException`.
    """


class SegmentCopier:
    """Copies the segments of partitions in the background. Used from the event loop; files are read in threads.

    Attributes:
        tasks: Waiting and running copies.
    """

    def __init__(
        self, services: RemoteServices, after_copy: Callable[[RemotePartition], None], random_source: random.Random
    ) -> None:
        """Create the copier.

        Args:
            after_copy: Called after each round of copies of a partition, even a failed one.
            random_source: Source of the random part of the pauses after failures.
        """
        self._current_config, self._storage, self._metadata = services.config, services.storage, services.metadata
        self._clock, self._run_in_thread, self._counts = services.clock, services.call, services.counts
        self._after_copy, self._random_source = after_copy, random_source
        config = self._current_config()
        self._quota = RemoteQuota(
            lambda: self._current_config().remote_log_manager_copy_max_bytes_per_second,
            config.remote_log_manager_copy_quota_window_num, config.remote_log_manager_copy_quota_window_size_seconds,
            self._clock.monotonic_ms,
        )  # fmt: skip
        self.tasks = PartitionTasks(
            self._copy_partition,
            lambda: self._current_config().remote_log_manager_copier_thread_pool_size,
            "kafkalog-remote-copy",
        )
        self._is_stopping = False  # once set, a running copy fails at its next upload chunk

    def add(self, partition: RemotePartition) -> None:
        """Queue a partition whose segments are to be copied.

        No-op during the pause after a failure, and after too large custom metadata until the next start.
        """
        if not partition.copies_are_cancelled and self._clock.monotonic_ms() >= partition.next_try_ms:
            self.tasks.add(partition)

    def begin_stop(self) -> None:
        """Start no more copies. A running copy fails at its next upload chunk."""
        self._is_stopping = True

    async def _copy_partition(self, partition: RemotePartition) -> None:
        try:
            while (log := partition.log) is not None and not self._is_stopping and not log.is_closed:
                segment, until = next(segments_to_copy(log), (None, 0))
                if segment is None:
                    break
                self._counts.copy_requests += 1
                if log.synced_offset < until:
                    await self._run_in_thread(log.flush)
                remote_segment, data = await self._run_in_thread(
                    prepare_copy, log, segment, until, self._metadata.broker_id, self._clock.now_ms()
                )
                partition.copying.add(remote_segment.segment_id)
                try:
                    await self._metadata.add(remote_segment)
                    loop = asyncio.get_running_loop()
                    custom_metadata = await loop.run_in_executor(
                        self.tasks.threads, self._copy_files, remote_segment, data
                    )
                    if partition.log is None or log.is_closed:
                        break
                    await self._metadata.update([remote_segment], COPY_FINISHED, custom_metadata)
                finally:
                    partition.copying.discard(remote_segment.segment_id)
                log.highest_offset_in_remote_storage = max(log.highest_offset_in_remote_storage, until - 1)
                self._counts.copy_bytes += segment.size
                partition.failures = 0
        except _CustomMetadataTooLarge as error:
            # The next copy would fail as well, so the partition is not copied any more (Kafka cancels its RLMCopyTask).
            self._counts.copy_errors += 1
            partition.copies_are_cancelled = True
            _log.error("%s is not copied to remote storage until the next start: %s", partition.remote.partition, error)
        except (KafkalogError, OSError) as error:
            if not self._is_stopping:
                self._counts.copy_errors += 1
                self._back_off(partition)
                _log.warning(
                    "copying %s to remote storage failed and will be retried: %s", partition.remote.partition, error
                )
        finally:
            if partition.log is not None:
                partition.update_copy_lag(partition.log)
            self._after_copy(partition)

    def _copy_files(self, segment: RemoteSegment, data: LogSegmentData) -> bytes | None:
        """Copy the files of a segment, and return the custom metadata of the copy. Blocks.

        Raises:
            _CustomMetadataTooLarge: If the store's custom metadata is too large.
            RemoteStorageError: As `RemoteStorage.copy`.
        """
        custom_metadata = self._storage.copy(segment, data, self._wait_for_quota)
        max_bytes = self._current_config().remote_log_metadata_custom_metadata_max_bytes
        if custom_metadata is not None and len(custom_metadata) > max_bytes:
            raise _CustomMetadataTooLarge(
                f"the custom metadata of {segment} has {len(custom_metadata)} bytes, "
                f"remote.log.metadata.custom.metadata.max.bytes is {max_bytes}"
            )
        return custom_metadata

    def _wait_for_quota(self, size: int) -> None:
        while not self._is_stopping and (wait_ms := self._quota.wait_ms()):
            time.sleep(min(wait_ms / 1000, _QUOTA_CHECK_S))
        if self._is_stopping:
            raise RemoteStorageError("the broker is stopping")
        self._quota.record(size)

    def _back_off(self, partition: RemotePartition) -> None:
        """Double the pause before the next copy of a partition with each failure (Kafka: `ExponentialBackoff`)."""
        config = self._current_config()
        first_ms = config.remote_log_manager_task_retry_backoff_ms
        max_ms = config.remote_log_manager_task_retry_backoff_max_ms
        jitter = config.remote_log_manager_task_retry_jitter
        pause_ms = min(first_ms * 2 ** min(partition.failures, 30), max_ms)
        pause_ms = min(int(pause_ms * self._random_source.uniform(1 - jitter, 1 + jitter)), max_ms)
        partition.failures += 1
        partition.next_try_ms = self._clock.monotonic_ms() + pause_ms
