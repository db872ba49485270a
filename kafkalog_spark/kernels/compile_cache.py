"""Cache of compiled kernels: where they are looked up, who compiles a missing one, and where it is kept.

A kernel is looked up in the directories of cache_directories.py, in their order, whoever owns them. A missing one is
compiled, by one process while the others wait for its file, and kept in the first of them that is writable.

Numba itself looks in one directory only, the first that it may write to, and takes a kernel for current while its own
file is unchanged, whatever has become of the functions that it calls; here every file counts that the kernel's file
imports. A kernel for this very processor is preferred to one for BASELINE processors.
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
"""Features a processor needs to run kernels of its machine's BASELINE (x86-64 psABI, level 3)."""
_IMPORT = re.compile(rb"^from (kafkalog_(?:spark|broker)[\w.]*) import \(?([^()\n]*(?:\n {4}[^()\n]*)*)", re.MULTILINE)
"""`from a.b import c, d` of our packages, at the top of a module, over several lines too."""


@cache
def sources_digest(module: str) -> str:
    """SHA-256 over the file of a module that has kernels and every file of ours that it imports, directly or not: what
    they define, functions and constants alike, is compiled into the kernels. The module is loaded, or about to be."""
    found, waiting = {module}, [module]
    while waiting:
        new = set(_source(waiting.pop())[1]) - found
        found |= new
        waiting += new
    return hashlib.sha256("".join(f"{name} {_source(name)[0]}\n" for name in sorted(found)).encode()).hexdigest()


@cache
def _source(module: str) -> tuple[str, tuple[str, ...]]:
    """(SHA-256 of a module's file, the modules of ours that it imports), read once, when the first kernel that needs it
    is defined: what this process compiles must not pass for that of a file changed since."""
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
    """Locator of a kernel's cache, as Numba asks for it (numba.core.caching._CacheLocator)."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._line = py_func.__code__.co_firstlineno
        self._digest = sources_digest(py_func.__module__)
        self.directories = cache_directories(py_func.__module__, py_file, self._digest)

    from_function = classmethod(lambda cls, py_func, py_file: cls(py_func, py_file))

    def ensure_cache_path(self) -> None:
        """Nothing: the directory was made when it was found writable."""

    def get_cache_path(self) -> str:
        return ""

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return str(self._line)


class _CacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class IndexFile(IndexDataCacheFile):  # type: ignore[misc]
    """Index of a kernel's compiled code in a directory; one that names a class that is elsewhere now is empty."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except (AttributeError, ImportError):
            return {}


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Cache of one kernel's compiled code, by the types that it is called with. Numba readies its typing and lowering
    before it looks into its own: 70 modules, 0.4 s of 0.9 s before a worker's first row. A kernel that is found needs
    none."""

    _impl_class = _CacheImpl

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        self._cache_path: str | None = None  # directory of the kernel that was loaded or saved last
        self._directories = self._impl.locator.directories
        self._lock: FileIO | None = None

    def _file(self, directory: str) -> Any:
        return IndexFile(directory, self._impl.filename_base, self._impl.locator.get_source_stamp())

    def _index_keys(self, sig: Any, codegen: Any) -> Iterator[Any]:
        """Keys of a kernel in an index: for this processor, and for the baseline where this one can run it."""
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
        """The compiled kernel for a signature; None makes the caller compile it, while other processes wait."""
        found = self._look_up(sig, target_context)
        if found is None:
            target_context.refresh()
            if (directory := writable_directory(self._directories)) is not None:
                self._lock = _locked(os.path.join(directory, f"{self._impl.filename_base}.lock"))
                found = self._look_up(sig, target_context)  # another process may have compiled it meanwhile
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
    """The file, locked by a lock of POSIX, which workers that Spark forks meanwhile do not inherit; None where the file
    system has no locks: each process compiles for itself there."""
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
