"""Every other `scheme://`, by a file system of fsspec: what its registry has, and what packages add to it.

Its arguments are given as options `storage.fsspec.NAME`.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.store.interface import FileFacts, Listing, OpenFile
from kafkalog_spark.log.store.object_file import Buffer, ObjectFile
from kafkalog_spark.log.store.object_store import ObjectListing
from kafkalog_spark.log.store.plain_errors import asked
from kafkalog_spark.log.store.storage_options import StorageOptions
from kafkalog_spark.log.store.urls import place_of

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
