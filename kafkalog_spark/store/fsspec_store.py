"""Every other `scheme://`, by a file system of fsspec: what its registry has, and what packages add to it.

Its arguments are given as options `storage.fsspec.NAME`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.store.interface import FileFacts, Listing, OpenFile, place_of
from kafkalog_spark.store.object_errors import asked
from kafkalog_spark.store.object_file import Buffer, ObjectFile
from kafkalog_spark.store.object_store import ObjectListing
from kafkalog_spark.store.storage_options import StorageOptions

_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "updated", "created")
"""Where file systems of fsspec say which version of a file it is; the surest first."""


@dataclass(frozen=True)
class FsspecStore:
    """One scheme and authority (`host`, `bucket`, or empty)."""

    scheme: str
    authority: str
    options: StorageOptions = field(default_factory=StorageOptions)
    remote = True

    @property
    def _files(self) -> Any:
        """fsspec keeps one of each for a process and thread. Raises OptionError."""
        try:
            import fsspec
        except ImportError:
            raise OptionError(
                f"{self.scheme}:// is read with the package fsspec, which is not installed here",
                hint="pip install 'kafkalog[object-store]' on the driver and on every worker",
            ) from None
        arguments = {name: value.text for name, value in self.options.fsspec}
        try:
            return fsspec.filesystem(self.scheme, **arguments)
        except ImportError as error:
            wanted = f" (it needs {error.name})" if error.name else ""
        except ValueError:
            wanted = " (fsspec does not know the scheme)"
        except TypeError:
            wanted = f" (it does not take the options {', '.join(arguments) or 'given'})"
        raise OptionError(f"{self.scheme}:// cannot be read{wanted}", hint="look at it, and install what it needs")

    def _place(self, path: str) -> str:
        place = place_of(path)
        return f"{self.authority}/{place.key}" if self.authority else f"/{place.key}"

    def list(self, directory: str, after: str = "") -> Listing:
        """See Store."""
        files = self._files
        place = self._place(directory)
        asked(directory, lambda: files.invalidate_cache(place))
        if not self._info(files, directory)["type"] == "directory":
            raise NotADirectoryError(errno.ENOTDIR, "is a file, not a directory", directory)
        listed = asked(directory, lambda: files.ls(place, detail=True))
        found = {os.path.basename(one["name"].rstrip("/")): one for one in listed}
        return ObjectListing(
            {name: _facts(one) for name, one in found.items() if one["type"] == "file" and name > after},
            {name for name, one in found.items() if one["type"] == "directory" and name > after},
        )

    def _info(self, files: Any, path: str) -> dict[str, Any]:
        found: dict[str, Any] = asked(path, lambda: files.info(self._place(path)))
        return found

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        """See Store. The version is compared when it is opened; what is cut later is noticed by its size."""
        files = self._files
        info = self._info(files, path)
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        now = _facts(info)
        if facts is not None and not _same(facts, info):
            raise FileNotFoundError(errno.ENOENT, "the file was replaced since it was listed", path)

        def fetch(begin: int, end: int) -> Buffer:
            data: bytes = asked(path, lambda: files.cat_file(self._place(path), start=begin, end=end))
            if len(data) != end - begin:
                raise FileNotFoundError(errno.ENOENT, "the file was cut or replaced while it was read", path)
            return data

        def changed() -> bool:
            files.invalidate_cache(self._place(path))
            try:
                return not _same(now, self._info(files, path))
            except FileNotFoundError:
                return True

        return ObjectFile(now.size, fetch, changed=changed)

    def read_all(self, path: str, most: int) -> bytes:
        """See Store."""
        files = self._files
        size = self._info(files, path)["size"] or 0
        data: bytes = asked(path, lambda: files.cat_file(self._place(path), start=0, end=min(size, most)))
        return data

    def exists(self, directory: str) -> bool:
        """See Store."""
        try:
            return bool(self._info(self._files, directory)["type"] == "directory")
        except FileNotFoundError:
            return False


def _facts(info: dict[str, Any]) -> FileFacts:
    version = next((f"{name}={_text(info[name])}" for name in _VERSIONS if info.get(name) is not None), "")
    return FileFacts(info["size"] or 0, version)


def _same(facts: FileFacts, info: dict[str, Any]) -> bool:
    """Whether `info` is of the version that `facts` are of, by what both say: some file systems tell more of one file
    than in a listing."""
    name, _, value = facts.version.partition("=")
    return facts.size == (info["size"] or 0) and (info.get(name) is None or _text(info[name]) == value)


def _text(value: Any) -> str:
    """Of a time the seconds: in a listing it may be a number, and of one file a datetime."""
    return str(value.timestamp() if isinstance(value, datetime) else value)


# HDFS, by Arrow's file systems: libhdfs of a Hadoop on the machine (HADOOP_HOME, CLASSPATH, as Arrow's manual says).
#
# Everything but the making of the file system works with any of Arrow's; the tests run it over a local one.


@dataclass(frozen=True)
class HadoopStore:
    """One name node. authority: `host:port`, or empty for the one in Hadoop's own configuration (fs.defaultFS)."""

    scheme: str
    authority: str
    remote = True

    @property
    def _files(self) -> ArrowFiles:
        return _hadoop(self.scheme, self.authority, os.getpid())

    def list(self, directory: str, after: str = "") -> Listing:
        """See Store."""
        return self._files.list(directory, after)

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        """See Store. What is open stays readable when it is removed or replaced, as a local file does."""
        return self._files.open(path, facts)

    def read_all(self, path: str, most: int) -> bytes:
        """See Store."""
        return self._files.read_all(path, most)

    def exists(self, directory: str) -> bool:
        """See Store."""
        return self._files.exists(directory)


@lru_cache
def _hadoop(scheme: str, authority: str, process: int) -> ArrowFiles:
    """Shared in a process, and not used in a fork of it."""
    from pyarrow.fs import HadoopFileSystem

    try:
        made = HadoopFileSystem.from_uri(f"{scheme}://{authority or 'default'}/")
    except (OSError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise OSError(
            errno.EIO,
            f"HDFS cannot be reached ({first}): Arrow needs libhdfs and Hadoop's classes, by HADOOP_HOME, JAVA_HOME "
            "and CLASSPATH=$(hadoop classpath --glob)",
            f"{scheme}://{authority}",
        ) from None
    return ArrowFiles(made)


class ArrowFiles:
    """Lists and reads with a file system of Arrow's. place: a path of ours as the file system's own."""

    def __init__(self, files: Any, place: Callable[[str], str] = lambda path: "/" + place_of(path).key) -> None:
        self._files = files
        self._place = place

    def list(self, directory: str, after: str = "") -> Listing:
        from pyarrow.fs import FileSelector, FileType

        found = self._info(directory)
        if found.type == FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, "there is no such directory", directory)
        if found.type == FileType.File:
            raise NotADirectoryError(errno.ENOTDIR, "is a file, not a directory", directory)
        selector = FileSelector(self._place(directory), allow_not_found=True)
        infos = asked(directory, lambda: self._files.get_file_info(selector))
        return ObjectListing(
            {
                info.base_name: FileFacts(info.size, _version(info))
                for info in infos
                if info.type == FileType.File and info.base_name > after
            },
            {info.base_name for info in infos if info.type == FileType.Directory and info.base_name > after},
        )

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        now = self._facts(path)
        if facts is not None and now != facts:
            raise FileNotFoundError(errno.ENOENT, "the file was replaced since it was listed", path)
        source = asked(path, lambda: self._files.open_input_file(self._place(path)))

        def fetch(begin: int, end: int) -> Buffer:
            data = asked(path, lambda: source.read_at(end - begin, begin))
            if len(data) < end - begin:
                raise FileNotFoundError(errno.ENOENT, "the file was cut or replaced while it was read", path)
            return memoryview(data)

        def changed() -> bool:
            try:
                return self._facts(path) != now
            except (FileNotFoundError, IsADirectoryError):
                return True

        return ObjectFile(now.size, fetch, changed=changed, closed=source.close)

    def _facts(self, path: str) -> FileFacts:
        from pyarrow.fs import FileType

        info = self._info(path)
        if info.type == FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        if info.type == FileType.Directory:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return FileFacts(info.size, _version(info))

    def read_all(self, path: str, most: int) -> bytes:
        self._facts(path)

        def read() -> bytes:
            with self._files.open_input_file(self._place(path)) as source:
                data: bytes = source.read(most)
                return data

        return asked(path, read)

    def exists(self, directory: str) -> bool:
        from pyarrow.fs import FileType

        return bool(self._info(directory).type == FileType.Directory)

    def _info(self, path: str) -> Any:
        return asked(path, lambda: self._files.get_file_info(self._place(path)))


def _version(info: Any) -> str:
    """A file that is written anew has another time."""
    return str(info.mtime_ns)
