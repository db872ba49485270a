"""Interface of stores, which list directories and read ranges of files.

Locations are paths, as in paths.py. All errors are OSErrors whose strerror says what was wrong, without secrets; the
caller knows the purpose of the file and adds it. FileNotFoundError, from any call, means that a file is gone, or is not
the one that was listed: the caller lists again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview
FetchBlock = Callable[[int, int], Buffer]
"""The bytes [begin, end) of a file, as many. Called by several threads at once. Raises OSError."""


class FileFacts(NamedTuple):
    """Size of a file in bytes, and its version, which changes when the content changes (an ETag)."""

    size: int
    version: str


class Listing(NamedTuple):
    """Content of a directory. names: of files and directories in it, in no order. is_directory: of a name; False for
    one that has gone. files: by name; empty where finding out costs a call for each file (a local directory)."""

    names: list[str]
    is_directory: Callable[[str], bool]
    files: Mapping[str, FileFacts] = MappingProxyType({})

    @classmethod
    def of(cls, files: Mapping[str, FileFacts], directories: Collection[str]) -> Listing:
        """By the answer of a store. A name may be both; then it is a directory, as more lies below it."""
        return cls([*files, *(name for name in directories if name not in files)], directories.__contains__, files)


class RangeReader(Protocol):
    """Reads ranges of a file. Raises OSError."""

    def read(self, position: int, size: int) -> bytes:
        """The bytes [position, position + size), fewer only at the end of the file."""

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position` on; returns the number of bytes, fewer only at the end of the file."""


class OpenFile(RangeReader, Protocol):
    """A file open for reading. Used by one thread at a time."""

    size: int  # bytes it had when it was opened; what was appended since is not read

    def has_changed(self) -> bool:
        """True if it has been written to, cut, replaced or removed since it was opened."""

    def expect(self, position: int, until: int) -> None:
        """Announce a read of [position, until), front to back: object stores fetch ahead. Other bytes may be read."""

    def close(self) -> None:
        """Close it; nothing where it is closed."""


class Store(Protocol):
    """Lists and reads. Small when pickled, and equal to another one that reads the same with the same credentials.
    Every call raises OSError."""

    remote: bool
    """True if each call is a request over a network: then they are few, in parallel, and known facts are passed on."""

    def list(self, directory: str, after: str = "") -> Listing:
        """Content of a directory; of an object store, files whose names come after `after`, and all directories after
        it. Raises FileNotFoundError (an object store: nothing begins with that prefix), NotADirectoryError."""

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        """Open a file. facts: what a listing said of it; an object store then needs no request, and reads only that
        version. Raises FileNotFoundError, IsADirectoryError."""

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        """Function that fetches ranges of a file, an object store's of one version. A cut local file has fewer."""

    def read_all(self, path: str, most: int) -> bytes:
        """A small file's bytes, at most `most` of them; a local file of more may raise CorruptFile instead."""

    def exists(self, directory: str) -> bool:
        """True if the directory is there."""
