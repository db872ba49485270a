"""Table of the partitions of this broker: each with its log directory, and its log once it is open.

A log is opened at its first use. If a log directory fails, only its partitions go offline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.file_fault import FileFault, file_fault
from kafkalog_broker.storage.log_directories import LogDirectories
from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.log_entry import Key, LogEntry, storage_error, take_offline
from kafkalog_broker.storage.partition.loaded_log import LoadedLog
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.recovery.log_loader import LoadRequest, RecoveryNeeded, load_log
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition

_log = logging.getLogger(__name__)

CallSoon = Callable[[Callable[[], object]], object]
"""Runs a function on the thread that owns the logs, immediately or soon."""


@dataclass(eq=False)
class LogTable:
    """Partitions of this broker by topic and partition number.

    Attributes:
        config: Broker configuration; replaced as a whole.
        call_soon: Runs a function on the thread that owns the logs.
        on_all_offline: Called once, on that thread, when the last log directory has failed.
        entries: Partitions that have a directory, online or not.
        absent: Partitions of the registry that have no directory here, with the reason. The directory may be in a log
            directory that is offline.
    """

    dirs: LogDirectories
    config: BrokerConfig
    topics: TopicRegistry
    clock: Clock
    _: KW_ONLY
    call_soon: CallSoon = lambda function: function()
    on_all_offline: Callable[[], None] = lambda: None
    entries: dict[Key, LogEntry] = field(init=False, default_factory=dict)
    absent: dict[Key, str] = field(init=False, default_factory=dict)
    _serving_thread: int | None = field(init=False, default=None)
    _run_in_background: Callable[[Callable[[], None]], object] = field(init=False, default=lambda work: work())

    def __post_init__(self) -> None:
        for log_dir in self.dirs.all:
            log_dir.on_failure = partial(self._take_offline, log_dir)

    def serve(self, run_in_background: Callable[[Callable[[], None]], object]) -> None:
        """Declare the calling thread to be the one that handles requests.

        From now on that thread does not recover logs: `run_in_background` runs a recovery on another thread.
        """
        self._serving_thread = threading.get_ident()
        self._run_in_background = run_in_background

    @property
    def _may_block(self) -> bool:
        """False on the thread that handles requests."""
        return threading.get_ident() != self._serving_thread

    def get(self, topic: str, partition: int) -> Log | None:
        """Return the partition's log, opened at first use; None if this broker does not have the partition.

        Raises:
            BrokerError: kafka_storage_error.
        """
        entry = self.entries.get((topic, partition))
        if entry is None:
            if (reason := self.absent.get((topic, partition))) is not None:
                raise storage_error(topic, partition, reason)
            return None
        return entry.log if entry.log is not None and entry.log.failure is None else self.open(entry)

    def logs(self) -> Iterator[Log]:
        """Yield all open logs."""
        for entry in list(self.entries.values()):
            if entry.log is not None:
                yield entry.log

    def add(self, entry: LogEntry) -> None:
        self.entries[entry.key] = entry
        entry.log_dir.partitions += 1

    def remove(self, key: Key) -> LogEntry | None:
        self.absent.pop(key, None)
        entry = self.entries.pop(key, None)
        if entry is not None:
            entry.log_dir.partitions -= 1
        return entry

    def config_of(self, topic: Topic | None) -> LogConfig:
        """Return the effective configuration of a topic. Raises ConfigError for invalid overrides."""
        return LogConfig.of(self.config, {} if topic is None else topic.configs)

    def open(self, entry: LogEntry, on_bytes: Callable[[int], None] | None = None) -> Log:
        """Open the log of a partition.

        Any thread. If another thread is opening the log, the call waits for it and returns its log; the thread that
        handles requests does not wait, but raises an error that clients retry.

        Args:
            on_bytes: As in `load_log`.

        Raises:
            BrokerError: kafka_storage_error. If the log is damaged, the partition stays offline until the next start.
        """
        if not entry.opening.acquire(blocking=self._may_block):
            raise storage_error(*entry.key, f"{entry.path} is being opened")
        try:
            if entry.log is not None and entry.log.failure is None:
                return entry.log
            return self._open(entry, on_bytes)
        finally:
            entry.opening.release()

    def _open(self, entry: LogEntry, on_bytes: Callable[[int], None] | None) -> Log:
        log_dir = entry.log_dir
        if not log_dir.is_online:
            raise storage_error(*entry.key, f"log directory {log_dir.path} is offline")
        if entry.log is not None:
            raise storage_error(*entry.key, f"the log is offline: {entry.log.failure}")
        if entry.failure is not None:
            raise storage_error(*entry.key, entry.failure)
        if entry.is_recovering:
            raise storage_error(*entry.key, f"{entry.path} is being recovered")
        now_ms = self.clock.now_ms()
        try:
            config = self.config_of(self.topics.get(entry.topic))
            request = LoadRequest(
                directory=entry.path, clean=log_dir.was_clean, recovery_point=entry.recovery_point,
                log_start_offset=entry.log_start_offset, index_interval_bytes=config.index_entry_bytes,
                max_index_size=config.segment_index_bytes, now_ms=now_ms,
                producer_id_expiration_ms=self.config.producer_id_expiration_ms,
                has_remote_segments=config.remote_storage_enable, is_compacted=config.is_compacted,
                contiguous_from=entry.contiguous_from if self.topics.was_read else None,
                may_recover=self._may_block,
            )  # fmt: skip
            loaded = load_log(request, on_bytes)
            entry.log = self.new_log(entry, config, loaded, now_ms)
        except OSError as error:
            message = f"{entry.path} cannot be opened: {error}"
            take_offline(entry, error, message)
            raise storage_error(*entry.key, message) from error
        except RecoveryNeeded as error:
            _log.warning("%s; recovering the log in the background", error)
            entry.is_recovering = True
            self._run_in_background(partial(self._recover_in_background, entry, replace(request, may_recover=True)))
            raise storage_error(*entry.key, f"{entry.path} is being recovered: {error.what}") from error
        except KafkalogError as error:
            entry.failure = str(error)
            raise storage_error(*entry.key, entry.failure) from error
        except Exception as error:  # a bug must not keep the broker from serving the other partitions
            _log.exception("%s cannot be opened", entry.path)
            entry.failure = f"{entry.path} cannot be opened: {type(error).__name__}: {error}"
            raise storage_error(*entry.key, entry.failure) from error
        return entry.log

    def _recover_in_background(self, entry: LogEntry, request: LoadRequest) -> None:
        """Recover a log; runs on a background thread."""
        loaded, failure = None, None
        try:
            loaded = load_log(request)
        except OSError as error:
            _log.error("%s cannot be recovered: %s", entry.path, error)
            self.call_soon(partial(take_offline, entry, error, f"{entry.path} cannot be opened: {error}"))
        except Exception as error:  # noqa: BLE001 - damage or a bug; the other logs are still served
            _log.exception("%s cannot be recovered", entry.path)
            failure = f"{entry.path} cannot be opened: {error}"
        self.call_soon(partial(self._finish_recovery, entry, loaded, failure))

    def _finish_recovery(self, entry: LogEntry, loaded: LoadedLog | None, failure: str | None) -> None:
        entry.is_recovering = False
        if failure is not None:
            entry.failure = failure
        if loaded is not None and self.entries.get(entry.key) is entry and entry.log_dir.is_online:
            config = self.config_of(self.topics.get(entry.topic))
            entry.log = self.new_log(entry, config, loaded, self.clock.now_ms())

    def new_log(self, entry: LogEntry, config: LogConfig, loaded: LoadedLog, now_ms: int) -> Log:
        """Create the Log of a partition whose files are loaded."""
        identity = TopicIdPartition(entry.topic, entry.topic_id, entry.partition)
        on_failure = partial(_report_log_failure, entry.log_dir)
        return Log(identity, config, loaded, now_ms, call_soon=self.call_soon, on_failure=on_failure)

    def if_open(self, topic: str, partition: int) -> Log | None:
        """Return the partition's log if it is open and online."""
        entry = self.entries.get((topic, partition))
        return entry.log if entry is not None and entry.is_online else None

    def partitions(self, topic: str | None = None) -> list[Key]:
        """Return the partitions that have a directory here, online or not.

        Args:
            topic: Return only those of this topic.
        """
        if topic is not None and (registered := self.topics.get(topic)) is not None:
            keys = ((topic, partition) for partition in range(registered.partitions))
            return [key for key in keys if key in self.entries]
        return [key for key in self.entries if topic is None or key[0] == topic]

    def is_online(self, topic: str, partition: int) -> bool:
        entry = self.entries.get((topic, partition))
        return entry is not None and entry.is_online

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return a partition's leader epoch; opens its log only if the epoch was not read from its file.

        Raises:
            BrokerError: unknown_topic_or_partition, kafka_storage_error.
        """
        entry = self.entries.get((topic, partition))
        epoch = None if entry is None else entry.leader_epoch
        if epoch is not None:
            return epoch
        log = self.get(topic, partition)
        if log is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"partition {topic}-{partition} does not exist")
        return log.leader_epoch

    def unknown_leader_epochs(self, topics: Iterable[Topic]) -> list[LogEntry]:
        """Return the online partitions of these topics whose log `leader_epoch` would have to open."""
        entries = (
            self.entries.get((topic.name, partition)) for topic in topics for partition in range(topic.partitions)
        )
        return [entry for entry in entries if entry is not None and entry.is_online and entry.leader_epoch is None]

    def log_dir(self, topic: str, partition: int) -> LogDirectory | None:
        entry = self.entries.get((topic, partition))
        return None if entry is None else entry.log_dir

    @property
    def all_online(self) -> bool:
        return all(log_dir.is_online for log_dir in self.dirs.all)

    def next_log_dir(self, planned: Mapping[Path, int] = MappingProxyType({})) -> LogDirectory:
        """Return the log directory for a new partition: the online one with the fewest partitions
        (`LogManager.nextLogDirs`).

        Args:
            planned: Number of other partitions that are about to be created in each directory.

        Raises:
            BrokerError: kafka_storage_error if all directories are offline or cordoned.
        """
        cordoned = {Path(path) for path in self.config.cordoned_log_dirs}
        usable = [log_dir for log_dir in self.dirs.online if log_dir.path not in cordoned]
        if not usable:
            raise BrokerError(
                ErrorCode.kafka_storage_error, "no log directory accepts new partitions: all are offline or cordoned"
            )
        return min(usable, key=lambda log_dir: log_dir.partitions + planned.get(log_dir.path, 0))

    def _take_offline(self, log_dir: LogDirectory, error: BaseException) -> None:
        failure = error if isinstance(error, OSError) else OSError(str(error))
        for entry in list(self.entries.values()):
            if entry.log_dir is log_dir and entry.log is not None:
                entry.log.take_offline(failure)
        if not self.dirs.online:
            _log.error("all log directories have failed: the broker can no longer serve requests")
            self.call_soon(self.on_all_offline)


def _report_log_failure(log_dir: LogDirectory, log: Log, error: OSError) -> None:
    if file_fault(error) is FileFault.DIRECTORY:
        log_dir.fail(error)
    else:
        _log.error("%s is offline: %s", log.name, error)
