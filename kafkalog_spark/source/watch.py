"""Watches of files and directories: whether one may have changed since the last look."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from kafkalog_spark.store.interface import FileFacts, Store

COARSE_NS = 2_000_000_000
"""Resolution of timestamps in file systems that keep whole seconds (NFS 3, ext3), or every second one (FAT)."""
FINE_NS = 100_000_000
"""Resolution in others, with a margin: Linux uses the time of its last timer tick, 1 to 10 ms ago."""
PAGE = 1000
"""Names in one response to a LIST request. A directory with no more is listed as a whole."""
WHOLE_EVERY_NS = 60_000_000_000
"""How often a larger directory is listed as a whole, which shows what retention has deleted. Reads of deleted segments
notice that by themselves before."""


class Watch:
    """Watch of a file or directory by its `stat`.

    An unchanged state is trusted only if the previous call of `changed` came so long after the state was first seen
    that any later change has another mtime. That time is measured by the local clock only: the file system may use the
    clock of another machine.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._state: tuple[int, int, int, int] | None = None
        self._first_seen_ns = 0
        self._looked_at = False

    def changed(self, now_ns: int) -> bool:
        """Return True if there may be a change; then the caller must look now.

        now_ns: time of a monotonic clock, read before this call. Raises OSError if the path cannot be reached.
        """
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
        """Make the next call of `changed` return True."""
        self._state = None


class ListingWatch:
    """Watch of a directory in an object store by its listing: names, sizes and versions of its objects.

    Of a partition with more names than one LIST request returns, only those from its last segment on are compared.
    """

    def __init__(self, store: Store, directory: str) -> None:
        self._store = store
        self.path = directory
        self._after = ""
        self._whole_since_ns = 0
        self._state: Mapping[str, FileFacts | None] | None = None

    def changed(self, now_ns: int) -> bool:
        """Return True if there may be a change, as `Watch.changed`.

        Raises OSError; FileNotFoundError for an empty directory.
        """
        if self._after and now_ns - self._whole_since_ns >= WHOLE_EVERY_NS:
            self.forget()
        if self._state is None:
            self._after, self._whole_since_ns = "", now_ns
        listing = self._store.list(self.path, self._after)
        state = _state_of(listing.names, listing.files, self._after)
        changed, self._state = state != self._state, state
        return changed

    def set_state(self, names: Sequence[str], files: Mapping[str, FileFacts], last: str) -> None:
        """Compare with this listing of a partition from now on.

        Args:
            names: All names in the directory.
            files: Size and version by name.
            last: Prefix of the names of the last segment.
        """
        self._after = last if len(names) > PAGE else ""
        self._state = _state_of(names, files, self._after)

    def forget(self) -> None:
        """Make the next call of `changed` return True."""
        self._state = None


def directory_watch(store: Store, directory: str) -> Watch | ListingWatch:
    """Return a watch of a directory."""
    return ListingWatch(store, directory) if store.remote else Watch(directory)


def _state_of(names: Iterable[str], files: Mapping[str, FileFacts], after: str) -> dict[str, FileFacts | None]:
    return {name: files.get(name) for name in names if name > after}
