"""The file that a command writes: never part of what it reads, whole or not there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from kafkalog_spark.errors import OptionError

_MODE = 0o666
"""Of a new file, less the umask: as `open` makes one."""


def refuse_inside(output: str, sources: Iterable[str]) -> None:
    """sources: directories that are read; URLs lie nowhere here. Raises OptionError where the file would lie inside
    one of them, or in its place, whatever links lead there."""
    real = os.path.realpath(output)
    for source in sources:
        inside = os.path.realpath(source)
        if real == inside or real.startswith(os.path.join(inside, "")):
            raise OptionError(f"-o {output} lies inside of {source}, where nothing is changed: name a file elsewhere")


def write_whole(output: str, text: str) -> None:
    """Write a text in UTF-8: aside, and renamed when it is whole, so that a file that was there stays until then. A
    link keeps leading to it, and it keeps its mode; a device or a pipe is written to. Raises OSError."""
    path = os.path.realpath(output)
    try:
        before = os.stat(path).st_mode
    except FileNotFoundError:
        before = None
    if before is not None and not stat.S_ISREG(before):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    aside = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            if before is not None:
                os.chmod(aside, stat.S_IMODE(before))
            file.write(text)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
