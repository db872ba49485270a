"""Writing of an output file as a whole."""

from __future__ import annotations

import os
import stat


def write_atomically(output: str, text: str) -> None:
    """Write a text in UTF-8 to a temporary file, and rename that to `output`.

    A symbolic link is followed, and an existing file keeps its mode. A device or a pipe is written directly.

    Raises:
        OSError: If the file cannot be written. An existing file is unchanged then.
    """
    path = os.path.realpath(output)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # less the umask, as with `open`
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            if mode is not None:
                os.chmod(temporary, stat.S_IMODE(mode))
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
