"""Watches of files and directories: whether one may have changed since it was last looked at."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from kafkalog_spark.format.checkpoint import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.store.interface import FileFacts, Store

COARSE_NS = 2_000_000_000
"""Resolution of a file system that keeps whole seconds (NFS 3, ext3) or every other one (FAT)."""
FINE_NS = 100_000_000
"""Resolution of all others: Linux stamps files with the time of its last timer tick, 1 to 10 ms ago."""


class Watch:
    """Path, and what stat said of it when it was last looked at.

    A state counts as looked at only when that was done so long after the state was first seen that no later change can
    have the same mtime, measured with our clock alone: the file system's may be another machine's.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._state: tuple[int, int, int, int] | None = None
        self._first_seen_ns = 0
        self._looked_at = False

    def changed(self, now_ns: int) -> bool:
        """True if there may be something new; if so, the caller looks now. `now_ns`: of a clock that never goes back,
        read before this call. Raises OSError when the path cannot be reached."""
        facts = os.stat(self.path)
        state = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if state != self._state:
            self._state, self._first_seen_ns, self._looked_at = state, now_ns, False
            return True
        if self._looked_at:
            return False
        granularity = FINE_NS if facts.st_mtime_ns % 1_000_000_000 else COARSE_NS
        self._looked_at = now_ns - self._first_seen_ns >= granularity
        return True

    def forget(self) -> None:
        """Let the next call say that there is something new."""
        self._state = None


PAGE = 1000
"""Names that a LIST gives at once: up to so many, a whole listing costs no more than its tail does."""
WHOLE_EVERY_NS = 60_000_000_000
"""How often a larger directory is listed as a whole, which shows what retention has deleted: a trigger that reads where
nothing is any more finds that out by itself."""


class ListingWatch:
    """Directory of an object store, and what a LIST said of it when it was last looked at. Names, sizes and versions
    are compared; of a partition with more names than one LIST gives, those from its last segment on."""

    def __init__(self, store: Store, directory: str) -> None:
        self._store = store
        self.path = directory
        self._after = ""
        self._whole_since_ns = 0
        self._state: Mapping[str, FileFacts | None] | None = None

    def changed(self, now_ns: int) -> bool:
        """As Watch.changed. Raises OSError; FileNotFoundError where nothing is left."""
        if self._after and now_ns - self._whole_since_ns >= WHOLE_EVERY_NS:
            self.forget()
        if self._state is None:
            self._after, self._whole_since_ns = "", now_ns
        listing = self._store.list(self.path, self._after)
        state = _state_of(listing.names, listing.files, self._after)
        changed, self._state = state != self._state, state
        return changed

    def saw(self, names: Sequence[str], files: Mapping[str, FileFacts], last: str) -> None:
        """Compare with this listing of a partition from now on; `last`: how names of its last segment begin."""
        self._after = last if len(names) > PAGE else ""
        self._state = _state_of(names, files, self._after)

    def forget(self) -> None:
        self._state = None


def _state_of(names: Iterable[str], files: Mapping[str, FileFacts], after: str) -> dict[str, FileFacts | None]:
    return {name: files.get(name) for name in names if name > after}


def directory_watch(store: Store, directory: str) -> Watch | ListingWatch:
    return ListingWatch(store, directory) if store.remote else Watch(directory)


class WatchedCheckpoints(Checkpoints):
    """Checkpoints whose files are read again when they have changed; of an object store, at every look."""

    def __init__(self) -> None:
        super().__init__()
        self._watches: dict[tuple[str, str], Watch] = {}

    def look(self, store: Store, directory: str, now: int) -> None:
        """Forget what may have changed in a log directory since the look before."""
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            watch = self._watches.setdefault((directory, name), Watch(os.path.join(directory, name)))
            try:
                if store.remote or watch.changed(now):
                    self._read.pop((directory, name), None)
            except OSError:
                watch.forget()
                self._read[directory, name] = {}
