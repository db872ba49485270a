"""Whether a file or a directory has changed since it was looked at, at the price of one stat, or of one LIST."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from kafkalog_spark.log.store.interface import FileFacts, Store

COARSE_NS = 2_000_000_000
"""Of a file system that keeps whole seconds (NFS 3, ext3) or every other one (FAT)."""
FINE_NS = 100_000_000
"""Of all others: Linux stamps files with the time of its last timer tick, 1 to 10 ms ago."""


class Watch:
    """A path, and what stat said of it when it was last looked at.

    Two changes within the granularity of the file system's clock can leave the same mtime. So a state counts as
    looked at only when that was done so long after the state was first seen that nothing more can share its time. How
    long ago is measured with our clock alone: the file system's may be another machine's.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._state: tuple[int, int, int, int] | None = None
        self._first_seen_ns = 0
        self._looked_at = False

    def changed(self, now_ns: int) -> bool:
        """Whether there may be something new; if so, the caller looks now. `now_ns`: of a clock that never goes back,
        read before this call. Raises OSError when the path cannot be reached."""
        found = os.stat(self.path)
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if state != self._state:
            self._state, self._first_seen_ns, self._looked_at = state, now_ns, False
            return True
        if self._looked_at:
            return False
        granularity = FINE_NS if found.st_mtime_ns % 1_000_000_000 else COARSE_NS
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
    """A directory of an object store, and what a LIST said of it when it was last looked at.

    There is no time of modification to ask for. So names, sizes and versions are compared; of a partition with more
    names than one LIST gives, those from its last segment on, where what is written to a log shows.
    """

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
        """Compare with this listing of a partition from now on; `last`: with what the names of its last segment's files
        begin."""
        self._after = last if len(names) > PAGE else ""
        self._state = _state_of(names, files, self._after)

    def forget(self) -> None:
        """As Watch.forget."""
        self._state = None


class Unchanged:
    """A file whose changes show in its directory's ListingWatch."""

    def __init__(self, path: str) -> None:
        self.path = path

    def changed(self, now_ns: int) -> bool:
        return False

    def forget(self) -> None:
        """There is nothing to forget."""


def _state_of(names: Iterable[str], files: Mapping[str, FileFacts], after: str) -> dict[str, FileFacts | None]:
    return {name: files.get(name) for name in names if name > after}


def directory_watch(store: Store, directory: str) -> Watch | ListingWatch:
    """A watch of a directory, wherever it lies."""
    return ListingWatch(store, directory) if store.remote else Watch(directory)


def segment_watch(store: Store, path: str) -> Watch | Unchanged:
    """A watch of a partition's last segment; that of its directory is asked first."""
    return Unchanged(path) if store.remote else Watch(path)
