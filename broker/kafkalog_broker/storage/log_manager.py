"""All logs of this broker: loading, creating, deleting and periodic work (LogManager).

Threads: everything here is called in the thread that owns the logs (the event loop's), but for what `run_blocking` is
given: flushes, checkpoints and removals, which wait for the disk.

After a clean shutdown a log is opened when it is first asked for: starting costs a listing, whatever there is.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.housekeeping import Housekeeping, RunBlocking
from kafkalog_broker.storage.log_cleaner import LogCleaner
from kafkalog_broker.storage.log_directory import LogDirectories, LogDirectory, LogDirUsage, write_clean_shutdown
from kafkalog_broker.storage.log_loading import LogLoading
from kafkalog_broker.storage.log_table import (
    CallSoon,
    Key,
    LogConfigOf,
    LogEntry,
    LogTable,
    is_the_directorys,
    storage_error,
)
from kafkalog_broker.storage.partition.local_log import LogIdentity, create_log_files
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition_removal import PartitionRemoval, remove
from kafkalog_broker.storage.recovery.log_loader import LoadProgress
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.storage.topics_file import Topic
from kafkalog_spark.format.atomic_file import DIRECTORY_MODE, fsync_directory

_log = logging.getLogger(__name__)

_UNKNOWN_BROKER_EPOCH = -1
_CLOSING_THREADS = 8
"""Each waits for a disk most of the time."""


class NewPartitions:
    """Directories for new partitions, made in one go: their names reach the disk with one fsync a log directory.

    log_dirs: the log directory that each new partition, of whatever topic, goes to.
    """

    def __init__(self, log_dirs: Mapping[Key, LogDirectory]) -> None:
        self._log_dirs = log_dirs
        self._errors: dict[Key, OSError] = {}
        self._unused: set[Key] = set()

    def make(self) -> None:
        """Make the directories; they are on disk on return, and no checkpoint speaks of former partitions of their
        names. Any thread. What fails shows in `take`."""
        for partition in self._log_dirs:
            try:
                self._path(partition).mkdir(DIRECTORY_MODE)
                self._unused.add(partition)
            except OSError as error:
                self._errors[partition] = error
        for log_dir in {id(log_dir): log_dir for log_dir in self._log_dirs.values()}.values():
            try:
                log_dir.forget_checkpointed({key for key, other in self._log_dirs.items() if other is log_dir})
                fsync_directory(log_dir.path)
            except OSError as error:
                self._errors.update(
                    {partition: error for partition, other in self._log_dirs.items() if other is log_dir}
                )

    def log_dir_of(self, partition: Key) -> LogDirectory | None:
        """The log directory with the partition's directory; None when it went offline, or is none of these."""
        log_dir = self._log_dirs.get(partition)
        return log_dir if log_dir is not None and log_dir.is_online else None

    def take(self, partition: Key) -> Path:
        """The directory, which belongs to a log from now on. Raises OSError when it could not be made: FileExistsError
        when something is in its place."""
        if partition in self._errors:
            raise self._errors[partition]
        self._unused.discard(partition)
        return self._path(partition)

    def remove_unused(self) -> None:
        """Remove the directories that were not taken: an empty one would be a partition at the next start."""
        for partition in self._unused:
            try:
                self._path(partition).rmdir()
            except OSError as error:
                _log.warning("the empty directory %s could not be removed: %s", self._path(partition), error)
        self._unused.clear()

    def _path(self, partition: Key) -> Path:
        return self._log_dirs[partition].path / "{}-{}".format(*partition)


class LogManager:
    """dirs: opened and locked (log_dir.open_log_dirs). topics: loaded. `cleaner`: compacts once it is started.

    call_soon, run_blocking: how to get into the owning thread, and out of it; by default everything happens at once.
    on_all_offline: called, once and in the owning thread, when the last log directory has failed.

    to_recover: after `shutdown`, the log directories that got no clean-shutdown marker.
    """

    def __init__(
        self,
        dirs: LogDirectories,
        config: BrokerConfig,
        topics: TopicRegistry,
        clock: Clock,
        *,
        call_soon: CallSoon = lambda function: function(),
        run_blocking: RunBlocking = lambda function: function(),
        on_all_offline: Callable[[], None] = lambda: None,
        log_config_of: LogConfigOf = LogConfig.of,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._table = LogTable(dirs, config, topics, clock, call_soon, on_all_offline, log_config_of)
        self._housekeeper = Housekeeping(self._table, run_blocking)
        self.cleaner = LogCleaner(self._table, self._housekeeper.schedule_removal)
        self._is_shut_down = False
        self._loading = LogLoading(self._table, self._housekeeper.schedule_removal, self._create_missing)
        self.to_recover: list[Path] = []

    # ---- loading

    def load(self, progress: Callable[[LoadProgress], None] | None = None) -> None:
        """Find the partitions, recover those of directories that were not shut down cleanly, create missing ones.

        progress: called from several threads, one at a time. A directory that fails goes offline. Raises LogDirError
        for a partition that lies in two directories and when no directory works, BrokerError when the registry cannot
        be written.
        """
        self._loading.load(progress or (lambda _: None))
        self._housekeeper.start()

    def stop_loading(self) -> None:
        """`load`, in its thread, is to end with the logs that it is checking. Without effect afterwards."""
        self._loading.stop()

    def _create_missing(self, topic: Topic, partition: int) -> None:
        self.create(topic.name, partition, topic.id, self._table.config_of(topic))

    # ---- the logs

    def get(self, topic: str, partition: int) -> Log | None:
        """The log of a partition, opened when this is the first time; None when this broker has none such.

        Raises BrokerError kafka_storage_error when its directory is offline or it cannot be loaded.
        """
        return self._table.get(topic, partition)

    def if_open(self, topic: str, partition: int) -> Log | None:
        """The log of a partition where it is open and works; opens nothing."""
        entry = self._table.entries.get((topic, partition))
        return entry.log if entry is not None and entry.is_online else None

    def logs(self) -> Iterator[Log]:
        """Those that are open."""
        return self._table.logs()

    def partitions(self, topic: str | None = None) -> list[Key]:
        """The partitions that have a directory here, open or not, online or not."""
        if topic is not None and (known := self._topics.get(topic)) is not None:
            keys = ((topic, partition) for partition in range(known.partitions))
            return [key for key in keys if key in self._table.entries]
        return [key for key in self._table.entries if topic is None or key[0] == topic]

    def is_online(self, topic: str, partition: int) -> bool:
        """True while the partition can be served; opens nothing. For Metadata, which shows a leader or none."""
        entry = self._table.entries.get((topic, partition))
        return entry is not None and entry.is_online

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The leader epoch of a partition; opens its log only when LogEntry.read_leader_epoch did not learn it.

        Raises BrokerError: unknown_topic_or_partition, kafka_storage_error.
        """
        entry = self._table.entries.get((topic, partition))
        epoch = None if entry is None else entry.leader_epoch
        if epoch is not None:
            return epoch
        log = self.get(topic, partition)
        if log is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no partition {topic}-{partition}")
        return log.leader_epoch

    def unknown_leader_epochs(self, topics: Iterable[Topic]) -> list[LogEntry]:
        """The partitions of these topics that `leader_epoch` would open."""
        entries = (
            self._table.entries.get((topic.name, partition))
            for topic in topics
            for partition in range(topic.partitions)
        )
        return [entry for entry in entries if entry is not None and entry.is_online and entry.leader_epoch is None]

    def log_dirs(self) -> Sequence[LogDirectory]:
        """All of them, those that have failed too."""
        return self._table.dirs.all

    def log_dir(self, topic: str, partition: int) -> LogDirectory | None:
        """Where a partition lies; None when this broker has none such."""
        entry = self._table.entries.get((topic, partition))
        return None if entry is None else entry.log_dir

    def dirs(self) -> list[LogDirUsage]:
        """Usage of each log directory, for DescribeLogDirs."""
        return self._table.usage()

    def usable_bytes(self) -> list[tuple[Path, int | None]]:
        """Free bytes of each log directory's file system; None: it is offline. Any thread; may wait for a disk."""
        found: list[tuple[Path, int | None]] = []
        for log_dir in self._table.dirs.all:
            try:
                facts = os.statvfs(log_dir.path)
            except OSError:
                found.append((log_dir.path, None))
            else:
                found.append((log_dir.path, facts.f_bavail * facts.f_frsize if log_dir.is_online else None))
        return found

    # ---- creating and deleting

    def place_all(self, keys: Iterable[Key]) -> NewPartitions:
        """Where new partitions go: each into the log directory with the fewest. Any thread. Raises BrokerError
        kafka_storage_error when there is none. For `create`, after `make`."""
        planned: Counter[Path] = Counter()
        log_dirs = {}
        for key in keys:
            log_dirs[key] = log_dir = self._table.next_log_dir(planned)
            planned[log_dir.path] += 1
        return NewPartitions(log_dirs)

    def create(
        self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig, places: NewPartitions | None = None
    ) -> Log:
        """A new, empty log. places: with its directory made; without, it is made here, which takes an fsync.

        Raises BrokerError: kafka_storage_error, topic_already_exists when there is such a partition. Whatever it
        raises, no directory of the partition is left, unless its log directory has failed.
        """
        key = (topic, partition)
        if key in self._table.entries or key in self._table.absent:
            raise BrokerError(ErrorCode.topic_already_exists, f"partition {topic}-{partition} is there already")
        while True:
            placed = None if places is None else places.log_dir_of(key)
            log_dir = placed or self._table.next_log_dir()
            path = log_dir.path / f"{topic}-{partition}"
            is_ours = False
            try:
                if places is not None and placed is not None:
                    places.take(key)
                else:
                    log_dir.forget_checkpointed([key])
                    path.mkdir(DIRECTORY_MODE)
                    fsync_directory(log_dir.path)
                is_ours = True
                log = Log(
                    LogIdentity(topic, partition, topic_id),
                    config,
                    # not synced: the registry knows the topic, so at worst the directory is made again
                    create_log_files(path, topic_id, log_start_offset=0, leader_epoch=0, sync=False),
                    self._clock.now_ms(),
                    call_soon=self._table.call_soon,
                    on_failure=self._table.on_failure(log_dir),
                )
            except FileExistsError as error:
                raise storage_error(topic, partition, f"{path} is there already, and not its log") from error
            except OSError as error:
                if not is_the_directorys(error):
                    if is_ours:
                        _remove_what_was_made(path)
                    raise storage_error(topic, partition, f"{path} cannot be made: {error}") from error
                log_dir.fail(error)
                continue  # with the directories that are left
            except Exception:
                if is_ours:
                    _remove_what_was_made(path)
                raise
            self._table.add(LogEntry(topic, partition, topic_id, log_dir, path, log))
            return log

    def miss(self, topic: str, partitions: Iterable[int]) -> None:
        """These partitions of a topic could not be made: they are offline, and made at the next start."""
        self._table.absent.update((topic, partition) for partition in partitions)

    def detach(self, keys: Iterable[Key], on_done: Callable[[], None] = lambda: None) -> PartitionRemoval:
        """Take partitions out of service; `finish` of the result, which blocks, gives their directories the suffix
        -delete, with which they go after file.delete.delay.ms."""
        entries = []
        for key in keys:
            entry = self._table.remove(key)
            if entry is not None:
                delay = self._table.config.log_segment_delete_delay_ms
                if entry.log is not None:
                    delay = entry.log.config.file_delete_delay_ms
                    entry.log.discard()
                entries.append((entry, delay))
        return PartitionRemoval(entries, self._housekeeper.schedule_removal, on_done)

    def detach_topic(self, topic: Topic) -> PartitionRemoval:
        """As `detach`, for all partitions of a topic that the registry has forgotten. Those of another topic of that
        name stay."""
        keys = []
        for partition in range(topic.partitions):
            key = (topic.name, partition)
            entry = self._table.entries.get(key)
            if entry is None:
                self._table.absent.discard(key)
            elif entry.topic_id == topic.id:
                keys.append(key)
        return self.detach(keys, partial(self.forget_deleted, [topic]))

    def forget_deleted(self, topics: Iterable[Topic]) -> None:
        """The directories of these topics are renamed. Blocks; any thread. Raises BrokerError kafka_storage_error."""
        if self._table.all_online:
            self._topics.forget_deleted([topic.id for topic in topics])

    def lower_checkpoints(self, topic: str, partition: int, offset: int) -> None:
        """Make the checkpoints ready for a log's truncation to `offset` (LogDirectory.lower_checkpointed). Blocks; any
        thread. Raises BrokerError kafka_storage_error."""
        entry = self._table.entries[topic, partition]
        try:
            entry.log_dir.lower_checkpointed(entry.key, offset)
        except OSError as error:
            self._table.call_soon(partial(entry.log_dir.fail, error))
            raise storage_error(topic, partition, f"a checkpoint cannot be written: {error}") from error

    def remove_later(self, paths: Iterable[Path], config: LogConfig) -> None:
        """Files that a truncation has renamed go after file.delete.delay.ms."""
        for path in paths:
            self._housekeeper.schedule_removal(path, config.file_delete_delay_ms)

    # ---- configuration

    def update_topic_config(self, name: str) -> None:
        """The registry has other overrides for a topic: its open logs go by them from now on."""
        topic = self._topics.get(name)
        if topic is not None:
            config = self._table.config_of(topic)
            for key in self.partitions(name):
                log = self._table.entries[key].log
                if log is not None:
                    log.update_config(config)

    def update_config(self, config: BrokerConfig) -> None:
        """The broker's defaults have changed: so may every log's configuration."""
        for _ in self.updating_config(config):
            pass

    def updating_config(self, config: BrokerConfig) -> Generator[None, None, None]:
        """As `update_config`, in steps, a topic at a time: 40 us each. Logs that are opened meanwhile have it."""
        self._table.config = config
        self.cleaner.reconfigure(config)
        for topic in list(self._topics):
            self.update_topic_config(topic.name)
            yield

    # ---- now and then

    def tick(self, now_ms: int) -> None:
        """Do what is due: flushes, retention, checkpoints, removals, expiry. Call it about once a second."""
        self._housekeeper.tick(now_ms)

    # ---- the end

    def shutdown(self) -> None:
        """Flush and close all logs, write the checkpoints and then the clean-shutdown marker, give the locks up.

        Blocks. A directory in which anything failed gets no marker: its logs are recovered at the next start.
        """
        if self._is_shut_down:
            return
        self._is_shut_down = True
        self.cleaner.stop()
        opened = [entry for entry in self._table.entries.values() if entry.log is not None]
        with ThreadPoolExecutor(_CLOSING_THREADS, "close") as pool:
            closed = {id(entry): pool.submit(self._close, entry) for entry in opened}
        for log_dir in self._table.dirs.all:
            if not log_dir.is_online:
                self.to_recover.append(log_dir.path)
                continue
            whole = log_dir.was_clean
            if log_dir.is_listed:  # else nothing is known of its logs, and nothing was done to them
                entries = [entry for entry in self._table.entries.values() if entry.log_dir is log_dir]
                whole = (log_dir.is_loaded or log_dir.was_clean) and all(
                    closed[id(entry)].result() if id(entry) in closed else entry.failure is None for entry in entries
                )
                whole = self._housekeeper.write_last_checkpoints(log_dir) and whole
            if whole:
                log_dir.guarded(partial(write_clean_shutdown, log_dir.path, _UNKNOWN_BROKER_EPOCH))
            if not whole or not log_dir.is_online:
                self.to_recover.append(log_dir.path)
        self._table.dirs.close()

    def _close(self, entry: LogEntry) -> bool:
        assert entry.log is not None
        try:
            entry.log.close()
        except BrokerError as error:
            _log.error("%s", error)
        except Exception:  # noqa: BLE001 - a fault of ours: the other logs are closed all the same
            _log.exception("%s could not be closed, and is recovered at the next start", entry.log.name)
            return False
        return entry.log.failure is None


def _remove_what_was_made(path: Path) -> None:
    """Remove the directory of a log that could not be created; failures are logged."""
    try:
        remove(path)
    except OSError as error:
        _log.warning("%s could not be removed: %s", path, error)
