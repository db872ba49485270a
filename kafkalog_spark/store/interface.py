"""Interface of stores, which list directories and read ranges of files.

Locations are paths, as in paths.py. All errors are OSErrors whose strerror explains the failure without secrets; the
caller adds the purpose of the file. FileNotFoundError means in every call that a file was removed or replaced since it
was listed; the caller then lists the directory again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview
FetchBlock = Callable[[int, int], Buffer]
"""Returns exactly the bytes [begin, end) of a file. Thread-safe. Raises OSError."""


class FileFacts(NamedTuple):
    """Size of a file in bytes, and its version, which changes when the content changes (an ETag)."""

    size: int
    version: str


class Listing(NamedTuple):
    """Content of a directory.

    Attributes:
        names: Names of files and directories, unordered.
        is_directory: Returns True for the name of a directory; False if the directory was removed since.
        files: Facts by name; empty for a local directory, where each file would need a call.
    """

    names: list[str]
    is_directory: Callable[[str], bool]
    files: Mapping[str, FileFacts] = MappingProxyType({})

    @classmethod
    def of(cls, files: Mapping[str, FileFacts], directories: Collection[str]) -> Listing:
        """Make a listing from a store's response. A name that is both a file and a directory counts as a directory."""
        return cls([*files, *(name for name in directories if name not in files)], directories.__contains__, files)


class RangeReader(Protocol):
    """Reads ranges of a file. Raises OSError."""

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes [position, position + size); fewer only at the end of the file."""

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position` on and return the number of bytes; fewer only at the end of the file."""


class OpenFile(RangeReader, Protocol):
    """A file open for reading. Not thread-safe."""

    size: int  # bytes at the time of opening; appended bytes are not read

    def has_changed(self) -> bool:
        """Return True if the file has been written to, truncated, replaced or removed since it was opened."""

    def expect(self, position: int, until: int) -> None:
        """Announce a sequential read of [position, until), which object stores fetch ahead. Other reads are allowed."""

    def close(self) -> None:
        """Close the file. Idempotent."""


class Store(Protocol):
    """Lists directories and reads files. All methods raise OSError.

    Small when pickled. Two stores are equal if they read the same location with the same credentials.
    """

    is_remote: bool
    """True if each call is a request over a network. Callers then make few calls, in parallel, and pass known facts."""

    def list(self, directory: str, after: str = "") -> Listing:
        """Return the entries of a directory whose names are greater than `after`.

        Raises:
            FileNotFoundError: If the directory is missing; in an object store, if no key begins with its path.
            NotADirectoryError: If the path is a file.
        """

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        """Open a file.

        Args:
            path: Path of the file.
            facts: The file's facts in a listing. With them an object store sends no request, and reads this version
                only.

        Raises:
            FileNotFoundError, IsADirectoryError: If there is no such file.
        """

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        """Return a function that fetches ranges of a file; in an object store, of this version only.

        For a local file that was truncated it returns fewer bytes.
        """

    def read_all(self, path: str, max_bytes: int) -> bytes:
        """Return the first `max_bytes` bytes of a file. A larger local file may raise CorruptFile instead."""

    def exists(self, directory: str) -> bool:
        """Return True if the directory exists."""
