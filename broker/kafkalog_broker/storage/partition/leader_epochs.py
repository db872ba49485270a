"""Leader epochs of one log: the start offset of each epoch (Kafka: `LeaderEpochFileCache`).

A new epoch is on disk before its first batch is written. A truncation changes only the entries in memory, and the next
flush of the log writes the file (Kafka: `truncateFromStartAsyncFlush`). After a crash the file may therefore contain
entries that the log no longer has; loading removes them. No entry of the log is ever missing in it, because remote
segments are assigned to a log by its leader epochs.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kafkalog_spark.format import checkpoint
from kafkalog_spark.format.checkpoint import EpochEntry

UNDEFINED_EPOCH = -1


class EpochEndOffset(NamedTuple):
    """Leader epoch and the offset after its last record; both are -1 if unknown."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Entries of the leader epoch checkpoint; epochs and start offsets are both strictly ascending.

    Changes belong to the thread that owns the log. `flush` may run on another thread meanwhile.

    Attributes:
        latest: Latest epoch, or -1.
        is_flushed: False while the file contains entries that were truncated in memory.
    """

    def __init__(self, directory: Path, entries: Iterable[EpochEntry] = ()) -> None:
        """Create the cache of a log directory. entries: Content of the file; entries out of order are dropped."""
        self._path = directory / checkpoint.LEADER_EPOCH_CHECKPOINT
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self._entries = _with_entry(self._entries, entry)
        self.latest = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        self.is_flushed = True
        self._writing = threading.Lock()

    @classmethod
    def read(cls, directory: Path) -> LeaderEpochs:
        """Read the checkpoint of a log directory; a missing file has no entries.

        Raises CorruptFile, UnsupportedFormat, OSError.
        """
        return cls(directory, checkpoint.read_leader_epochs(directory / checkpoint.LEADER_EPOCH_CHECKPOINT))

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record durably that the batches of `epoch` begin at `start_offset`.

        The entry replaces all entries with an epoch or start offset at or above its own. Nothing is written if `epoch`
        is already the latest and began at or below `start_offset`.

        Raises:
            OSError: If the file cannot be written.
        """
        if epoch != self.latest or self._entries[-1].start_offset > start_offset:
            self._change(_with_entry(self._entries, EpochEntry(epoch, start_offset)))
            self.flush()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Find the end of an epoch (Kafka: `endOffsetFor`).

        Returns:
            The largest known epoch not above `epoch`, and the start offset of the next one. (-1, -1) if `epoch` is
            above the latest or there are no entries. For an epoch below the first one: that epoch, and the first one's
            start offset.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self.latest:
            return EpochEndOffset(UNDEFINED_EPOCH, -1)
        if epoch == self.latest:
            return EpochEndOffset(epoch, log_end_offset)
        slot = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if slot == 0:
            return EpochEndOffset(epoch, self._entries[0].start_offset)
        return EpochEndOffset(self._entries[slot - 1].epoch, self._entries[slot].start_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch that wrote `offset`; -1 if it is unknown (Kafka: `epochForOffset`)."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[slot - 1].epoch if slot else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the entries that begin at or after `end_offset`, the new log end offset. `flush` writes the file."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._change(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end at or below `start_offset`, the new log start offset; the next one begins there.

        `flush` writes the file.
        """
        slot = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if slot == 0 or (slot == 1 and self._entries[0].start_offset == start_offset):
            return
        first = EpochEntry(self._entries[slot - 1].epoch, start_offset)
        self._change([first, *self._entries[slot:]])

    def replace(self, entries: Iterable[EpochEntry]) -> None:
        """Replace all entries durably, for a log with another history. Raises OSError."""
        self._change(list(entries))
        self.flush()

    def clear(self) -> None:
        """Remove all entries durably. Raises OSError."""
        if self._entries:
            self.replace(())

    def flush(self) -> None:
        """Write the file and sync it to disk, unless it is up to date. May be called in any thread. Raises OSError."""
        with self._writing:
            while not self.is_flushed:
                self.is_flushed = True
                try:
                    checkpoint.write_leader_epochs(self._path, self._entries)
                except BaseException:
                    self.is_flushed = False
                    raise

    def _change(self, entries: list[EpochEntry]) -> None:
        self._entries = entries  # a new list, because `flush` may be writing the old one
        self.latest = entries[-1].epoch if entries else UNDEFINED_EPOCH
        self.is_flushed = False


def _with_entry(entries: list[EpochEntry], new: EpochEntry) -> list[EpochEntry]:
    kept = [entry for entry in entries if entry.epoch < new.epoch and entry.start_offset < new.start_offset]
    return [*kept, new]
