"""Files of a log directory on a disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark import errors
from kafkalog_spark.format import atomic_file, fsync, names, regular_file
from kafkalog_spark.format.regular_file import descriptor, write_all
from kafkalog_spark.log.read.local_log_dir import partition_dirs
from kafkalog_spark.sink.log_directory import LogDirectory
from kafkalog_spark.store.local_store import LOCAL

_FLUSHES_AT_ONCE = 8
_TEMPORARY = "kafkalog.commits.tmp"
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True)
class LocalDirectory(LogDirectory):
    """Reads and changes of files in a log directory on a disk."""

    log_dir: Path

    store = LOCAL
    entry_noun = "a file"
    parallel = 1  # files are only moved
    lists_new_topics_whole = False
    requirements = "the driver and every executor need the directory, writable, under the same path"

    @property
    def root(self) -> str:  # type: ignore[override]
        return str(self.log_dir)

    def names_in_root(self) -> list[str]:
        try:
            return os.listdir(self.log_dir)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise
        except OSError as error:
            raise errors.NotALogDirectory(f"cannot be read: {error.strerror}", path=self.root) from error

    def partition_dirs(self) -> Iterable[names.PartitionDir]:
        with suppress(FileNotFoundError):
            for parsed, _ in partition_dirs(self.log_dir):
                yield parsed

    def read(self, name: str, max_bytes: int) -> bytes:
        return regular_file.read_whole(self.log_dir / name, max_bytes)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a file unless it exists, atomically by a hard link.

        On a file system without hard links, the write is atomic only because the caller holds the directory's locks.

        Returns:
            False if the file exists.
        """
        path, temporary = self.log_dir / name, self.log_dir / _TEMPORARY
        self.before_change("create", path)
        temporary.unlink(missing_ok=True)  # may be left by a killed writer, as a second name of a published file
        try:
            with descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
                write_all(fd, data)
                fsync.fsync_descriptor(fd)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                if path.exists():
                    return False
                os.rename(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        fsync.fsync_directory(self.log_dir)
        return True

    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        path = self.log_dir / name
        self.before_change("write", path)
        atomic_file.replace_file(path, data, sync=sync)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.before_change("unlink", self.log_dir / path)
            (self.log_dir / path).unlink(missing_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        self.before_change("rename", new)
        os.rename(old, new)

    def fsync_directory(self, path: Path) -> None:
        self.before_change("fsync", path)
        fsync.fsync_directory(path)

    def flush(self, paths: Iterable[Path]) -> None:
        """Wait until these files, and the entries of these directories, are on disk.

        Several are flushed at once, because a file system writes them together. `paths` may be a generator that writes
        each file before it yields its path; the files before it are flushed meanwhile.
        """
        with ThreadPoolExecutor(_FLUSHES_AT_ONCE, "flush") as threads:
            running: list[Future[None]] = []
            for path in paths:
                if not running:
                    self.before_change("flush", path)
                running.append(threads.submit(fsync.fsync_file, path))
            for flushed in running:
                flushed.result()
