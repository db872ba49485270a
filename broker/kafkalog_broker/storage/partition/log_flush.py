"""Flushing of one log, and its producer snapshots.

Flushing runs in a thread while the log's writer goes on. `lock` is held for the whole of a flush; nothing that appends
or reads takes it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_state import ProducerPicture, ProducerState
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import fsync_directory, fsync_file
from kafkalog_spark.format.producer_snapshot import write_producer_snapshot

EVERY_APPEND = 1
"""The value of flush.messages with which only what is on disk is acknowledged and shown to consumers."""

PRODUCERS_AT_ONCE = 1_000
"""Producers written into snapshots by the event loop: 3 ms."""


class Flushing:
    """Flush state of a log. recovery_point: everything below is on disk. count, seconds: flushes, their time."""

    def __init__(self, directory: Path, recovery_point: int) -> None:
        self.recovery_point = recovery_point
        self.lock = threading.RLock()
        self.count, self.seconds = 0, 0.0
        self._directory = directory
        self._names_changed = True  # files made or renamed since the directory was last synced
        self._snapshots: dict[Path, ProducerPicture] = {}
        self._removed: deque[LogSegment] = deque()  # by retention, their writers still open
        self._unflushed_since_ms: int | None = None
        self._last_append_ms = 0

    # ---- called by the writer

    def appended(self, now_ms: int) -> None:
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        self._last_append_ms = now_ms

    def rolled(self) -> None:
        self._names_changed = True

    def snapshot_taken(self, path: Path, picture: ProducerPicture) -> None:
        """A producer snapshot is to be written: by the next flush, in its thread, since that takes 3 us a producer."""
        self._snapshots[path] = picture
        self._names_changed = True

    def write_snapshots(self) -> bool:
        """Write those that were taken, without waiting for the disk, which the next flush does. False where it has to
        write them too: one is going on, or they hold too much."""
        if sum(len(picture.producers) for picture in self._snapshots.values()) > PRODUCERS_AT_ONCE:
            return False
        if not self.lock.acquire(blocking=False):
            return not self._snapshots
        try:
            for path, picture in self._snapshots.items():
                if not path.exists():
                    write_producer_snapshot(path, picture.entries(), sync=False)
        finally:
            self.lock.release()
        return True

    def forget_snapshot(self, path: Path) -> None:
        """The segment that begins there is gone, and so is what is left to write."""
        self._snapshots.pop(path, None)

    def forget_snapshots_after(self, end: int) -> None:
        """As `forget_snapshot`, for those of offsets above `end`. The caller holds `lock`."""
        for path in list(self._snapshots):
            if int(path.stem) > end:
                del self._snapshots[path]

    def removed(self, segment: LogSegment) -> None:
        """A segment whose files were renamed by retention: its writer is closed as soon as no flush is using it."""
        if segment.writer is not None or segment.transaction_writer is not None:
            self._removed.append(segment)
            if self.lock.acquire(blocking=False):
                try:
                    self._close_removed()
                finally:
                    self.lock.release()

    def truncated(self, end: int) -> None:
        """The log ends at `end` now."""
        self.recovery_point = min(self.recovery_point, end)
        self._names_changed = True

    # ---- asked

    def is_due(self, now_ms: int, flush_messages: int, flush_ms: int, segments: Sequence[LogSegment], end: int) -> bool:
        """True when the settings, a rolled segment, or its snapshot, ask for a flush."""
        if self._snapshots:
            return True
        if end <= self.recovery_point:
            return False
        since = self._unflushed_since_ms
        return (
            end - self.recovery_point >= flush_messages
            or (since is not None and not 0 <= now_ms - since < flush_ms)  # below 0: the clock was set back
            or (len(segments) > 1 and segments[-1].base_offset > self.recovery_point)
        )

    # ---- done

    def flush(self, segments: Sequence[LogSegment], end: int, *, whole: bool = False) -> None:
        """Return when everything below `end` is on disk. The caller holds `lock`, and has read `end` before `segments`.

        Of the active segment only the .log is synced, unless `whole`: recovery makes the indexes of segments at and
        above the recovery point again. Raises OSError; nothing counts as flushed then.
        """
        appended_until, began = self._last_append_ms, perf_counter()
        self._close_removed()
        for path, picture in tuple(self._snapshots.items()):
            write_producer_snapshot(path, picture.entries(), sync=False)
            fsync_file(path)
            if self._snapshots.pop(path, None) is None:
                path.unlink(missing_ok=True)  # its segment has gone meanwhile
        for segment in segments[:-1]:
            if segment.next_offset > self.recovery_point:
                segment.flush()
                segment.close_writer()
        active = segments[-1]
        if whole:
            active.flush()
        elif active.size:
            active.sync_data()
        if self._names_changed:
            self._names_changed = False
            try:
                fsync_directory(self._directory)
            except OSError:
                self._names_changed = True
                raise
        # What was appended since has been waiting since then at the earliest.
        self._unflushed_since_ms = appended_until if self._last_append_ms > appended_until else None
        self.recovery_point = max(self.recovery_point, end)
        self.count += 1
        self.seconds += perf_counter() - began

    def abandon(self) -> None:
        """Close removed segments and drop unwritten snapshots: the log is discarded."""
        self._close_removed()
        self._snapshots.clear()

    def _close_removed(self) -> None:
        while self._removed:
            self._removed.popleft().abandon()


class ProducerSnapshots:
    """Producer snapshots of one log, one where each segment begins (ProducerStateManager.takeSnapshot); `flushing`
    writes them."""

    def __init__(self, directory: Path, producers: ProducerState, flushing: Flushing) -> None:
        self._directory = directory
        self._producers = producers
        self._flushing = flushing
        self._last = -1

    def take(self, log_end_offset: int) -> bool:
        """Take the snapshot of the log end offset, once; the next flush, which a roll always asks for, writes it. False
        when it is there already, or nothing was ever appended."""
        self._producers.end_offset = log_end_offset
        path = self._path(log_end_offset)
        if log_end_offset <= self._last or log_end_offset == 0 or path.exists():
            return False
        self._last = log_end_offset
        self._flushing.snapshot_taken(path, self._producers.picture())
        return True

    def remove(self, offset: int) -> list[Path]:
        """A snapshot goes with the segment that begins where it was taken; the file, renamed `.deleted`. Raises
        OSError."""
        snapshot = self._path(offset)
        self._flushing.forget_snapshot(snapshot)
        if not snapshot.exists():
            return []
        return [snapshot.rename(snapshot.with_name(snapshot.name + names.DELETED_SUFFIX))]

    def offsets(self) -> list[int]:
        """Offsets of the snapshots on disk, rising. Raises OSError."""
        suffix = names.PRODUCER_SNAPSHOT_SUFFIX
        stems = (path.name.removesuffix(suffix) for path in self._directory.glob(f"*{suffix}"))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def truncate(self, end: int) -> list[Path]:
        """The log ends at `end` now: snapshots past it go. As `remove`."""
        self._last = -1  # one at `end` may be missing: closing has to take it
        self._flushing.forget_snapshots_after(end)
        return [path for offset in self.offsets() if offset > end for path in self.remove(offset)]

    def _path(self, offset: int) -> Path:
        return self._directory / (names.segment_name(offset) + names.PRODUCER_SNAPSHOT_SUFFIX)
