"""Watches of files and directories: whether one may have changed since the last look."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from kafkalog_spark.store.interface import FileFacts, Store

COARSE_NS = 2_000_000_000
"""Resolution of timestamps in file systems with whole seconds (NFS 3, ext3) or even seconds (FAT)."""
FINE_NS = 100_000_000
"""Resolution of timestamps in other file systems, with a margin: Linux uses the time of its last timer tick."""
PAGE = 1000
"""Names in one response to a LIST request. A directory with at most so many names is always listed completely."""
WHOLE_EVERY_NS = 60_000_000_000
"""Time between two complete listings of a larger directory, which show the segments that retention has deleted. A read
of a deleted segment notices the deletion earlier."""


class Watch:
    """Watch of a file or directory by its `stat`.

    An unchanged state proves that nothing has changed only if the previous call of `changed` was so long after the
    state was first seen that any later change has another mtime. The time in between is measured with the local clock
    only, because the file system may use the clock of another machine.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._state: tuple[int, int, int, int] | None = None
        self._first_seen_ns = 0
        self._is_settled = False

    def changed(self, now_ns: int) -> bool:
        """Return True if the file may have changed since the last call. The caller must then read it now.

        Args:
            now_ns: Time of a monotonic clock, read before this call.

        Raises:
            OSError: If the path cannot be reached.
        """
        status = os.stat(self.path)
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if state != self._state:
            self._state, self._first_seen_ns, self._is_settled = state, now_ns, False
            return True
        if self._is_settled:
            return False
        resolution = FINE_NS if status.st_mtime_ns % 1_000_000_000 else COARSE_NS
        self._is_settled = now_ns - self._first_seen_ns >= resolution
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
        """Return True if the directory may have changed, as `Watch.changed`.

        Raises:
            OSError: If the directory cannot be listed. FileNotFoundError for an empty directory.
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
        """Set the listing of a partition with which the next one is compared.

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
    return ListingWatch(store, directory) if store.is_remote else Watch(directory)


def _state_of(names: Iterable[str], files: Mapping[str, FileFacts], after: str) -> dict[str, FileFacts | None]:
    return {name: files.get(name) for name in names if name > after}
