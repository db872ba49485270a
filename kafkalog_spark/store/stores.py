"""Which store reads a path; and the store over fsspec: HDFS, and every other scheme of its registry.

A file system gets its host and user from the URL, and other arguments from options `storage.fsspec.NAME`. HDFS is
fsspec's wrapper of Arrow's, which needs libhdfs of a Hadoop on the machine (HADOOP_HOME, CLASSPATH, as Arrow's manual
says).
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from kafkalog_spark.errors import OptionError, install_hint
from kafkalog_spark.store.interface import (
    HADOOP_SCHEMES,
    LOCAL,
    Buffer,
    FetchBlock,
    FileFacts,
    Listing,
    OpenFile,
    Store,
    parse_path,
)
from kafkalog_spark.store.object_client import OBJECT_SCHEMES
from kafkalog_spark.store.object_file import ObjectFile
from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.storage_options import FSSPEC_PREFIX, StorageOptions

_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "updated", "created")
"""Keys under which file systems of fsspec give a file's version; the most reliable first."""


T = TypeVar("T")


def as_os_errors(path: str, call: Callable[[], T], *, pass_on: tuple[type[Exception], ...] = ()) -> T:
    """Result of `call`. Raises FileNotFoundError, PermissionError, OSError, each with `path` and a sentence, never with
    the library's text: nobody here knows what that holds. pass_on: classes that are raised as they are."""
    try:
        return call()
    except pass_on:
        raise
    except FileNotFoundError:
        number, sentence = errno.ENOENT, "there is nothing of this name"
    except PermissionError:
        number, sentence = errno.EACCES, "the file system does not allow it with the credentials it has"
    except Exception as error:  # noqa: BLE001 - any class may come out of a file system of fsspec
        number = errno.EIO
        if isinstance(error, OSError) and error.errno is not None and error.errno > 0:  # resolvers have negative ones
            number = error.errno
        reason = os.strerror(number) if number != errno.EIO else type(error).__name__
        sentence = f"the file system fails ({reason})"
    raise OSError(number, sentence, path)  # not in `except`: a traceback would show the library's text above it


_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")
_OF_TEXT = re.compile(r".*(user|username|password|passwd|passphrase|secret|token|key|account|host)")


def _typed(name: str, text: str) -> Any:
    """Value of an argument of a file system: a boolean, a number or JSON where the text is one, else the text. Names of
    users and secrets are texts, also where they look like a number."""
    if _OF_TEXT.fullmatch(name.lower()):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    if text[:1] in ('"', "[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


@dataclass(frozen=True)
class FsspecStore:
    """Store of a scheme and an authority: `bucket`, `host:port` of a name node, or empty for fs.defaultFS of Hadoop."""

    scheme: str
    authority: str
    options: StorageOptions = field(default_factory=StorageOptions)
    remote = True

    @property
    def _files(self) -> Any:
        """The file system, which fsspec keeps for a thread. Raises OptionError; OSError if it cannot be reached."""
        try:
            import fsspec
        except ImportError:
            raise OptionError(
                f"{self.scheme}:// is read with the package fsspec, which is not installed here",
                hint=f"{install_hint('object-store')} on the driver and on every worker",
            ) from None
        texts = self.options.after(FSSPEC_PREFIX)
        given = {name: _typed(name, text) for name, text in texts.items()}
        url = f"{self.scheme}://{self.authority}"
        refused = f" (it does not take the options {', '.join(given) or 'given'})"
        try:
            if self.scheme in HADOOP_SCHEMES:
                return self._hadoop_files(fsspec, given)
            known = fsspec.get_filesystem_class(self.scheme)
            try:
                # what the URL says of a server and a user, by the file system's own rules
                arguments = {**known._get_kwargs_from_urls(f"{url}/"), **given}
                return as_os_errors(url, lambda: known(**arguments), pass_on=(ImportError, TypeError, ValueError))
            except (TypeError, ValueError):
                wanted = refused
        except ImportError as error:
            wanted = f" (it needs {error.name})" if error.name else ""
        except ValueError:
            wanted = " (fsspec does not know the scheme)"
        except TypeError:
            wanted = refused
        raise OptionError(f"{self.scheme}:// cannot be read{wanted}", hint="look at it, and install what it needs")

    def _hadoop_files(self, fsspec: Any, given: dict[str, Any]) -> Any:
        # the host as Arrow's HadoopFileSystem takes it; without one, the name node of Hadoop's configuration
        host, _, port = self.authority.partition(":")
        name_node = {"host": f"{self.scheme}://{host}", "port": int(port or 0)} if host else {}
        try:
            return fsspec.filesystem("hdfs", **{**name_node, **given})
        except OSError as error:
            wanted = str(error).partition("\n")[0]
            raise OSError(
                errno.EIO,
                f"HDFS cannot be reached ({wanted}): Arrow needs libhdfs and Hadoop's classes, by HADOOP_HOME, "
                "JAVA_HOME and CLASSPATH=$(hadoop classpath --glob)",
                f"{self.scheme}://{self.authority}",
            ) from None

    def _place(self, path: str) -> str:
        if self.scheme in HADOOP_SCHEMES:
            return f"/{parse_path(path).key}"
        place: str = self._files._strip_protocol(path)
        return place

    def list(self, directory: str, after: str = "") -> Listing:
        files = self._files
        place = self._place(directory)
        as_os_errors(directory, lambda: files.invalidate_cache(place))
        if not self._info(files, directory)["type"] == "directory":
            raise NotADirectoryError(errno.ENOTDIR, "is a file, not a directory", directory)
        listed = as_os_errors(directory, lambda: files.ls(place, detail=True))
        entries = {os.path.basename(info["name"].rstrip("/")): info for info in listed}
        return Listing.of(
            {name: _facts(info) for name, info in entries.items() if info["type"] == "file" and name > after},
            {name for name, info in entries.items() if info["type"] == "directory" and name > after},
        )

    def _info(self, files: Any, path: str) -> dict[str, Any]:
        found: dict[str, Any] = as_os_errors(path, lambda: files.info(self._place(path)))
        return found

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        """Open a file. The version is compared when it is opened; what is cut later is noticed by its size."""
        files = self._files
        info = self._info(files, path)
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        now = _facts(info)
        if facts is not None:
            _check_same(facts, info, path)

        def changed() -> bool:
            files.invalidate_cache(self._place(path))
            try:
                return not _same(now, self._info(files, path))
            except FileNotFoundError:
                return True

        return ObjectFile(now.size, self._ranges(path), changed=changed)

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        _check_same(facts, self._info(self._files, path), path)
        return self._ranges(path)

    def _ranges(self, path: str) -> FetchBlock:
        files = self._files

        def fetch(begin: int, end: int) -> Buffer:
            data = self._range(files, path, begin, end)
            if len(data) != end - begin:
                raise FileNotFoundError(errno.ENOENT, "the file was cut or replaced while it was read", path)
            return data

        return fetch

    def read_all(self, path: str, most: int) -> bytes:
        files = self._files
        size = self._info(files, path)["size"] or 0
        return self._range(files, path, 0, min(size, most))

    def _range(self, files: Any, path: str, begin: int, end: int) -> bytes:
        # Without `seekable`, fsspec's wrapper of Arrow fails for ranges that begin at 0.
        seekable = {"seekable": True} if self.scheme in HADOOP_SCHEMES else {}
        data: bytes = as_os_errors(path, lambda: files.cat_file(self._place(path), start=begin, end=end, **seekable))
        return data

    def exists(self, directory: str) -> bool:
        try:
            return bool(self._info(self._files, directory)["type"] == "directory")
        except FileNotFoundError:
            return False


def _facts(info: dict[str, Any]) -> FileFacts:
    version = next((f"{name}={_text(info[name])}" for name in _VERSIONS if info.get(name) is not None), "")
    return FileFacts(info["size"] or 0, version)


def _same(facts: FileFacts, info: dict[str, Any]) -> bool:
    """True if `info` is of that version, by what both have: some file systems give more keys than in a listing."""
    name, _, value = facts.version.partition("=")
    return facts.size == (info["size"] or 0) and (info.get(name) is None or _text(info[name]) == value)


def _check_same(facts: FileFacts, info: dict[str, Any], path: str) -> None:
    if not _same(facts, info):
        raise FileNotFoundError(errno.ENOENT, "the file was replaced since it was listed", path)


def _text(value: Any) -> str:
    """A version as text; seconds for a time, which may be a number in a listing and a datetime for a file."""
    return str(value.timestamp() if isinstance(value, datetime) else value)


def store_of(path: str, options: StorageOptions | None = None) -> Store:
    """The store that reads `path`, equal for paths of one bucket; makes no request. Local paths and `file:` give LOCAL,
    `s3`, `s3a`, `gs`, `abfs(s)`, `az` obstore, every other scheme fsspec. Raises OptionError for a path that names no
    bucket, or with credentials in it."""
    place = parse_path(path)
    if not place.scheme:
        return LOCAL
    options = options or StorageOptions()
    if place.scheme in OBJECT_SCHEMES:
        return ObjectStore(place.scheme, place.bucket, options)
    return FsspecStore(place.scheme, place.bucket, options)
