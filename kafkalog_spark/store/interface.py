"""Stores, which list directories and read ranges of files: their interface, the local one, and paths.

Places are named by a path: an absolute one, or `scheme://bucket/key`. Both are put together and taken apart with
os.path.join, dirname and basename.

Errors are OSErrors, whose strerror says in plain words what was wrong, never a secret; the caller, who knows what the
file is for, makes a sentence of it. FileNotFoundError, from any call, says that a file has gone, or is not the one that
was listed: list again and go on.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.atomic_file import open_regular, read_whole
from kafkalog_spark.format.names import DELETED_SUFFIX

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


_REQUESTS = 16
"""Requests at once where many are needed: stores answer thousands a second, each after 20 to 100 ms."""

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Iterable[T], remote: Callable[[T], bool]) -> list[R]:
    """Results of `function`, in order; in threads where several items are `remote`. Raises the first error in order."""
    items = list(items)
    requests = sum(map(remote, items))
    if requests < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(_REQUESTS, requests), thread_name_prefix="kafkalog-store") as threads:
        return list(threads.map(function, items))


# Files of this machine, or of what it has mounted.
#
# Reads are preads into memory of our own. A mapped file would end the process with SIGBUS when a recovering broker
# truncates it, and would count towards the worker's memory page by page.
#
# A listing is no moment's picture: the system hands names out piece by piece, and a file that is renamed from a place
# not yet reached to one already passed is in none of them. Compaction renames a `.log.swap` to `.log` exactly so, and
# what has not been listed would look like a gap that compaction has left: records would be lost without a word.

_QUIET_NS = 1_000_000_000
"""A directory that nobody has changed for so long is listed once: far above the clock's ticks, which times of
modification come in."""
_LISTINGS = 100
"""A swap takes milliseconds, and there is one in seconds: the second listing is like the first."""


def stable_listing(directory: str) -> list[str]:
    """Names in a directory, listed again until two listings agree where files may be being renamed. `.deleted` files,
    whose coming and going tells nothing, may be missing. Raises OSError."""
    before = os.stat(directory).st_mtime_ns
    listed = os.listdir(directory)
    for _ in range(_LISTINGS):
        after = os.stat(directory).st_mtime_ns
        if after == before and time.time_ns() - after > _QUIET_NS:
            break
        previous, listed = listed, os.listdir(directory)
        if all(name.endswith(DELETED_SUFFIX) for name in {*listed} ^ {*previous}):
            break
        before = after
    return listed


class DescriptorFile:
    """Reads of a file descriptor that somebody else opened and closes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        while 0 < len(data) < size:
            more = os.pread(self._fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def read_into(self, position: int, target: memoryview) -> int:
        filled = 0
        while filled < len(target):
            count = os.preadv(self._fd, [target[filled:]], position + filled)
            if count == 0:
                break
            filled += count
        return filled


class LocalFile(DescriptorFile):
    """A file open for reading. Raises as open_regular."""

    def __init__(self, path: str) -> None:
        self._path = path
        super().__init__(open_regular(path))
        self._opened = _version(os.fstat(self._fd))
        self.size = self._opened[0]

    def has_changed(self) -> bool:
        try:
            return _version(os.stat(self._path)) != self._opened
        except OSError:
            return True

    def expect(self, position: int, until: int) -> None:
        """The system reads ahead by itself."""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _version(facts: os.stat_result) -> tuple[int, int, int, int]:
    return facts.st_size, facts.st_mtime_ns, facts.st_ino, facts.st_dev


@dataclass(frozen=True)
class LocalStore:
    """This machine's file system: see Store."""

    remote = False

    def list(self, directory: str, after: str = "") -> Listing:
        names = [name for name in stable_listing(directory) if name > after]
        return Listing(names, lambda name: os.path.isdir(os.path.join(directory, name)))

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        return LocalFile(path)

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        def fetch(begin: int, end: int) -> Buffer:
            with closing(LocalFile(path)) as file:  # opened for each: one file is for one thread
                return file.read(begin, end - begin)

        return fetch

    def read_all(self, path: str, most: int) -> bytes:
        return read_whole(path, most)

    def exists(self, directory: str) -> bool:
        return os.path.exists(directory)


LOCAL = LocalStore()


# Paths as users write them, and as they are compared, listed and passed on here.
#
# Local ones are plain and absolute; all others are `scheme://bucket/key`, with one slash between names and none at
# the end, so that os.path.join, dirname and basename take them apart.

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_FILE = re.compile(r"file:(?://(?:localhost)?)?(?=/)", re.IGNORECASE)

S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
GCS_SCHEMES = frozenset({"gs", "gcs"})
AZURE_SCHEMES = frozenset({"abfs", "abfss", "az", "azure", "wasb", "wasbs"})
HADOOP_SCHEMES = frozenset({"hdfs", "viewfs"})

_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "azure": "az", "wasb": "abfss", "wasbs": "abfss"}
"""Names that Hadoop's connectors gave to one place over the years."""


class PathParts(NamedTuple):
    """Parts of a path. scheme: `` for a local one, whose bucket is empty too; key: without a leading slash, or the
    local path. bucket: of Azure `container@account.dfs.core.windows.net`, of HDFS `host:port`."""

    scheme: str
    bucket: str
    key: str


def parse_path(path: str) -> PathParts:
    """Take a path apart, normalised. Raises OptionError for one that names no bucket, or holds credentials."""
    plain = _FILE.sub("", path, count=1)
    url = _URL.fullmatch(plain)
    if url is None:
        return PathParts("", "", os.path.abspath(plain))
    scheme = _SAME.get(url[1].lower(), url[1].lower())
    bucket, _, key = url[2].partition("/")
    user, at, _ = bucket.rpartition("@")
    if at and (":" in user or scheme in S3_SCHEMES | GCS_SCHEMES):
        raise OptionError(
            f"a {scheme}:// path has credentials in front of the bucket's name",
            hint="paths are shown in plans and logs: give them as options, such as fs.s3a.access.key",
        )
    if not bucket and scheme in S3_SCHEMES | GCS_SCHEMES | AZURE_SCHEMES:
        raise OptionError(f"{path} names no bucket", hint=f"write {scheme}://bucket/path")
    names = [name for name in key.split("/") if name]
    if "." in names or ".." in names:
        raise OptionError(f"{path} has a . or .. in it", hint="keys of an object store have no such names")
    return PathParts(scheme, bucket, "/".join(names))


def normalised(path: str) -> str:
    """Normalised text of a path: the same text for the same place. Raises OptionError."""
    scheme, bucket, key = parse_path(path)
    if not scheme:
        return key
    return f"{scheme}://{bucket}/{key}" if key else f"{scheme}://{bucket}"


def is_local(path: str) -> bool:
    """True if the path lies in a file system of this machine: a plain path, or `file:`."""
    return _URL.fullmatch(_FILE.sub("", path, count=1)) is None
