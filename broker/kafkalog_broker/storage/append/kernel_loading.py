"""Loads the compiled record parser, the module `record_walk_kernel`, when the first batch needs it. Thread-safe.

The module needs Numba and LLVM, which are loaded with it.
"""

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
    """Return the module `record_walk_kernel`, loading it if necessary. Blocks."""
    global _kernel
    if _kernel is None:
        with _lock:
            if _kernel is None:
                load_llvm()
                from kafkalog_broker.storage.append import record_walk_kernel

                _kernel = record_walk_kernel
                # Numba's many objects live until the process ends. Full collections do not visit frozen objects.
                gc.freeze()
    return _kernel


def start_loading_kernel() -> None:
    """Start to load the kernels in a thread. Idempotent."""
    global _loading
    if _loading is None:
        _loading = threading.Thread(target=load_kernel, name="load-record-walk")
        _loading.start()


def load_llvm() -> None:
    """Map llvmlite's library, 100 MB, so that its import finds it in memory.

    Python's own import of a library holds the interpreter lock for the 20 to 40 ms that this takes; a foreign function
    does not.
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
