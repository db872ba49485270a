"""Arrays that end where a page begins that nobody may touch: a kernel that reads or writes one byte too far ends the
process. Linux and macOS. For a process of its own (tests/broker/storage/helpers/guarded_fuzz.py), not for pytest's.
"""

from __future__ import annotations

import ctypes
import mmap
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

_PROT_NONE = 0
_PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)


def guarded(shape: int | tuple[int, ...], dtype: npt.DTypeLike, *, at_start: bool = False) -> np.ndarray:
    """Memory of zeros for an array, with a page behind it that faults; or before it, `at_start`."""
    count, kind = int(np.prod(shape)), np.dtype(dtype)
    size = count * kind.itemsize
    pages = -(-max(size, 1) // _PAGE)
    memory = mmap.mmap(-1, (pages + 2) * _PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (0, pages + 1):
        if _LIBC.mprotect(ctypes.c_void_p(address + page * _PAGE), ctypes.c_size_t(_PAGE), _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = _PAGE if at_start else (pages + 1) * _PAGE - size
    return np.frombuffer(memory, kind, count, offset).reshape(shape)


def guarded_bytes(data: bytes, *, at_start: bool = False) -> np.ndarray:
    """A read-only copy of `data`, as kernels take their input."""
    array = guarded(len(data), np.uint8, at_start=at_start)
    array[:] = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


class GuardedNumpy:
    """numpy for a module under test: what the module allocates is guarded. `install(module)` puts it in place."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def empty(shape: Any, dtype: npt.DTypeLike = float) -> np.ndarray:
        return guarded(shape, dtype) if np.prod(shape) else np.empty(shape, dtype)

    @staticmethod
    def zeros(shape: Any, dtype: npt.DTypeLike = float) -> np.ndarray:
        return GuardedNumpy.empty(shape, dtype)

    @staticmethod
    def full(shape: Any, value: Any, dtype: npt.DTypeLike | None = None) -> np.ndarray:
        array = GuardedNumpy.empty(shape, np.asarray(value).dtype if dtype is None else dtype)
        array[...] = value
        return array


def install(*modules: ModuleType) -> None:
    """Let what these modules allocate be guarded, from now on in this process."""
    for module in modules:
        module.np = GuardedNumpy()  # type: ignore[attr-defined]
