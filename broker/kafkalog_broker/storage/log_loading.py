"""Loading of the log directories at start: find the partitions, recover them, create what is missing.

After a clean shutdown that is a listing: a log is opened when it is first asked for.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.log_config import internal_topic_configs
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.log_directory import LogDirectories, LogDirError, take_clean_shutdown
from kafkalog_broker.storage.log_table import LogEntry, LogTable
from kafkalog_broker.storage.partition_removal import rename_for_deletion
from kafkalog_broker.storage.recovery.log_loader import LoadProgress, ProgressWatch, bytes_to_recover
from kafkalog_broker.storage.topics_file import PartitionPlace, Reconciled, Topic, find_partition_dirs, reconcile
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    new_uuid,
    write_partition_metadata,
)

_log = logging.getLogger(__name__)


class LogLoading:
    """Fills the table of logs. schedule_removal: given a renamed directory and after how many ms it may go. create:
    makes the log of a partition that the registry knows and no directory has; raises BrokerError."""

    def __init__(
        self,
        table: LogTable,
        schedule_removal: Callable[[Path, int], None],
        create: Callable[[Topic, int], None],
    ) -> None:
        self._table = table
        self._topics = table.topics
        self._schedule_removal = schedule_removal
        self._create = create
        self._is_stopping = threading.Event()

    def stop(self) -> None:
        """`load`, in its thread, is to end with the logs that it is checking. Without effect afterwards."""
        self._is_stopping.set()

    def load(self, progress: Callable[[LoadProgress], None]) -> None:
        """Load every log directory that works; LogManager.load says what is raised."""
        places: list[PartitionPlace] = []
        compacted: set[str] = set()
        for log_dir in self._table.dirs.all:
            if not log_dir.is_online:
                continue
            try:
                log_dir.was_clean = take_clean_shutdown(log_dir.path)
                for checkpoint in log_dir.checkpoints:
                    checkpoint.read()
                compacted.update(topic for topic, _ in log_dir.cleaner_offsets.known)
                found = find_partition_dirs(log_dir)
                for path in found.deleted:
                    self._schedule_removal(path, 0)
                places += found.live
            except OSError as error:
                log_dir.fail(error)
        self._topics_of(places)
        internal = internal_topic_configs(self._table.config)
        plan = reconcile(places, self._topics.topics, self._topics.deleted, compacted, new_uuid, internal)
        self._take_in(plan)
        self._recover(progress)
        self._create_missing(plan)
        for log_dir in self._table.dirs.all:
            log_dir.is_loaded = log_dir.is_online
            if log_dir.is_loaded:
                how = "clean" if log_dir.was_clean else "recovered"
                _log.info("log directory %s: %d partitions, %s", log_dir.path, log_dir.partitions, how)
        if not self._table.dirs.online:
            raise LogDirError("no log directory works: " + "; ".join(_failures(self._table.dirs)))

    def _topics_of(self, places: list[PartitionPlace]) -> None:
        if places and not self._topics.was_read:
            _log.warning(
                "there is no topic registry: topics are taken in from %d partition directories; their configuration "
                "overrides are not known, so nothing of them is deleted (retention.ms=-1) until they are set again",
                len(places),
            )

    def _take_in(self, plan: Reconciled) -> None:
        for place in plan.strays:
            _log.warning("%s is left alone: it belongs to another topic of that name (partition.metadata)", place.path)
        self._topics.take_in(plan.changed.values())
        for place, topic in plan.serve:
            log_dir = place.log_dir
            self._table.add(LogEntry(topic.name, place.partition, topic.id, log_dir, place.path))
            if place.topic_id is None:
                log_dir.guarded(partial(_write_topic_id, place.path, topic.id))
        for place in plan.deleted:
            renaming = partial(self._rename_away, place.path, place.topic, place.partition)
            place.log_dir.guarded(renaming)
        if self._table.all_online:
            self._topics.forget_deleted(self._topics.deleted)
        for log_dir in self._table.dirs.all:
            log_dir.is_listed = True

    def _recover(self, progress: Callable[[LoadProgress], None]) -> None:
        """Load the logs of directories that were not shut down cleanly, each directory with threads of its own."""
        entries = [entry for entry in self._table.entries.values() if not entry.log_dir.was_clean and entry.is_online]
        if not entries:
            return
        sizes = {entry.key: self._bytes_to_recover(entry) for entry in entries}
        watch = ProgressWatch(len(entries), sum(sizes.values()), progress)
        for log_dir in self._table.dirs.all:
            if not log_dir.was_clean and log_dir.is_online:
                _log.warning(
                    "%s was not shut down cleanly: its logs are checked from their recovery points", log_dir.path
                )
        pools = {
            id(log_dir): ThreadPoolExecutor(self._table.config.num_recovery_threads_per_data_dir, "recovery")
            for log_dir in {id(entry.log_dir): entry.log_dir for entry in entries}.values()
        }
        try:
            # The longest first: one large log at the end would leave the other threads idle.
            ordered = sorted(entries, key=lambda entry: sizes[entry.key], reverse=True)
            for future in [pools[id(entry.log_dir)].submit(self._recover_one, entry, watch) for entry in ordered]:
                future.result()
        finally:
            for pool in pools.values():
                pool.shutdown(cancel_futures=True)

    def _bytes_to_recover(self, entry: LogEntry) -> int:
        try:
            return bytes_to_recover(entry.path, entry.recovery_point)
        except OSError as error:
            entry.log_dir.fail(error)
            return 0

    def _recover_one(self, entry: LogEntry, watch: ProgressWatch) -> None:
        if self._is_stopping.is_set():
            raise KafkalogError("loading was stopped before all logs were checked", hint="start again")
        try:
            self._table.open(entry, watch.bytes_done)
        except BrokerError as error:
            _log.error("%s", error)
        finally:
            watch.log_done()

    def _create_missing(self, plan: Reconciled) -> None:
        """A crash may come between a topic's registration and its directories. With a directory offline nobody knows
        what lies in it, and an empty log next to the real one would be the end of its records."""
        for topic, partition in plan.missing:
            if self._table.all_online:
                try:
                    self._create(topic, partition)
                    continue
                except (BrokerError, ConfigError) as error:  # a stray directory is in its place
                    _log.error("%s", error)
                except Exception:  # noqa: BLE001 - a fault of ours must not keep the broker from starting
                    _log.exception("%s-%d cannot be created", topic.name, partition)
            self._table.absent.add((topic.name, partition))

    def _rename_away(self, path: Path, topic: str, partition: int) -> None:
        self._schedule_removal(rename_for_deletion(path, topic, partition), 0)


def _failures(dirs: LogDirectories) -> list[str]:
    return [f"{log_dir.path}: {log_dir.failure}" for log_dir in dirs.all]


def _write_topic_id(path: Path, topic_id: uuid.UUID) -> None:
    write_partition_metadata(path / PARTITION_METADATA_FILE, PartitionMetadata(topic_id))
