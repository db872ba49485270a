"""Whether a log can be used, and what becomes of it when its files fail.

An I/O error takes the log offline: from then on every operation raises kafka_storage_error, as a broker whose log
directory has failed answers. What was acknowledged before stays in the files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, NoReturn

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.log_segment import is_passing
from kafkalog_spark.errors import CorruptLog


class Availability:
    """State of one log. failure: the error that took it offline. name: `topic-0`.

    call_soon: how the two callbacks get from any thread to the one they live in. wake: called when the log goes
    offline. on_failure: called, once, with an error that was met here.
    """

    def __init__(
        self,
        name: str,
        call_soon: Callable[[Callable[[], None]], object],
        wake: Callable[[], None],
        on_failure: Callable[[OSError], None],
    ) -> None:
        self.failure: OSError | None = None
        self.is_closed = False
        self._name = name
        self._call_soon = call_soon
        self._wake = wake
        self._on_failure = on_failure

    def check(self) -> None:
        """Raise BrokerError kafka_storage_error for a log that is offline, unknown_topic_or_partition for one that was
        closed."""
        if self.failure is not None:
            raise BrokerError(
                ErrorCode.kafka_storage_error, f"the log is offline: {self.failure}", topic_partition=self._name
            )
        if self.is_closed:
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition, "the log has been closed", topic_partition=self._name
            )

    def close(self) -> None:
        """The log is let go of, and reports no failure any more."""
        self.is_closed = True
        self._on_failure = _nothing  # which was the log's: it is to be freed at once, not when garbage is collected

    def take_offline(self, error: OSError) -> None:
        if self.failure is None:
            self.failure = error
            self._call_soon(self._wake)

    def fail(self, error: OSError | CorruptLog, *, nothing_happened: bool = False) -> NoReturn:
        """Take the log offline and raise what the client gets. nothing_happened: the log is what it was before the
        operation, so that it stays online where only descriptors are lacking; clients try again."""
        if self.is_closed:
            self.check()
        if nothing_happened and is_passing(error):
            raise BrokerError(
                ErrorCode.kafka_storage_error,
                f"too many files are open: {error}; try again, and raise the limit of open files (ulimit -n)",
                topic_partition=self._name,
            ) from error
        failure = error if isinstance(error, OSError) else OSError(str(error))
        if self.failure is None:
            self.take_offline(failure)
            self._call_soon(partial(self._on_failure, failure))
        raise BrokerError(
            ErrorCode.kafka_storage_error, f"the log went offline: {error}", topic_partition=self._name
        ) from error


def _nothing(error: OSError) -> None:
    return None


# Whoever waits for a log to move: long polls, above all.


class Subscribers:
    """Callbacks of one log. All calls come from the thread that the log belongs to."""

    def __init__(self) -> None:
        self._callbacks: set[Callable[[], None]] = set()

    def add(self, callback: Callable[[], None]) -> None:
        self._callbacks.add(callback)

    def discard(self, callback: Callable[[], None]) -> None:
        self._callbacks.discard(callback)

    def wake(self) -> None:
        if self._callbacks:
            for callback in tuple(self._callbacks):  # a callback may unsubscribe itself
                callback()

    def clear(self) -> None:
        self._callbacks.clear()

    def __bool__(self) -> bool:
        return bool(self._callbacks)


# What a log says of an append.


class AppendInfo(NamedTuple):
    """What an append did. log_append_time_ms: -1 with CreateTime. duplicate: the offsets are those of the batch that
    the producer had sent before; nothing was appended."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
