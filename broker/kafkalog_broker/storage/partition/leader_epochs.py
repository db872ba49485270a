"""The leader epochs of one log: which epoch wrote from which offset on (LeaderEpochFileCache).

A new epoch is on disk before its first batch is written. Truncation changes only memory; the next flush of the log
writes the file, as Kafka does with `truncateFromStartAsyncFlush`. The file may therefore hold entries that the log no
longer has, and loading removes them. It never holds less than the log needs: without the lineage of a log, its remote
segments cannot be told from those of another history.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

from kafkalog_spark.format import checkpoint
from kafkalog_spark.format.checkpoint import EpochEntry

UNDEFINED_EPOCH = -1


class LeaderEpochs:
    """The entries, by epoch; both epochs and start offsets rise.

    Changes belong to the thread that owns the log; `flush` may run in another thread meanwhile.
    """

    def __init__(self, directory: Path, entries: Iterable[EpochEntry] = ()) -> None:
        """`entries` as read from the file. Entries that go back are dropped, as Kafka does when it reads them."""
        self._path = directory / checkpoint.LEADER_EPOCH_CHECKPOINT
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self._entries = _with(self._entries, entry)
        self.latest = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        self.is_flushed = True
        """False while the file has entries that were truncated in memory."""
        self._writing = threading.Lock()

    @classmethod
    def read(cls, directory: Path) -> LeaderEpochs:
        """Raises CorruptFile, UnsupportedFormat, OSError; a missing file has no entries."""
        return cls(directory, checkpoint.read_leader_epochs(directory / checkpoint.LEADER_EPOCH_CHECKPOINT))

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that the batches of `epoch` begin at `start_offset`; on disk on return.

        The entry replaces those with an epoch or a start offset at or above its own. Nothing is written if the latest
        epoch is `epoch` already and began at or below `start_offset`. Raises OSError.
        """
        if epoch != self.latest or self._entries[-1].start_offset > start_offset:
            self._change(_with(self._entries, EpochEntry(epoch, start_offset)))
            self.flush()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset): the largest epoch not above `epoch`, and where the next one begins; (-1, -1) for an
        epoch above the latest or when nothing is known; for one below the first, the first's start."""
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self.latest:
            return UNDEFINED_EPOCH, -1
        if epoch == self.latest:
            return epoch, log_end_offset
        slot = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if slot == 0:
            return epoch, self._entries[0].start_offset
        return self._entries[slot - 1].epoch, self._entries[slot].start_offset

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 when it is not known."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[slot - 1].epoch if slot else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the entries that begin at or after `end_offset`, the new end of the log. `flush` writes the file."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._change(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Let the entry that covers `start_offset`, the new start of the log, begin there, and remove those below it.
        `flush` writes the file."""
        slot = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if slot == 0 or (slot == 1 and self._entries[0].start_offset == start_offset):
            return
        first = EpochEntry(self._entries[slot - 1].epoch, start_offset)
        self._change([first, *self._entries[slot:]])

    def replace(self, entries: Iterable[EpochEntry]) -> None:
        """Take the entries of another history of the log; on disk on return. Raises OSError."""
        self._change(list(entries))
        self.flush()

    def clear(self) -> None:
        """Remove all entries; on disk on return. Raises OSError."""
        if self._entries:
            self.replace(())

    def flush(self) -> None:
        """Write the entries to the file unless it has them; on disk on return. Any thread. Raises OSError."""
        with self._writing:
            while not self.is_flushed:
                self.is_flushed = True
                try:
                    checkpoint.write_leader_epochs(self._path, self._entries)
                except BaseException:
                    self.is_flushed = False
                    raise

    def _change(self, entries: list[EpochEntry]) -> None:
        self._entries = entries  # a new list: `flush` may be writing the old one
        self.latest = entries[-1].epoch if entries else UNDEFINED_EPOCH
        self.is_flushed = False


def _with(entries: list[EpochEntry], new: EpochEntry) -> list[EpochEntry]:
    kept = [entry for entry in entries if entry.epoch < new.epoch and entry.start_offset < new.start_offset]
    return [*kept, new]
