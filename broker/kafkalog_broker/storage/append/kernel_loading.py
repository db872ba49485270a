"""Lazy loading of the module `record_walk_kernel`, which loads Numba and LLVM. Thread-safe."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

_kernel: ModuleType | None = None
_lock = threading.Lock()
_loading: threading.Thread | None = None


def loaded_kernel() -> ModuleType | None:
    """Return the module `record_walk_kernel`, or None if it is not loaded yet."""
    return _kernel


def load_kernel() -> ModuleType:
    """Return the module `record_walk_kernel`, and load it first if necessary. Blocks."""
    global _kernel
    if _kernel is None:
        with _lock:
            if _kernel is None:
                load_llvm()
                from kafkalog_broker.storage.append import record_walk_kernel

                _kernel = record_walk_kernel
                # Numba's many objects live until the process ends, so garbage collections need not visit them.
                gc.freeze()
    return _kernel


def start_loading_kernel() -> None:
    """Load the kernels on another thread. Idempotent."""
    global _loading
    if _loading is None:
        _loading = threading.Thread(target=load_kernel, name="load-record-walk")
        _loading.start()


def load_llvm() -> None:
    """Map llvmlite's large library into memory before llvmlite is imported.

    An import holds the interpreter lock while the library is mapped, which delays all other threads; a call through
    ctypes releases it. Best effort: without the library this is a no-op.
    """
    try:
        spec = find_spec("llvmlite")
        dlopen = ctypes.CDLL(None).dlopen
    except (AttributeError, ImportError, OSError, TypeError):
        return
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    for directory in (spec and spec.submodule_search_locations) or ():
        for library in Path(directory, "binding").glob("libllvmlite.*"):
            dlopen(os.fsencode(library), os.RTLD_NOW)
