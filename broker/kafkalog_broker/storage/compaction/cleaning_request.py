"""What a cleaning is asked for, what it asks, and what it says. No kernels are loaded for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_state import LastRecord


class CleaningAborted(Exception):
    """The log is no longer there, or changed under the cleaner: nothing is wrong, and what was not swapped in is as it
    was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRequest:
    """A log and what of it is to be cleaned. segments: all of it, the active one last."""

    name: str
    directory: Path
    segments: Sequence[LogSegment]
    config: LogConfig
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int


class CleaningHost(Protocol):
    """What a cleaning asks of whoever runs it. All of it may block."""

    def check(self) -> None:
        """Raise CleaningAborted when the cleaning is not to go on. Called for each window of bytes."""

    def throttle(self, size: int) -> None:
        """`size` bytes were read or written."""

    def last_records(self) -> Mapping[int, LastRecord]:
        """The producers that the log knows, by id."""

    def replace(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment]) -> None:
        """Swap finished segments in. Raises CleaningAborted when the old ones are not all there any more."""


@dataclass(slots=True)
class CleanerStatistics:
    """What a cleaning did, in bytes. map_utilization: how full the map of keys became, 0 to 1.

    unreadable_batches: batches that stay as they are because their records are malformed; first_unreadable: the base
    offset of the first one.
    """

    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    map_utilization: float = 0.0
    unreadable_batches: int = 0
    first_unreadable: int | None = None


# Holds a rate of bytes per second down, as Kafka's Throttler: what was too fast is slept off.

_CHECK_S = 0.3
"""How often the rate is looked at, as in Kafka: shorter, and sleeps would be too short to be exact."""


class Throttler:
    """rate: bytes per second; shared by threads, all of which wait. monotonic: a clock in seconds. wait: sleeps that
    many seconds."""

    def __init__(
        self,
        rate: float,
        wait: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._wait = wait
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since = monotonic()
        self._observed = 0

    def set_rate(self, rate: float) -> None:
        """From now on; a wait that has begun ends as it was meant."""
        self._rate = rate

    def observed(self, size: int) -> None:
        """`size` bytes were read or written; sleeps when that was too fast."""
        with self._lock:
            self._observed += size
            elapsed = self._monotonic() - self._since
            if elapsed < _CHECK_S or not self._observed:
                return
            due = self._observed / max(self._rate, 1.0)  # a rate of 0 is not for ever
            if due > elapsed:
                self._wait(due - elapsed)
            self._since = self._monotonic()
            self._observed = 0
