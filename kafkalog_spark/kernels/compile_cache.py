"""Cache of compiled kernels.

A kernel is looked up in the directories of cache_directories.py, in their order, even in those that are read-only. A
missing kernel is compiled by one process, while the others wait, and stored in the first writable directory.

Numba's own cache uses a single directory, the first writable one, and treats a kernel as current while its own source
file is unchanged. This cache also checks all files that the kernel's file imports, because their functions and
constants are compiled into it. A kernel for this processor is preferred to one for BASELINE processors.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from io import FileIO
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile

from kafkalog_spark.kernels.cache_directories import BASELINE, cache_directories, writable_directory

_BASELINE_FEATURES = {"x86_64": ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")}
"""Features that a processor must have to run kernels of its machine's BASELINE (x86-64 psABI, level 3)."""
_IMPORT = re.compile(rb"^from (kafkalog_(?:spark|broker)[\w.]*) import \(?([^()\n]*(?:\n {4}[^()\n]*)*)", re.MULTILINE)
"""`from a.b import c, d` of this project's packages, at the top of a module, on one or several lines."""


@cache
def sources_digest(module: str) -> str:
    """Return the SHA-256 over the source of a module, and of all modules of this project that it imports, recursively.

    Their functions and constants are compiled into the kernels of the module. The module must be in sys.modules.
    """
    modules, waiting = {module}, [module]
    while waiting:
        new = set(_source(waiting.pop())[1]) - modules
        modules |= new
        waiting += new
    return hashlib.sha256("".join(f"{name} {_source(name)[0]}\n" for name in sorted(modules)).encode()).hexdigest()


@cache
def _source(module: str) -> tuple[str, tuple[str, ...]]:
    """Return (SHA-256 of a module's file, names of the modules of this project that it imports).

    The file is read once, when the first kernel that needs it is defined. If the file is changed later, the kernels
    that this process compiles must not be stored as those of the new version.
    """
    spec = sys.modules[module].__spec__
    loader: Any = getattr(spec, "loader", None)
    if spec is None or spec.origin is None or not hasattr(loader, "get_data"):
        return "", ()
    text: bytes = loader.get_data(spec.origin)  # also from a zip
    imported: list[str] = []
    for line in _IMPORT.finditer(text):
        source, names = line[1].decode(), line[2].decode()
        imported += [source, *(f"{source}.{name}" for name in re.findall(r"\w+", names))]
    return hashlib.sha256(text).hexdigest(), tuple(name for name in imported if name in sys.modules)


class _Locator:
    """Locator of a kernel's cache, with the interface of Numba's numba.core.caching._CacheLocator."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._line = py_func.__code__.co_firstlineno
        self._digest = sources_digest(py_func.__module__)
        self.directories = cache_directories(py_func.__module__, py_file, self._digest)

    from_function = classmethod(lambda cls, py_func, py_file: cls(py_func, py_file))

    def ensure_cache_path(self) -> None:
        """Do nothing: `writable_directory` has created the directory."""

    def get_cache_path(self) -> str:
        return ""

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return str(self._line)


class _CacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class IndexFile(IndexDataCacheFile):  # type: ignore[misc]
    """Index of a kernel's compiled code in a directory. An index that names a class that was moved counts as empty."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except (AttributeError, ImportError):
            return {}


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Cache of one kernel's compiled code, by the types of its arguments.

    Numba's FunctionCache imports the modules for typing and lowering before each look-up. This class imports them only
    for a kernel that is missing, which shortens the start of a Python worker.
    """

    _impl_class = _CacheImpl

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        self._cache_path: str | None = None  # directory of the last loaded or saved kernel
        self._directories = self._impl.locator.directories
        self._lock: FileIO | None = None

    def _file(self, directory: str) -> Any:
        return IndexFile(directory, self._impl.filename_base, self._impl.locator.get_source_stamp())

    def _index_keys(self, sig: Any, codegen: Any) -> Iterator[Any]:
        """Yield the keys of a kernel in an index: for this processor, then for the baseline, if this one can run it."""
        sig, (triple, processor, features), code = self._index_key(sig, codegen)
        yield sig, (triple, processor, features), code
        machine = platform.machine()
        has = set(features.split(","))
        if machine in BASELINE and all(f"+{name}" in has for name in _BASELINE_FEATURES.get(machine, ())):
            yield sig, (triple, BASELINE[machine], ""), code

    def _look_up(self, sig: Any, target_context: Any) -> Any:
        for directory in (entry.path for entry in self._directories if os.path.isdir(entry.path)):
            for key in self._index_keys(sig, target_context.codegen()):
                try:
                    data = self._file(directory).load(key)
                except PermissionError:
                    break
                if data is not None:
                    self._cache_path = directory
                    return self._impl.rebuild(target_context, data)
        return None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel for a signature.

        If it returns None, the caller compiles the kernel and calls `save_overload`; until then other processes wait.
        """
        found = self._look_up(sig, target_context)
        if found is None:
            target_context.refresh()
            if (directory := writable_directory(self._directories)) is not None:
                self._lock = _locked(os.path.join(directory, f"{self._impl.filename_base}.lock"))
                found = self._look_up(sig, target_context)  # another process may have just compiled it
        if found is not None:
            self._unlock()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            directory = writable_directory(self._directories)
            if directory is not None and self._impl.check_cachable(data):
                self._cache_path = directory
                self._file(directory).save(self._index_key(sig, data.codegen), self._impl.reduce(data))
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _locked(path: str) -> FileIO | None:
    """Open and lock a file; return None if the file system has no locks, so that each process compiles for itself.

    It is a POSIX record lock, because workers that Spark forks while it is held do not inherit it.
    """
    try:
        file = FileIO(path, "a")
    except OSError:
        return None
    try:
        fcntl.lockf(file, fcntl.LOCK_EX)
    except OSError:
        file.close()
        return None
    return file
