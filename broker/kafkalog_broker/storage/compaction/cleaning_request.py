"""Request and result of a cleaning of one log. Loads no kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.partition.log_segment import LogSegment


class CleaningAborted(Exception):
    """The cleaning ended early, because the log was closed or changed, or the broker is stopping.

    This is not an error. Segments that were not replaced yet are unchanged.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRequest:
    """Log to clean.

    Attributes:
        segments: All segments of the log, the active one last.
        first_dirty_offset, first_uncleanable_offset: The dirty part of the log; see `Cleanable`.
    """

    directory: Path
    segments: Sequence[LogSegment]
    config: LogConfig
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int


@dataclass(slots=True)
class CleanerStatistics:
    """Totals of a cleaning; sizes in bytes.

    Attributes:
        map_bytes_read: Bytes read to fill the offset map.
        bytes_read: Bytes read to rewrite segments.
        map_utilization: Share of the offset map that is filled, 0 to 1.
        unreadable_batches: Number of batches kept unchanged because their records are malformed.
        first_unreadable: Base offset of the first one.
    """

    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    map_utilization: float = 0.0
    unreadable_batches: int = 0
    first_unreadable: int | None = None
