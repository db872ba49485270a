"""All logs of this broker: loading, creation, deletion, shutdown (Kafka: `LogManager`).

Everything is called on the thread that owns the logs, the event loop's, except the functions given to `run_blocking`:
flushes, checkpoints and removals, which wait for the disk.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.internal_topic_configs import internal_topic_configs
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.clean_shutdown import take_clean_shutdown, write_clean_shutdown
from kafkalog_broker.storage.file_fault import FileFault, file_fault, is_transient
from kafkalog_broker.storage.housekeeping import Housekeeping, RunBlocking
from kafkalog_broker.storage.log_cleaner import LogCleaner
from kafkalog_broker.storage.log_directories import LogDirError
from kafkalog_broker.storage.log_entry import Key, LogEntry, storage_error, take_offline
from kafkalog_broker.storage.log_table import LogTable
from kafkalog_broker.storage.new_partitions import NewPartitions
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition_dirs import PartitionDir, find_partition_dirs
from kafkalog_broker.storage.partition_removal import PartitionRemoval, remove, rename_for_deletion
from kafkalog_broker.storage.recovery.load_progress import LoadProgress, ProgressWatch
from kafkalog_broker.storage.recovery.log_loader import bytes_to_recover
from kafkalog_broker.storage.registry_reconciliation import Reconciliation, reconcile
from kafkalog_broker.storage.topic import Topic
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE, new_uuid, write_partition_metadata

_log = logging.getLogger(__name__)

_UNKNOWN_BROKER_EPOCH = -1
_CLOSING_THREADS = 8  # more than processors, because each thread mostly waits for a disk
MAX_CREATED_AT_START = 10_000
"""Missing partitions that a start creates: as many as one CreateTopics request may have, so that a creation that a
crash interrupted is completed. A registry may contain more partitions than that."""


class LoadingStopped(KafkalogError):
    """`LogManager.load` ended because `stops_loading` was set."""


@dataclass(eq=False)
class LogManager(LogTable):
    """All logs of this broker.

    Attributes:
        run_blocking: Runs a function outside of the owning thread; by default immediately.
        to_recover: After `shutdown`: log directories that got no clean-shutdown marker.
        is_settled: True if everything else that an unclean shutdown left, such as open transactions, is resolved. While
            it is False, a directory that was not shut down cleanly gets no marker, so that the next start resolves it.
        stops_loading: Set by another thread to stop `load` after the logs that it is checking.
    """

    run_blocking: RunBlocking = field(kw_only=True, default=lambda function: function())
    stops_loading: threading.Event = field(init=False, default_factory=threading.Event)
    to_recover: list[Path] = field(init=False, default_factory=list)
    is_settled: bool = field(init=False, default=True)
    _is_shut_down: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._may_create = MAX_CREATED_AT_START
        self._housekeeping = Housekeeping(self, self.run_blocking)
        self._schedule_removal = self._housekeeping.removals.schedule
        self.tick, self.flush_soon = self._housekeeping.tick, self._housekeeping.flush_soon
        self.cleaner = LogCleaner(self, self._schedule_removal)

    @property
    def retention_waits_for_flush(self) -> bool:
        """True while a log is flushed so that the next tick can delete its old segments."""
        return self._housekeeping.retention_waits_for_flush

    def load(self, progress: Callable[[LoadProgress], None] | None = None) -> None:
        """Find the partitions, recover logs that were not shut down cleanly, create missing ones.

        Args:
            progress: Called from several threads, one at a time.

        Raises:
            LoadingStopped: If `stops_loading` was set before all logs were recovered.
            LogDirError: If no log directory works.
            BrokerError: If the topic registry cannot be written.
        """
        directories: list[PartitionDir] = []
        compacted: set[str] = set()
        for log_dir in self.dirs.online:
            with log_dir.guarded():
                log_dir.was_clean = take_clean_shutdown(log_dir.path)
                for checkpoint in log_dir.checkpoints:
                    checkpoint.read()
                compacted.update(topic for topic, _ in log_dir.cleaner_offsets.known)
                live, deleted = find_partition_dirs(log_dir)
                for path in deleted:
                    self._schedule_removal(path, 0)
                directories += live
        if directories and not self.topics.was_read:
            _log.warning(
                "the topic registry is missing: topics are registered from %d partition directories; their "
                "configuration overrides are unknown, so retention.ms=-1 applies until they are set again",
                len(directories),
            )
        internal = internal_topic_configs(self.config)
        reconciliation = reconcile(directories, self.topics.topics, self.topics.deleted, compacted, new_uuid, internal)
        self._register(reconciliation)
        self._recover_logs(progress or (lambda _: None))
        self._create_missing(reconciliation)
        for log_dir in self.dirs.all:
            log_dir.is_loaded = log_dir.is_online
            if log_dir.is_loaded:
                how = "clean" if log_dir.was_clean else "recovered"
                _log.info("log directory %s: %d partitions, %s", log_dir.path, log_dir.partitions, how)
        if not self.dirs.online:
            raise LogDirError(f"no log directory works: {self.dirs.failures()}")
        self._housekeeping.start()

    def _register(self, reconciliation: Reconciliation) -> None:
        for directory, reason in reconciliation.strays:
            _log.warning("%s is not served: %s", directory.path, reason)
        self.topics.register_found(reconciliation.changed.values())
        for directory, topic in reconciliation.serve:
            entry = LogEntry(
                topic.name, directory.partition, topic.id, directory.log_dir, directory.path, failure=directory.failure
            )  # fmt: skip
            self.add(entry)
            if entry.failure is not None:
                _log.error("%s is offline: %s", directory.path.name, entry.failure)
            elif directory.topic_id is None:
                with _guarded_entry(entry):
                    write_partition_metadata(directory.path / PARTITION_METADATA_FILE, topic.id)
        for directory in reconciliation.deleted:
            with directory.log_dir.guarded():
                self._schedule_removal(rename_for_deletion(directory.path, directory.topic, directory.partition), 0)
        if self.all_online:
            self.topics.forget_deleted(self.topics.deleted)
        for log_dir in self.dirs.all:
            log_dir.is_listed = True

    def _recover_logs(self, progress: Callable[[LoadProgress], None]) -> None:
        """Load the logs of directories that were not shut down cleanly, with separate threads for each directory."""
        sizes: dict[LogEntry, int] = {}
        for entry in self.entries.values():
            if not entry.log_dir.was_clean and entry.is_online:
                with _guarded_entry(entry):
                    sizes[entry] = bytes_to_recover(entry.path, entry.recovery_point)
        if not sizes:
            return
        watch = ProgressWatch(len(sizes), sum(sizes.values()), progress)
        pools: dict[Path, ThreadPoolExecutor] = {}
        try:
            for log_dir in self.dirs.online:
                if not log_dir.was_clean:
                    _log.warning(
                        "%s was not shut down cleanly: checking its logs from their recovery points", log_dir.path
                    )
            for path in {entry.log_dir.path for entry in sizes}:
                pools[path] = ThreadPoolExecutor(self.config.num_recovery_threads_per_data_dir, "recovery")
            # The largest log first, because a large one at the end would leave the other threads idle.
            ordered = sorted(sizes, key=lambda entry: sizes[entry], reverse=True)
            for future in [pools[entry.log_dir.path].submit(self._recover_one, entry, watch) for entry in ordered]:
                future.result()
        finally:
            for pool in pools.values():
                pool.shutdown(cancel_futures=True)

    def _recover_one(self, entry: LogEntry, watch: ProgressWatch) -> None:
        if self.stops_loading.is_set():
            raise LoadingStopped("loading was stopped before all logs were checked", hint="start again")
        try:
            self.open(entry, watch.bytes_done)
        except BrokerError as error:
            if is_transient(error):
                raise  # the log itself is good; recovering it later, on the event loop, would block requests
            _log.error("%s", error)
        finally:
            watch.log_done()

    def _create_missing(self, reconciliation: Reconciliation) -> None:
        """Create partitions whose directory a crash prevented.

        While a log directory is offline the missing partitions may be in it. An empty log would then hide the real one.
        """
        if not self.all_online:
            offline = "its directory was not found, and a log directory is offline"
            self.absent.update({(topic.name, partition): offline for topic, partition in reconciliation.missing})
            return
        self.create_absent(reconciliation.missing)

    def create_absent(self, partitions: Sequence[tuple[Topic, int]]) -> None:
        """Create empty logs for partitions of the registry, at most MAX_CREATED_AT_START since the start.

        A partition that cannot be created is absent, and its reason is logged. Blocks; call it before the broker
        serves.
        """
        partitions, not_created = partitions[: self._may_create], partitions[self._may_create :]
        self._may_create -= len(partitions)
        if not_created:
            reason = f"it has no directory, and a start creates only {MAX_CREATED_AT_START} missing partitions"
            self.absent.update({(topic.name, partition): reason for topic, partition in not_created})
            names = ", ".join(sorted({topic.name for topic, _ in not_created})[:10])
            _log.error(
                "%d partitions of %s have no directory and are offline until the next start", len(not_created), names
            )
        if not partitions:
            return
        prepared: NewPartitions | None = None
        with suppress(BrokerError):  # no directory accepts new partitions; `create` reports it for each
            prepared = self.prepare_partitions({(topic.name, partition): topic.id for topic, partition in partitions})
        for topic, partition in partitions:
            try:
                self.create(topic.name, partition, topic.id, self.config_of(topic), prepared)
            except (BrokerError, ConfigError) as error:  # for example, a stray directory has its name
                _log.error("%s", error)
                self.absent[topic.name, partition] = error.what if isinstance(error, BrokerError) else str(error)
            except Exception as error:  # noqa: BLE001 - a bug must not keep the broker from starting
                _log.exception("%s-%d cannot be created", topic.name, partition)
                self.absent[topic.name, partition] = f"it cannot be created: {type(error).__name__}: {error}"
        if prepared is not None:
            prepared.remove_unused()

    def prepare_partitions(self, topic_ids: Mapping[Key, uuid.UUID]) -> NewPartitions:
        """Create the directories and files of new partitions, each in the log directory with the fewest partitions.

        Blocks; any thread.

        Raises:
            BrokerError: kafka_storage_error if no log directory accepts new partitions.
        """
        planned: Counter[Path] = Counter()
        log_dirs = {}
        for key in topic_ids:
            log_dirs[key] = log_dir = self.next_log_dir(planned)
            planned[log_dir.path] += 1
        return NewPartitions(log_dirs, topic_ids)

    def create(
        self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig, prepared: NewPartitions | None = None
    ) -> Log:
        """Add a new, empty log.

        Args:
            prepared: Result of `prepare_partitions` that includes it. Without it the files are created here, which
                waits for the disk.

        Raises:
            BrokerError: kafka_storage_error, topic_already_exists; no directory of the partition is left then, unless
                its log directory has failed.
        """
        key = (topic, partition)
        if key in self.entries or key in self.absent:
            raise BrokerError(ErrorCode.topic_already_exists, f"partition {topic}-{partition} already exists")
        while True:
            log_dir = None if prepared is None else prepared.log_dirs.get(key)
            if prepared is None or log_dir is None or not log_dir.is_online:  # it may have gone offline meanwhile
                log_dir = self.next_log_dir()
                prepared = NewPartitions({key: log_dir}, {key: topic_id})
            entry = LogEntry(topic, partition, topic_id, log_dir, log_dir.path / f"{topic}-{partition}")
            try:
                loaded = prepared.pop(key)
            except FileExistsError as error:
                raise storage_error(topic, partition, f"{entry.path} already exists, but is not its log") from error
            except OSError as error:
                if file_fault(error) is not FileFault.DIRECTORY:
                    raise storage_error(topic, partition, f"{entry.path} cannot be created: {error}") from error
                log_dir.fail(error)
                continue  # try another log directory
            try:
                entry.log = self.new_log(entry, config, loaded, self.clock.now_ms())
            except Exception:
                remove(entry.path)
                raise
            self.add(entry)
            return entry.log

    def detach(self, keys: Iterable[Key], on_done: Callable[[], None] = lambda: None) -> PartitionRemoval:
        """Take partitions out of service. `finish` of the result, which blocks, renames their directories."""
        entries = []
        for key in keys:
            entry = self.remove(key)
            if entry is not None:
                delay = self.config.log_segment_delete_delay_ms
                if entry.log is not None:
                    delay = entry.log.config.file_delete_delay_ms
                    entry.log.discard()
                entries.append((entry, delay))
        return PartitionRemoval(entries, self._schedule_removal, on_done)

    def detach_topic(self, topic: Topic) -> PartitionRemoval:
        """Take all partitions of a deleted topic out of service, except those of a newer topic with the same name."""
        keys = []
        for partition in range(topic.partitions):
            key = (topic.name, partition)
            entry = self.entries.get(key)
            if entry is None:
                self.absent.pop(key, None)
            elif entry.topic_id == topic.id:
                keys.append(key)
        return self.detach(keys, partial(self.forget_deleted, [topic]))

    def forget_deleted(self, topics: Iterable[Topic]) -> None:
        """Forget deleted topics whose directories are renamed. Blocks; any thread. Raises BrokerError."""
        if self.all_online:
            self.topics.forget_deleted([topic.id for topic in topics])

    def lower_checkpoints(self, topic: str, partition: int, offset: int) -> None:
        """Call `LogDirectory.lower_checkpoints` for a partition's directory.

        Blocks. May be called in any thread. Raises BrokerError kafka_storage_error.
        """
        entry = self.entries[topic, partition]
        try:
            entry.log_dir.lower_checkpoints(entry.key, offset)
        except OSError as error:
            if file_fault(error) is not FileFault.NONE:
                self.call_soon(partial(entry.log_dir.fail, error))
            raise storage_error(topic, partition, f"a checkpoint cannot be written: {error}") from error

    def remove_later(self, paths: Iterable[Path], config: LogConfig) -> None:
        """Delete renamed files after file.delete.delay.ms."""
        for path in paths:
            self._schedule_removal(path, config.file_delete_delay_ms)

    def update_topic_config(self, name: str) -> None:
        """Apply changed overrides of a topic to its open logs."""
        topic = self.topics.get(name)
        if topic is not None:
            config = self.config_of(topic)
            for key in self.partitions(name):
                log = self.entries[key].log
                if log is not None:
                    log.update_config(config)

    def updating_config(self, config: BrokerConfig) -> Generator[None, None, None]:
        """Apply new broker defaults to all logs, one topic per step. Logs opened meanwhile use them already."""
        self.config = config
        self.cleaner.reconfigure(config)
        for topic in list(self.topics):
            self.update_topic_config(topic.name)
            yield

    def shutdown(self) -> None:
        """Flush and close all logs, write checkpoints and then clean-shutdown markers, release the locks. Blocks.

        A directory in which anything failed gets no marker, so that its logs are recovered at the next start.
        """
        if self._is_shut_down:
            return
        self._is_shut_down = True
        self.cleaner.stop()
        with ThreadPoolExecutor(_CLOSING_THREADS, "close") as pool:
            closed = {entry: pool.submit(_close, entry.log) for entry in self.entries.values() if entry.log is not None}
        for log_dir in self.dirs.all:
            if not log_dir.is_online:
                self.to_recover.append(log_dir.path)
                continue
            whole = log_dir.was_clean
            if log_dir.is_listed:  # otherwise its logs are unknown, and unchanged
                entries = [entry for entry in self.entries.values() if entry.log_dir is log_dir]
                whole = (log_dir.is_loaded or log_dir.was_clean) and all(
                    closed[entry].result() if entry in closed else entry.failure is None and not entry.is_recovering
                    for entry in entries
                )
                whole = self._housekeeping.write_last_checkpoints(log_dir) and whole
            whole = whole and (self.is_settled or log_dir.was_clean)
            if whole:
                try:
                    with log_dir.guarded():
                        write_clean_shutdown(log_dir.path, _UNKNOWN_BROKER_EPOCH)
                except OSError as error:
                    _log.error("%s gets no clean-shutdown marker: %s", log_dir.path, error)
                    whole = False
            if not whole or not log_dir.is_online:
                self.to_recover.append(log_dir.path)
        self.dirs.close()


@contextmanager
def _guarded_entry(entry: LogEntry) -> Iterator[None]:
    """Take one partition offline if the block raises OSError, unless the disk is at fault (see `take_offline`)."""
    try:
        yield
    except OSError as error:
        take_offline(entry, error, f"{entry.path} cannot be used: {error}")


def _close(log: Log) -> bool:
    try:
        log.close()
    except BrokerError as error:
        _log.error("%s", error)
    except Exception:  # noqa: BLE001 - a bug must not keep the other logs from being closed
        _log.exception("%s could not be closed and will be recovered at the next start", log.name)
        return False
    return log.failure is None
