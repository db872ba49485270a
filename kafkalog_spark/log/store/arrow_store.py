"""HDFS, by Arrow's file systems: libhdfs of a Hadoop on the machine (HADOOP_HOME, CLASSPATH, as Arrow's manual says).

Everything but the making of the file system works with any of Arrow's; the tests run it over a local one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kafkalog_spark.log.store.interface import FileFacts, Listing, OpenFile
from kafkalog_spark.log.store.object_file import Buffer, ObjectFile
from kafkalog_spark.log.store.object_store import ObjectListing
from kafkalog_spark.log.store.plain_errors import asked
from kafkalog_spark.log.store.urls import place_of


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
