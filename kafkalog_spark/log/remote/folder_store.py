"""Objects of remote storage in a local folder, which a marker file identifies."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from kafkalog_spark.errors import (
    UnsafePath,
)
from kafkalog_spark.format.atomic_file import TEMPORARY_SUFFIX, create_temporary, replace_file
from kafkalog_spark.format.fsync import fsync_descriptor, fsync_directory, make_directories
from kafkalog_spark.format.names import REMOTE_STORAGE_MARKER
from kafkalog_spark.format.regular_file import write_all
from kafkalog_spark.format.relative_path import joined_below
from kafkalog_spark.log.remote.segment_upload import Pieces
from kafkalog_spark.store.interface import Buffer, FetchBlock, FileFacts
from kafkalog_spark.store.local_store import LOCAL, LocalStore


@dataclass(frozen=True)
class FolderStore(LocalStore):
    """Objects in a folder. Thread-safe.

    An object is written to a temporary file and renamed, so a file with its name is complete and on disk. All methods
    raise OSError, and UnsafePath for a path that is not below `root`, or leads out of it through a symbolic link.

    Without the marker file, nothing is written, and deletions fail: the folder was removed, or it is the mount point of
    a file system that is not mounted.

    Attributes:
        root: Directory of the objects. It is not removed when it becomes empty.
        folder: Directory of the marker file: `root`, or its parent directory.
    """

    root: str
    folder: str

    @property
    def is_marked(self) -> bool:
        return os.path.isfile(os.path.join(self.folder, REMOTE_STORAGE_MARKER))

    def mark(self) -> None:
        """Create `root` if it is missing, and the marker."""
        make_directories(self.root)
        replace_file(os.path.join(self.folder, REMOTE_STORAGE_MARKER), _MARKER_TEXT)

    def check(self) -> None:
        """Raise OSError (never FileNotFoundError) if the folder does not have the marker."""
        if self.is_marked:
            return
        if not os.path.isdir(self.folder):
            what = "the folder of remote storage does not exist: mount or restore it"
        else:
            what = (
                f"the folder of remote storage does not contain {REMOTE_STORAGE_MARKER}, which the broker created: is "
                "its file system mounted? If this is the right folder, create an empty file of that name"
            )
        raise OSError(errno.ENOTCONN, what, self.folder)

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        """Return a function that reads ranges of a file; it raises OSError if the file's size is not facts.size."""

        def fetch(begin: int, end: int) -> Buffer:
            self._confirm(path)
            with closing(LOCAL.open(path)) as file:
                if file.size != facts.size:
                    raise OSError(errno.EIO, f"the file has {file.size} bytes, expected {facts.size}", path)
                return file.read(begin, end - begin)

        return fetch

    def read_all(self, path: str, most: int) -> bytes:
        self._confirm(path)
        return super().read_all(path, most)

    def upload(self, path: str, pieces: Pieces, size: int) -> None:
        """Write an object of about `size` bytes. On return it is on disk, with its name and its parent directories.

        Errors of `pieces` are passed on.
        """
        self._confirm(path)
        self.check()
        directory, aside = os.path.dirname(path), path + TEMPORARY_SUFFIX
        try:
            fd = self._created(aside, directory)
            try:
                for piece in pieces():
                    write_all(fd, piece)
                fsync_descriptor(fd)
            finally:
                os.close(fd)
            os.replace(aside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside)
            raise
        # Sync all directories: another thread, or a process that was killed, may have created one without syncing it.
        for parent in self._up_to_root(directory):
            fsync_directory(parent)
        with suppress(PermissionError):  # the parent of the root may belong to another user
            fsync_directory(os.path.dirname(self.root))
        self.check()  # fails if the folder was unmounted meanwhile: the object is then below its mount point

    def _created(self, path: str, directory: str) -> int:
        while True:
            make_directories(directory)
            with suppress(FileNotFoundError):  # `delete` removed the empty directory meanwhile: try again
                return create_temporary(path)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects and their temporary files, and sync the directories. A missing object is not an error."""
        for path in paths:
            self._confirm(path)
        for path in paths:
            for name in (path, path + TEMPORARY_SUFFIX):
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(name)
        for directory in dict.fromkeys(map(os.path.dirname, paths)):
            with suppress(FileNotFoundError, NotADirectoryError):
                fsync_directory(directory)
            with suppress(OSError):  # the directory has other objects
                for empty in self._up_to_root(directory):
                    if empty != self.root:
                        os.rmdir(empty)
        self.check()  # fails if the folder is not mounted: then nothing was deleted

    def _up_to_root(self, directory: str) -> Iterator[str]:
        """Yield the directory and its parents, up to the root."""
        yield directory
        while directory != self.root:
            directory = os.path.dirname(directory)
            yield directory

    def _confirm(self, path: str) -> None:
        joined_below(self.root, path.removeprefix(f"{self.root.rstrip('/')}/"))
        real = os.path.realpath(path)
        if not real.startswith(os.path.join(os.path.realpath(self.root), "")):
            raise UnsafePath(f"a symbolic link leads out of {self.root}, to {real}", path=path)


_MARKER_TEXT = b"A kafkalog broker recognises its remote storage by this file. Do not delete it.\n"
