"""State of one log that its parts share: files, epochs, producers, high watermark, subscribers, availability.

An I/O error takes the log offline: from then on every operation raises kafka_storage_error, as a broker whose log
directory has failed answers. Acknowledged records stay in the files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, NoReturn

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.loaded_log import LoadedLog
from kafkalog_broker.storage.partition.local_log import LocalLog
from kafkalog_broker.storage.partition.log_flush import ProducerSnapshots
from kafkalog_broker.storage.partition.log_segment import is_passing
from kafkalog_spark.errors import CorruptLog


class AppendInfo(NamedTuple):
    """Result of an append. log_append_time_ms: -1 with CreateTime. duplicate: the offsets are those of the batch that
    the producer had sent before; nothing was appended."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class LogState:
    """Belongs to the log's thread, but for `check`, `fail` and `take_offline`. name: `topic-0`.

    high_watermark: offset up to which consumers read. appended_bytes: since the log was opened; never less than before,
    whatever retention takes. follows: the log copies another broker's, and takes no appends of its own. failure: the
    error that took it offline. call_soon: runs a callback in the log's thread. on_failure: called, once, with an error
    that was met in this log.
    """

    def __init__(
        self,
        name: str,
        loaded: LoadedLog,
        local: LocalLog,
        call_soon: Callable[[Callable[[], None]], object],
        on_failure: Callable[[OSError], None],
    ) -> None:
        self.name = name
        self.local = local
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = ProducerSnapshots(loaded.directory, loaded.producers, local.flushing)
        # One replica: whatever was in the log when it was opened is as replicated as it will ever be.
        self.high_watermark = loaded.log_end_offset
        self.appended_bytes = 0
        self.follows = False
        self.failure: OSError | None = None
        self.is_closed = False
        self.call_soon = call_soon
        self.subscribers: set[Callable[[], None]] = set()
        self._on_failure = on_failure

    def wake(self) -> None:
        """Call the subscribers: long polls, above all."""
        if self.subscribers:
            for callback in tuple(self.subscribers):  # a callback may unsubscribe itself
                callback()

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end offset, with a producer snapshot. Raises OSError, CorruptLog."""
        self.local.roll(now_ms)
        self.snapshots.take(self.local.log_end_offset)

    def move_log_start(self, offset: int) -> None:
        """Raise the log start offset to `offset`, which is not above the high watermark. Raises BrokerError
        kafka_storage_error."""
        if offset <= self.local.log_start_offset:
            return
        self.local.log_start_offset = offset
        try:
            self.epochs.truncate_from_start(offset)
        except OSError as error:
            self.fail(error)
        self.producers.on_log_start_offset(offset)
        self.wake()

    # ---- availability

    def check(self) -> None:
        """Raise BrokerError kafka_storage_error for a log that is offline, unknown_topic_or_partition for one that was
        closed."""
        if self.failure is not None:
            raise BrokerError(
                ErrorCode.kafka_storage_error, f"the log is offline: {self.failure}", topic_partition=self.name
            )
        if self.is_closed:
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition, "the log has been closed", topic_partition=self.name
            )

    def close(self) -> None:
        """Report no failure any more. Subscribers are called a last time."""
        self.is_closed = True
        self._on_failure = _ignore  # drops the reference to the log: it is freed at once, not by a garbage collection
        self.local.abandon()
        self.wake()
        self.subscribers.clear()

    def take_offline(self, error: OSError) -> None:
        if self.failure is None:
            self.failure = error
            self.call_soon(self.wake)

    def fail(self, error: OSError | CorruptLog, *, nothing_happened: bool = False) -> NoReturn:
        """Take the log offline and raise BrokerError kafka_storage_error. nothing_happened: the operation changed
        nothing, so the log stays online where only descriptors are lacking; clients try again."""
        if self.is_closed:
            self.check()
        if nothing_happened and is_passing(error):
            raise BrokerError(
                ErrorCode.kafka_storage_error,
                f"too many files are open: {error}; try again, and raise the limit of open files (ulimit -n)",
                topic_partition=self.name,
            ) from error
        failure = error if isinstance(error, OSError) else OSError(str(error))
        if self.failure is None:
            self.take_offline(failure)
            self.call_soon(partial(self._on_failure, failure))
        raise BrokerError(
            ErrorCode.kafka_storage_error, f"the log went offline: {error}", topic_partition=self.name
        ) from error


def _ignore(error: OSError) -> None:
    return None
