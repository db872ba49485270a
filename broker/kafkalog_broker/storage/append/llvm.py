"""LLVM, which Numba needs, loaded without holding the interpreter."""

from __future__ import annotations

import ctypes
import os
from importlib.util import find_spec
from pathlib import Path


def load_llvm() -> None:
    """Map llvmlite's library (100 MB): its import finds it there then. Python's own way to load a library holds the
    interpreter for the 20 to 40 ms that it takes, a foreign function does not. Where this fails nothing is lost.
    """
    try:
        found = find_spec("llvmlite")
        dlopen = ctypes.CDLL(None).dlopen
    except (AttributeError, ImportError, OSError, TypeError):
        return
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    for place in (found and found.submodule_search_locations) or ():
        for library in Path(place, "binding").glob("libllvmlite.*"):
            dlopen(os.fsencode(library), os.RTLD_NOW)
