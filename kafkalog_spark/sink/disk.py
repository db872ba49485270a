"""File system steps of a commit, one method a kind of step, and files that are flushed while they are written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import (
    DIRECTORY_MODE,
    FILE_MODE,
    descriptor,
    fsync_directory,
    fsync_file,
    replace_file,
    write_all,
)
from kafkalog_spark.log.write.segment_writer import restamp_segment

_ASIDE = "kafkalog.commits.tmp"
_COPY_BYTES = 1 << 24  # of one call of copy_file_range; the kernel may copy less
_FLUSHES_AT_ONCE = 8


class Disk:
    """Steps of a commit on a file system. All methods raise OSError.

    Every change passes `step` first. Tests let it fail or end the process there, so that what is promised about crashes
    is tried at each of them.
    """

    def step(self, what: str, path: Path) -> None:
        """Called before each change, with a word for it and the path that changes."""

    def restamp(self, path: Path, base_offset: int, leader_epoch: int) -> int:
        """segment_writer.restamp_segment; returns the next offset."""
        self.step("restamp", path)
        return restamp_segment(path, base_offset, leader_epoch)

    def flush(self, paths: Iterable[Path]) -> None:
        """Return when the content of these files, and the entries of these directories, are on disk.

        Several at once: a file system writes them together. `paths` may make a file before it names it: the files
        before are flushed meanwhile.
        """
        with ThreadPoolExecutor(_FLUSHES_AT_ONCE, "flush") as threads:
            running: list[Future[None]] = []
            for path in paths:
                if not running:
                    self.step("flush", path)
                running.append(threads.submit(fsync_file, path))
            for flushed in running:
                flushed.result()

    def join(self, pieces: Iterable[Path], target: Path) -> None:
        """Make `target` from the pieces' bytes, one after the other. A file of that name is overwritten."""
        self.step("join", target)
        with descriptor(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as out:
            for piece in pieces:
                with descriptor(piece) as source:
                    _append(source, out)

    def replace_file(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """atomic_file.replace_file: on disk on return, with `sync`."""
        self.step("write", path)
        replace_file(path, data, sync=sync)

    def create_file(self, path: Path, data: bytes) -> bool:
        """Make a file with that content, unless there is one; on disk on return."""
        self.step("create", path)
        aside = path.with_name(_ASIDE)
        aside.unlink(missing_ok=True)  # a killed writer may have left it, as another name of a file that it made
        try:
            with descriptor(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
                write_all(fd, data)
                os.fsync(fd)
            try:
                os.link(aside, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                    raise
                if path.exists():  # a file system without links: the directory's locks have to do
                    return False
                os.rename(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        fsync_directory(path.parent)
        return True

    def write_log(self, path: Path) -> None:
        """An empty segment: .log and its indexes, unless there is one."""
        self.step("empty segment", path)
        for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.LOG_SUFFIX):
            os.close(os.open(path.with_suffix(suffix), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))

    def rename(self, old: Path, new: Path) -> None:
        self.step("rename", new)
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        """Remove a file that may have gone already."""
        self.step("unlink", path)
        path.unlink(missing_ok=True)

    def mkdir(self, path: Path) -> None:
        """Make a directory that may be there already."""
        self.step("mkdir", path)
        path.mkdir(DIRECTORY_MODE, exist_ok=True)

    def fsync_directory(self, path: Path) -> None:
        self.step("fsync", path)
        fsync_directory(path)


def _append(source: int, out: int) -> None:
    left = os.fstat(source).st_size
    try:
        while left:
            copied = os.copy_file_range(source, out, min(left, _COPY_BYTES))
            if not copied:
                return
            left -= copied
    except (OSError, AttributeError):  # another file system, or another system: by hand, from where it stopped
        while data := os.read(source, _COPY_BYTES):
            write_all(out, data)


WRITE_BEHIND_BYTES = 16 << 20
"""Bytes of a file that wait before they are flushed: large enough for the disk to work in long runs."""


class WriteBehind:
    """Flushes files in a thread of its own. An error that the disk reports is raised by the next call."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None
        self._waiting: dict[Path, int] = {}

    def wrote(self, path: Path, size: int) -> None:
        """`size` more bytes lie in a file. Raises OSError."""
        self._waiting[path] = self._waiting.get(path, 0) + size
        if sum(self._waiting.values()) < WRITE_BEHIND_BYTES or not self._is_idle():
            return
        paths, self._waiting = list(self._waiting), {}
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "write-behind")
        self._running = self._thread.submit(_flush, paths)

    def close(self) -> None:
        """Wait for what is being flushed. What was not flushed yet is the commit's matter. Raises OSError."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._is_idle()

    def _is_idle(self) -> bool:
        if self._running is None:
            return True
        if not self._running.done():
            return False
        running, self._running = self._running, None
        running.result()
        return True


def _flush(paths: list[Path]) -> None:
    for path in paths:
        fsync_file(path)
