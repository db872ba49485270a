"""Store over fsspec, for every scheme of its registry.

A file system gets its host and user from the URL, and other arguments from options `storage.fsspec.NAME`.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from kafkalog_spark.errors import OptionError, install_hint
from kafkalog_spark.store.interface import Buffer, FetchBlock, FileFacts, Listing, OpenFile
from kafkalog_spark.store.object_file import ObjectFile
from kafkalog_spark.store.storage_options import FSSPEC_PREFIX, StorageOptions

_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "updated", "created")
"""Keys under which fsspec's file systems return the version of a file; the most reliable first."""

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")
_TEXT_ARGUMENT = re.compile(r".*(user|username|password|passwd|passphrase|secret|token|key|account|host)")

T = TypeVar("T")


class UnknownScheme(Exception):
    """fsspec has no file system for a scheme."""


@dataclass(frozen=True)
class FsspecStore:
    """Store of one scheme and authority (the part of the URL between the scheme and the path)."""

    scheme: str
    authority: str
    options: StorageOptions = field(default_factory=StorageOptions)
    is_remote = True
    read_arguments: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Additional arguments of the file system's `cat_file`."""

    @property
    def _files(self) -> Any:
        """The file system, which fsspec caches for each thread. Raises OptionError; OSError if it cannot be reached."""
        try:
            import fsspec
        except ImportError:
            raise OptionError(
                f"{self.scheme}:// is read with the package fsspec, which is not installed here",
                hint=f"{install_hint('object-store')} on the driver and on every worker",
            ) from None
        given = {name: _typed(name, text) for name, text in self.options.with_prefix(FSSPEC_PREFIX).items()}
        try:
            return self._file_system(fsspec, given)
        except ImportError as error:
            reason = f" (it needs {error.name})" if error.name else ""
        except UnknownScheme:
            reason = " (fsspec does not know the scheme)"
        except (TypeError, ValueError):
            reason = f" (it does not accept the options {', '.join(given) or 'given'})"
        raise OptionError(
            f"{self.scheme}:// cannot be read{reason}",
            hint="install the package of the file system, or correct the scheme and the options storage.fsspec.*",
        )

    def _file_system(self, fsspec: Any, given: dict[str, Any]) -> Any:
        """Create the file system.

        Args:
            fsspec: The module fsspec.
            given: Arguments from the options, which override those from the URL.

        Raises:
            ImportError: If a package is missing.
            UnknownScheme: If fsspec does not know the scheme.
            TypeError, ValueError: For an invalid argument.
            OSError: If the file system cannot be reached.
        """
        try:
            file_system = fsspec.get_filesystem_class(self.scheme)
        except ValueError:
            raise UnknownScheme from None
        url = f"{self.scheme}://{self.authority}"
        arguments = {**file_system._get_kwargs_from_urls(f"{url}/"), **given}
        return as_os_errors(url, lambda: file_system(**arguments), pass_on=(ImportError, TypeError, ValueError))

    def _name(self, path: str) -> str:
        """Return the file system's own name of a path."""
        name: str = self._files._strip_protocol(path)
        return name

    def list(self, directory: str, after: str = "") -> Listing:
        files = self._files
        name = self._name(directory)
        as_os_errors(directory, lambda: files.invalidate_cache(name))
        if not self._info(files, directory)["type"] == "directory":
            raise NotADirectoryError(errno.ENOTDIR, "is a file, not a directory", directory)
        listed = as_os_errors(directory, lambda: files.ls(name, detail=True))
        entries = {os.path.basename(info["name"].rstrip("/")): info for info in listed}
        return Listing.of(
            {name: _facts(info) for name, info in entries.items() if info["type"] == "file" and name > after},
            {name for name, info in entries.items() if info["type"] == "directory" and name > after},
        )

    def _info(self, files: Any, path: str) -> dict[str, Any]:
        info: dict[str, Any] = as_os_errors(path, lambda: files.info(self._name(path)))
        return info

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        """Open a file. Its version is compared now; a later truncation is noticed because too few bytes are read."""
        files = self._files
        info = self._info(files, path)
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        now = _facts(info)
        if facts is not None:
            _check_same(facts, info, path)

        def changed() -> bool:
            files.invalidate_cache(self._name(path))
            try:
                return not _is_same_version(now, self._info(files, path))
            except FileNotFoundError:
                return True

        return ObjectFile(now.size, self._ranges(path), has_changed=changed)

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        _check_same(facts, self._info(self._files, path), path)
        return self._ranges(path)

    def _ranges(self, path: str) -> FetchBlock:
        files = self._files

        def fetch(begin: int, end: int) -> Buffer:
            data = self._range(files, path, begin, end)
            if len(data) != end - begin:
                raise FileNotFoundError(errno.ENOENT, "the file was truncated or replaced while it was read", path)
            return data

        return fetch

    def read_all(self, path: str, max_bytes: int) -> bytes:
        files = self._files
        size = self._info(files, path)["size"] or 0
        return self._range(files, path, 0, min(size, max_bytes))

    def _range(self, files: Any, path: str, begin: int, end: int) -> bytes:
        name, arguments = self._name(path), self.read_arguments
        data: bytes = as_os_errors(path, lambda: files.cat_file(name, start=begin, end=end, **arguments))
        return data

    def exists(self, directory: str) -> bool:
        try:
            return bool(self._info(self._files, directory)["type"] == "directory")
        except FileNotFoundError:
            return False


def _facts(info: dict[str, Any]) -> FileFacts:
    version = next((f"{name}={_text(info[name])}" for name in _VERSIONS if info.get(name) is not None), "")
    return FileFacts(info["size"] or 0, version)


def _is_same_version(facts: FileFacts, info: dict[str, Any]) -> bool:
    """Return True if `info` may describe the version in `facts`. Some file systems omit the version in listings."""
    name, _, value = facts.version.partition("=")
    return facts.size == (info["size"] or 0) and (info.get(name) is None or _text(info[name]) == value)


def _check_same(facts: FileFacts, info: dict[str, Any], path: str) -> None:
    if not _is_same_version(facts, info):
        raise FileNotFoundError(errno.ENOENT, "the file was replaced since it was listed", path)


def _text(value: Any) -> str:
    """Return a version as text. A time becomes seconds: it may be a number in a listing and a datetime for a file."""
    return str(value.timestamp() if isinstance(value, datetime) else value)


def _typed(name: str, text: str) -> Any:
    """Return the value of a file system's argument: a boolean, number or JSON if the text is one, else the text.

    User names and secrets stay text, even if they look like numbers.
    """
    if _TEXT_ARGUMENT.fullmatch(name.lower()):
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


def as_os_errors(path: str, call: Callable[[], T], *, pass_on: tuple[type[Exception], ...] = ()) -> T:
    """Return the result of `call`, and convert its errors to OSErrors with `path` and a sentence.

    The sentence contains none of the library's text, which may contain a secret.

    Args:
        path: Path for the error.
        call: Call of the file system.
        pass_on: Classes of errors that are raised unchanged.
    """
    try:
        return call()
    except pass_on:
        raise
    except FileNotFoundError:
        number, sentence = errno.ENOENT, "the path does not exist"
    except PermissionError:
        number, sentence = errno.EACCES, "the file system denies access with the given credentials"
    except Exception as error:  # noqa: BLE001 - a file system of fsspec may raise any class
        number = errno.EIO
        # errors of name resolution have negative numbers
        if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
            number = error.errno
        reason = os.strerror(number) if number != errno.EIO else type(error).__name__
        sentence = f"the file system fails ({reason})"
    raise OSError(number, sentence, path)  # outside of `except`, so that the traceback omits the library's text
