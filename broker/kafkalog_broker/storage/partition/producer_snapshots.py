"""The producer snapshots of one log: one where each segment begins (ProducerStateManager.takeSnapshot)."""

from __future__ import annotations

from pathlib import Path

from kafkalog_broker.storage.partition.log_flush import Flushing
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_spark.log.format import names


class ProducerSnapshots:
    """Takes and removes them; `flushing` writes them."""

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
        """Of those on disk, rising. Raises OSError."""
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
