"""The leader epochs of one log: which epoch wrote from which offset on (LeaderEpochFileCache). On disk before the first
batch of a new epoch is written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

from kafkalog_spark.format import checkpoint
from kafkalog_spark.format.checkpoint import EpochEntry

UNDEFINED_EPOCH = -1


class LeaderEpochs:
    """The entries, by epoch; both epochs and start offsets rise. Not thread-safe."""

    def __init__(self, directory: Path, entries: Iterable[EpochEntry] = ()) -> None:
        """`entries` as read from the file. Entries that go back are dropped, as Kafka does when it reads them."""
        self._path = directory / checkpoint.LEADER_EPOCH_CHECKPOINT
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self._entries = _with(self._entries, entry)
        self.latest = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    @classmethod
    def read(cls, directory: Path) -> LeaderEpochs:
        """Raises CorruptFile, UnsupportedFormat, OSError; a missing file has no entries."""
        return cls(directory, checkpoint.read_leader_epochs(directory / checkpoint.LEADER_EPOCH_CHECKPOINT))

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int, *, sync: bool = True) -> None:
        """Batches of `epoch` begin at `start_offset`; nothing is written where that is no news. On disk on return with
        `sync`. A new entry takes the place of those with an epoch or a start offset at or above its own."""
        if epoch != self.latest or self._entries[-1].start_offset > start_offset:
            self._write(_with(self._entries, EpochEntry(epoch, start_offset)), sync=sync)

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

    def truncate_from_end(self, end_offset: int, *, sync: bool = False) -> None:
        """The log ends at `end_offset` now: entries that begin there or later go."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._write(kept, sync=sync)

    def truncate_from_start(self, start_offset: int, *, sync: bool = False) -> None:
        """The log begins at `start_offset` now: the entry that covers it stays, and begins there."""
        slot = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if slot == 0 or (slot == 1 and self._entries[0].start_offset == start_offset):
            return
        first = EpochEntry(self._entries[slot - 1].epoch, start_offset)
        self._write([first, *self._entries[slot:]], sync=sync)

    def replace(self, entries: Iterable[EpochEntry]) -> None:
        """The log is another one now, with these entries; on disk on return."""
        self._write(list(entries), sync=True)

    def clear(self) -> None:
        if self._entries:
            self._write([], sync=True)

    def _write(self, entries: list[EpochEntry], *, sync: bool) -> None:
        checkpoint.write_leader_epochs(self._path, entries, sync=sync)
        self._entries = entries
        self.latest = entries[-1].epoch if entries else UNDEFINED_EPOCH


def _with(entries: list[EpochEntry], new: EpochEntry) -> list[EpochEntry]:
    kept = [entry for entry in entries if entry.epoch < new.epoch and entry.start_offset < new.start_offset]
    return [*kept, new]
