"""What a commit does to the file system, one method a kind of step: the thin shell of the sink.

Every change passes `step` first. Tests let it fail or end the process there, so that what is promised about crashes is
tried at each of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
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

_COPY_BYTES = 1 << 24  # of one call of copy_file_range; the kernel may copy less
_FLUSHES_AT_ONCE = 8


class Disk:
    """The real thing. All methods raise OSError."""

    def step(self, what: str, path: Path) -> None:
        """Called before each change, with a word for it and the path that changes."""

    def restamp(self, path: Path, base_offset: int, leader_epoch: int) -> int:
        """segment_restamp.restamp_segment; returns the next offset."""
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
        """durable.replace_file: on disk on return, with `sync`."""
        self.step("write", path)
        replace_file(path, data, sync=sync)

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


# Waiting for somebody else, with an end.

_STEP_SECONDS = 0.02  # commits take milliseconds to seconds


class Patience:
    """`wait` sleeps a moment and says whether there is time left. The clock starts at the first call."""

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._end: float | None = None

    def wait(self) -> bool:
        if self._end is None:
            self._end = self._clock() + self.seconds
        if self._clock() >= self._end:
            return False
        self._sleep(_STEP_SECONDS)
        return True
