"""All logs of this broker: loading, creating, deleting and periodic work (LogManager).

Threads: everything here is called in the thread that owns the logs (the event loop's), but for what `run_blocking` is
given: flushes, checkpoints and removals, which wait for the disk.
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
from kafkalog_broker.storage.log_directory import LogDirError
from kafkalog_broker.storage.log_table import Key, LogEntry, LogTable, storage_error, take_offline
from kafkalog_broker.storage.new_partitions import NewPartitions
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition_dirs import PartitionDir, Reconciled, find_partition_dirs, reconcile
from kafkalog_broker.storage.partition_removal import PartitionRemoval, remove, rename_for_deletion
from kafkalog_broker.storage.recovery.load_progress import LoadProgress, ProgressWatch
from kafkalog_broker.storage.recovery.log_loader import bytes_to_recover
from kafkalog_broker.storage.topic import Topic
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE, new_uuid, write_partition_metadata

_log = logging.getLogger(__name__)

_UNKNOWN_BROKER_EPOCH = -1
_CLOSING_THREADS = 8  # each waits for a disk most of the time
MOST_CREATED_AT_START = 10_000
"""Partitions without a directory that a start creates: as many as one request may ask for, so that
what a crash interrupted is finished. A registry may speak of more."""


@dataclass(eq=False)
class LogManager(LogTable):
    """run_blocking: how to get out of the owning thread, as call_soon into it; by default everything happens at once.
    to_recover: after `shutdown`, the log directories that got no clean-shutdown marker. is_settled: everything that an
    unclean shutdown left besides the logs, such as open transactions, is in order. While it is False, a directory that
    was not shut down cleanly gets no marker, so that the next start puts it in order. stops_loading: `load`, in its
    thread, is to end with the logs that it is checking."""

    run_blocking: RunBlocking = field(kw_only=True, default=lambda function: function())
    stops_loading: threading.Event = field(init=False, default_factory=threading.Event)
    to_recover: list[Path] = field(init=False, default_factory=list)
    is_settled: bool = field(init=False, default=True)
    _is_shut_down: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._may_create = MOST_CREATED_AT_START
        self._housekeeping = Housekeeping(self, self.run_blocking)
        self._schedule_removal = self._housekeeping.schedule_removal
        self.tick, self.flush_soon = self._housekeeping.tick, self._housekeeping.flush_soon
        self.cleaner = LogCleaner(self, self._schedule_removal)

    @property
    def retention_waits_for_flush(self) -> bool:
        """True while a log is flushed so that the next tick can delete its old segments."""
        return self._housekeeping.retention_waits_for_flush

    # ---- loading

    def load(self, progress: Callable[[LoadProgress], None] | None = None) -> None:
        """Find the partitions, recover those of directories that were not shut down cleanly, create missing ones.
        progress: called from several threads, one at a time. Raises LogDirError when no directory works, BrokerError
        when the registry cannot be written."""
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
                "there is no topic registry: topics are taken in from %d partition directories; their configuration "
                "overrides are not known, so nothing of them is deleted (retention.ms=-1) until they are set again",
                len(directories),
            )
        internal = internal_topic_configs(self.config)
        plan = reconcile(directories, self.topics.topics, self.topics.deleted, compacted, new_uuid, internal)
        self._take_in(plan)
        self._recover(progress or (lambda _: None))
        self._create_missing(plan)
        for log_dir in self.dirs.all:
            log_dir.is_loaded = log_dir.is_online
            if log_dir.is_loaded:
                how = "clean" if log_dir.was_clean else "recovered"
                _log.info("log directory %s: %d partitions, %s", log_dir.path, log_dir.partitions, how)
        if not self.dirs.online:
            raise LogDirError(f"no log directory works: {self.dirs.failures()}")
        self._housekeeping.start()

    def _take_in(self, plan: Reconciled) -> None:
        for directory, why in plan.strays:
            _log.warning("%s is left alone: %s", directory.path, why)
        self.topics.take_in(plan.changed.values())
        for directory, topic in plan.serve:
            entry = LogEntry(
                topic.name, directory.partition, topic.id, directory.log_dir, directory.path, failure=directory.failure
            )  # fmt: skip
            self.add(entry)
            if entry.failure is not None:
                _log.error("%s is offline: %s", directory.path.name, entry.failure)
            elif directory.topic_id is None:
                with _guarded_entry(entry):
                    write_partition_metadata(directory.path / PARTITION_METADATA_FILE, topic.id)
        for directory in plan.deleted:
            with directory.log_dir.guarded():
                self._schedule_removal(rename_for_deletion(directory.path, directory.topic, directory.partition), 0)
        if self.all_online:
            self.topics.forget_deleted(self.topics.deleted)
        for log_dir in self.dirs.all:
            log_dir.is_listed = True

    def _recover(self, progress: Callable[[LoadProgress], None]) -> None:
        """Load the logs of directories that were not shut down cleanly, each directory with threads of its own."""
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
                        "%s was not shut down cleanly: its logs are checked from their recovery points", log_dir.path
                    )
            for path in {entry.log_dir.path for entry in sizes}:
                pools[path] = ThreadPoolExecutor(self.config.num_recovery_threads_per_data_dir, "recovery")
            # The longest first: one large log at the end would leave the other threads idle.
            ordered = sorted(sizes, key=lambda entry: sizes[entry], reverse=True)
            for future in [pools[entry.log_dir.path].submit(self._recover_one, entry, watch) for entry in ordered]:
                future.result()
        finally:
            for pool in pools.values():
                pool.shutdown(cancel_futures=True)

    def _recover_one(self, entry: LogEntry, watch: ProgressWatch) -> None:
        if self.stops_loading.is_set():
            raise KafkalogError("loading was stopped before all logs were checked", hint="start again")
        try:
            self.open(entry, watch.bytes_done)
        except BrokerError as error:
            if is_transient(error):
                raise  # nothing is wrong with the log, and it must not be recovered later, in the event loop
            _log.error("%s", error)
        finally:
            watch.log_done()

    def _create_missing(self, plan: Reconciled) -> None:
        """A crash may come between a topic's registration and its directories. With a directory offline nobody knows
        what lies in it, and an empty log next to the real one would be the end of its records."""
        if not self.all_online:
            offline = "it was not found, and a log directory is offline"
            self.absent.update({(topic.name, partition): offline for topic, partition in plan.missing})
            return
        self.create_absent(plan.missing)

    def create_absent(self, partitions: Sequence[tuple[Topic, int]]) -> None:
        """Create empty logs for partitions of the registry, MOST_CREATED_AT_START of them since the start. One that
        cannot be created is absent, with its reason in the log. Blocks; before the broker serves."""
        partitions, left = partitions[: self._may_create], partitions[self._may_create :]
        self._may_create -= len(partitions)
        if left:
            why = f"it has no directory, and only {MOST_CREATED_AT_START} missing partitions are created at a start"
            self.absent.update({(topic.name, partition): why for topic, partition in left})
            names = ", ".join(sorted({topic.name for topic, _ in left})[:10])
            _log.error("%d partitions without a directory are offline until the next start, of %s", len(left), names)
        if not partitions:
            return
        prepared: NewPartitions | None = None
        with suppress(BrokerError):  # no directory takes new partitions, which `create` says of each
            prepared = self.place_all({(topic.name, partition): topic.id for topic, partition in partitions})
        for topic, partition in partitions:
            try:
                self.create(topic.name, partition, topic.id, self.config_of(topic), prepared)
            except (BrokerError, ConfigError) as error:  # a stray directory is in its place
                _log.error("%s", error)
                self.absent[topic.name, partition] = error.what if isinstance(error, BrokerError) else str(error)
            except Exception as error:  # noqa: BLE001 - a fault of ours must not keep the broker from starting
                _log.exception("%s-%d cannot be created", topic.name, partition)
                self.absent[topic.name, partition] = f"it cannot be created: {type(error).__name__}: {error}"
        if prepared is not None:
            prepared.remove_unused()

    # ---- creating and deleting

    def place_all(self, topic_ids: Mapping[Key, uuid.UUID]) -> NewPartitions:
        """Make new partitions, each in the log directory with the fewest. Blocks; any thread. Raises
        BrokerError kafka_storage_error."""
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
            prepared: The result of `place_all` for it. Without it the files are made here, which waits for the disk.

        Raises:
            BrokerError: kafka_storage_error, topic_already_exists; no directory of the partition is left then, unless
                its log directory has failed.
        """
        key = (topic, partition)
        if key in self.entries or key in self.absent:
            raise BrokerError(ErrorCode.topic_already_exists, f"partition {topic}-{partition} is there already")
        while True:
            log_dir = None if prepared is None else prepared.log_dirs.get(key)
            if prepared is None or log_dir is None or not log_dir.is_online:  # it went offline since
                log_dir = self.next_log_dir()
                prepared = NewPartitions({key: log_dir}, {key: topic_id})
            entry = LogEntry(topic, partition, topic_id, log_dir, log_dir.path / f"{topic}-{partition}")
            try:
                loaded = prepared.take(key)
            except FileExistsError as error:
                raise storage_error(topic, partition, f"{entry.path} is there already, and not its log") from error
            except OSError as error:
                if file_fault(error) is not FileFault.DIRECTORY:
                    raise storage_error(topic, partition, f"{entry.path} cannot be made: {error}") from error
                log_dir.fail(error)
                continue  # with the directories that are left
            try:
                entry.log = self.log_of(entry, config, loaded, self.clock.now_ms())
            except Exception:
                remove(entry.path)
                raise
            self.add(entry)
            return entry.log

    def detach(self, keys: Iterable[Key], on_done: Callable[[], None] = lambda: None) -> PartitionRemoval:
        """Take partitions out of service; `finish` of the result, which blocks, renames their directories (-delete)."""
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
        """All partitions of a topic that the registry has forgotten; those of another topic of that name stay."""
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
        """The directories of these topics are renamed. Blocks; any thread. Raises BrokerError."""
        if self.all_online:
            self.topics.forget_deleted([topic.id for topic in topics])

    def lower_checkpoints(self, topic: str, partition: int, offset: int) -> None:
        """As LogDirectory.lower_checkpointed. Blocks; any thread. Raises BrokerError kafka_storage_error."""
        entry = self.entries[topic, partition]
        try:
            entry.log_dir.lower_checkpointed(entry.key, offset)
        except OSError as error:
            if file_fault(error) is not FileFault.NONE:
                self.call_soon(partial(entry.log_dir.fail, error))
            raise storage_error(topic, partition, f"a checkpoint cannot be written: {error}") from error

    def remove_later(self, paths: Iterable[Path], config: LogConfig) -> None:
        for path in paths:
            self._schedule_removal(path, config.file_delete_delay_ms)

    # ---- configuration

    def update_topic_config(self, name: str) -> None:
        """The registry has other overrides for a topic: its open logs go by them from now on."""
        topic = self.topics.get(name)
        if topic is not None:
            config = self.config_of(topic)
            for key in self.partitions(name):
                log = self.entries[key].log
                if log is not None:
                    log.update_config(config)

    def updating_config(self, config: BrokerConfig) -> Generator[None, None, None]:
        """Bring new broker defaults to all logs, a topic a step (40 us); logs that are opened meanwhile have them."""
        self.config = config
        self.cleaner.reconfigure(config)
        for topic in list(self.topics):
            self.update_topic_config(topic.name)
            yield

    # ---- now and then, and the end

    def shutdown(self) -> None:
        """Flush and close all logs, write the checkpoints and then the clean-shutdown marker, give the locks up.
        Blocks. A directory in which anything failed gets no marker: its logs are recovered at the next start."""
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
            if log_dir.is_listed:  # else nothing is known of its logs, and nothing was done to them
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
    """The block touches the directory of one partition: that one is offline when it cannot be used, not all of them."""
    try:
        yield
    except OSError as error:
        take_offline(entry, error, f"{entry.path} cannot be used: {error}")


def _close(log: Log) -> bool:
    try:
        log.close()
    except BrokerError as error:
        _log.error("%s", error)
    except Exception:  # noqa: BLE001 - a fault of ours: the other logs are closed all the same
        _log.exception("%s could not be closed, and is recovered at the next start", log.name)
        return False
    return log.failure is None
