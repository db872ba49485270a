"""Remote storage in a local folder, which is identified by a marker file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from kafkalog_spark.errors import UnsafePath
from kafkalog_spark.format.atomic_file import TEMPORARY_SUFFIX, create_temporary, replace_file
from kafkalog_spark.format.fsync import fsync_descriptor, fsync_directory, make_directories
from kafkalog_spark.format.names import REMOTE_STORAGE_MARKER
from kafkalog_spark.format.regular_file import write_all
from kafkalog_spark.format.relative_path import joined_below
from kafkalog_spark.log.remote.segment_upload import Pieces
from kafkalog_spark.store.interface import Buffer, FetchBlock, FileFacts
from kafkalog_spark.store.local_store import LOCAL, LocalStore

_MARKER_TEXT = b"A kafkalog broker recognises its remote storage by this file. Do not delete it.\n"


@dataclass(frozen=True)
class FolderStore(LocalStore):
    """Objects in a folder. Thread-safe.

    An object is written to a temporary file, which is synced and renamed, so a file with the name of the object is
    complete and on disk. All methods raise OSError, and UnsafePath for a path that is not below `root` or leaves it
    through a symbolic link.

    Writes and deletions require the marker file. If it is missing, the folder was removed or its file system
    is not mounted.

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
        """Create `root` if it is missing, and the marker file."""
        make_directories(self.root)
        replace_file(os.path.join(self.folder, REMOTE_STORAGE_MARKER), _MARKER_TEXT)

    def check_marker(self) -> None:
        """Raise OSError (never FileNotFoundError) if the folder does not contain the marker file."""
        if self.is_marked:
            return
        if not os.path.isdir(self.folder):
            message = "the folder of remote storage does not exist: mount or restore it"
        else:
            message = (
                f"the folder of remote storage does not contain {REMOTE_STORAGE_MARKER}, which the broker created: is "
                "its file system mounted? If this is the right folder, create an empty file of that name"
            )
        raise OSError(errno.ENOTCONN, message, self.folder)

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        """Return a function that reads ranges of a file; it raises OSError if the file's size is not facts.size."""

        def fetch(begin: int, end: int) -> Buffer:
            self._check_path(path)
            with closing(LOCAL.open(path)) as file:
                if file.size != facts.size:
                    raise OSError(errno.EIO, f"the file has {file.size} bytes, expected {facts.size}", path)
                return file.read(begin, end - begin)

        return fetch

    def read_all(self, path: str, max_bytes: int) -> bytes:
        self._check_path(path)
        return super().read_all(path, max_bytes)

    def upload(self, path: str, pieces: Pieces, size: int) -> None:
        """Write an object of about `size` bytes. When the method returns, file and directory entries are on disk.

        Raises OSError, and the errors of `pieces`.
        """
        self._check_path(path)
        self.check_marker()
        directory, temporary = os.path.dirname(path), path + TEMPORARY_SUFFIX
        try:
            fd = self._create_file(temporary, directory)
            try:
                for piece in pieces():
                    write_all(fd, piece)
                fsync_descriptor(fd)
            finally:
                os.close(fd)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        # Sync all directories: another thread, or a process that was killed, may have created one without syncing it.
        for parent in self._directories_up_to_root(directory):
            fsync_directory(parent)
        with suppress(PermissionError):  # the parent of the root may belong to another user
            fsync_directory(os.path.dirname(self.root))
        # If the file system was unmounted during the upload, the object is in the directory of the mount point.
        self.check_marker()

    def _create_file(self, path: str, directory: str) -> int:
        while True:
            make_directories(directory)
            with suppress(FileNotFoundError):  # `delete` has just removed the empty directory: try again
                return create_temporary(path)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects and their temporary files, sync the directories, and remove empty directories. Idempotent."""
        for path in paths:
            self._check_path(path)
        for path in paths:
            for name in (path, path + TEMPORARY_SUFFIX):
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(name)
        for directory in dict.fromkeys(map(os.path.dirname, paths)):
            with suppress(FileNotFoundError, NotADirectoryError):
                fsync_directory(directory)
            with suppress(OSError):  # the directory has other objects
                for empty in self._directories_up_to_root(directory):
                    if empty != self.root:
                        os.rmdir(empty)
        self.check_marker()  # fails if the file system is not mounted; nothing was deleted then

    def _directories_up_to_root(self, directory: str) -> Iterator[str]:
        """Yield the directory and its parents, up to the root."""
        yield directory
        while directory != self.root:
            directory = os.path.dirname(directory)
            yield directory

    def _check_path(self, path: str) -> None:
        joined_below(self.root, path.removeprefix(f"{self.root.rstrip('/')}/"))
        real = os.path.realpath(path)
        if not real.startswith(os.path.join(os.path.realpath(self.root), "")):
            raise UnsafePath(f"a symbolic link leads out of {self.root}, to {real}", path=path)
