"""Objects written, read and deleted in a folder or a bucket: the same four calls for both.

Objects appear whole. Errors are OSErrors; FileNotFoundError for an object that is not there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from kafkalog_spark.format.atomic_file import TEMPORARY_SUFFIX, fsync_directory, open_regular, write_all
from kafkalog_spark.store.interface import FileFacts, Store, is_local
from kafkalog_spark.store.local_store import LOCAL
from kafkalog_spark.store.object_writer import ObjectWriter, upload
from kafkalog_spark.store.storage_options import StorageOptions

if TYPE_CHECKING:
    from kafkalog_spark.store.object_store import Buffer, ObjectStore

Pieces = Callable[[], Iterable[bytes]]  # an object's bytes from its beginning on; called for each try


class ObjectPlace(Protocol):
    """A folder or a bucket. Threads share it."""

    store: Store

    def put(self, path: str, pieces: Pieces, size: int) -> None:
        """Write an object of about `size` bytes; on return it is safe. Raises OSError, and what `pieces` raises."""

    def read(self, path: str, size: int, begin: int, end: int) -> Buffer:
        """The bytes [begin, end) of an object of `size` bytes. Raises OSError."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, in this order, and what was left of writing them; one that is not there is no error. Raises
        OSError."""


class FolderPlace:
    """See ObjectPlace; `root` stays when it is empty. An object is written aside and renamed, so that a name that is
    there is whole and on disk."""

    store: Store = LOCAL

    def __init__(self, root: str) -> None:
        self._root = root

    def put(self, path: str, pieces: Pieces, size: int) -> None:
        directory, aside = os.path.dirname(path), path + TEMPORARY_SUFFIX
        try:
            with self._created(aside, directory) as fd:
                for piece in pieces():
                    write_all(fd, piece)
                os.fsync(fd)
            os.replace(aside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside)
            raise
        fsync_directory(directory)

    @contextmanager
    def _created(self, path: str, directory: str) -> Iterator[int]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        while True:
            _make_directories(directory)
            try:
                fd = open_regular(path, flags)
                break
            except FileNotFoundError:  # `delete` has taken the directory, which was empty
                continue
        try:
            yield fd
        finally:
            os.close(fd)

    def read(self, path: str, size: int, begin: int, end: int) -> Buffer:
        with closing(LOCAL.open(path)) as file:
            if file.size < size:
                raise OSError(5, f"the file has {file.size} bytes, expected {size}", path)
            return file.read(begin, end - begin)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            for name in (path, path + TEMPORARY_SUFFIX):
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(name)
        for directory in {os.path.dirname(path): None for path in paths}:
            with suppress(OSError):  # others lie in it
                while directory != self._root:
                    os.rmdir(directory)
                    directory = os.path.dirname(directory)


def _make_directories(directory: str) -> None:
    """Make a directory and those above it, each on disk on return. Raises OSError."""
    if os.path.isdir(directory):
        return
    above = os.path.dirname(directory)
    _make_directories(above)
    with suppress(FileExistsError):
        os.mkdir(directory)
    fsync_directory(above)


class BucketPlace:
    """See ObjectPlace."""

    def __init__(self, store: ObjectStore) -> None:
        self.store: Store = store
        self._bucket = store

    def put(self, path: str, pieces: Pieces, size: int) -> None:
        upload(self._bucket, path, pieces, size)

    def read(self, path: str, size: int, begin: int, end: int) -> Buffer:
        return self._bucket.ranges(path, FileFacts(size, ""))(begin, end)

    def delete(self, paths: Sequence[str]) -> None:
        writer = ObjectWriter(self._bucket)
        for path in paths:
            writer.delete([path])


def place_of(root: str, storage: StorageOptions) -> ObjectPlace:
    """The place of a root. Raises OptionError."""
    if is_local(root):
        return FolderPlace(root)
    from kafkalog_spark.store.object_store import ObjectStore
    from kafkalog_spark.store.stores import store_of

    store = store_of(root, storage)
    assert isinstance(store, ObjectStore)
    return BucketPlace(store)
