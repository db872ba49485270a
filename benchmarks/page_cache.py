"""Measurement of the bytes that a program reads from disk: evict files from the page cache, then count their pages.

It covers both read() and mmap. The kernel reads ahead, so the number is an upper bound. Linux only.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

PAGE = mmap.PAGESIZE


def evict(paths: Iterable[Path]) -> None:
    """Evict the pages of files. Pages that are mapped by a process are not evicted."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())  # only clean pages can be evicted
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_bytes(paths: Iterable[Path]) -> int:
    """Return the number of bytes of files in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    total = 0
    for path in paths:
        size = path.stat().st_size
        if not size:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as pages:
            vector = (ctypes.c_ubyte * ((size + PAGE - 1) // PAGE))()
            address = ctypes.c_char.from_buffer(pages)
            failed = libc.mincore(ctypes.addressof(address), size, ctypes.addressof(vector))
            del address
            if failed:
                raise OSError(ctypes.get_errno(), f"mincore: {os.strerror(ctypes.get_errno())}", str(path))
            total += sum(page & 1 for page in vector) * PAGE
    return total
