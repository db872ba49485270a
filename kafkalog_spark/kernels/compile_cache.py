"""Where compiled kernels are kept: the first of these places that can be written to.

    NUMBA_CACHE_DIR                       where it is set
    __pycache__ alongside the source      an environment that belongs to its user
    ~/.cache/numba                        a package that is read-only, or in a zip or wheel (spark-submit --py-files)
    $TMPDIR/kafkalog-kernels-<user id>    no home either: containers of YARN and Kubernetes
    nowhere                               every process compiles what it calls

Numba knows the first three, and of the zips only those whose name ends in .zip and whose user has a home; without a
place it refuses to compile at all. What it has compiled it takes for current while the file of the kernel is unchanged,
whatever has become of the functions that the kernel calls; here every file counts that the kernel's file imports.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Self

from numba import config
from numba.core import caching

_OURS = ("kafkalog_spark", "kafkalog_broker")
_IMPORT = re.compile(rb"^from (kafkalog_(?:spark|broker)[\w.]*) import \(?([^()\n]*(?:\n {4}[^()\n]*)*)", re.MULTILINE)
"""`from a.b import c, d` of our packages, at the top of a module, over several lines too."""
_log = logging.getLogger(__name__)


def cache_directory(py_file: str, packed: str) -> str | None:
    """The directory for what is compiled from `py_file`; None where there is none.

    packed: its name below the places that are shared by all of a user's programs. It says what is in it and not where
    the source lies, since Spark gives each application a directory of its own, and so does pip.
    """
    return _first_writable(tuple(_places(os.path.dirname(os.path.abspath(py_file)), packed)))


def _places(source: str, packed: str) -> Iterator[tuple[str, str]]:
    """(directory that must be there or be made, cache directory), the best one first."""
    if config.CACHE_DIR:
        yield config.CACHE_DIR, os.path.join(config.CACHE_DIR, packed)
    if os.path.isdir(source):
        yield source, os.path.join(source, "__pycache__")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if os.path.isabs(home):  # "~" stays "~" for a user whom the system does not know
        yield home, os.path.join(home, "numba", packed)
    temporary = temporary_directory()
    yield temporary, os.path.join(temporary, packed)


def temporary_directory() -> str:
    """The place in TMPDIR. The name is no secret: `_is_private` says whether it can be trusted."""
    return os.path.join(tempfile.gettempdir(), f"kafkalog-kernels-{os.getuid()}")


@cache
def _first_writable(places: tuple[tuple[str, str], ...]) -> str | None:
    for base, directory in places:
        temporary = base == temporary_directory()
        new = not os.path.isdir(base)
        try:
            if temporary:
                os.makedirs(base, mode=0o700, exist_ok=True)
                if not _is_private(base):
                    continue
            os.makedirs(directory, exist_ok=True)
            tempfile.TemporaryFile(dir=directory).close()
        except OSError:
            continue
        if temporary and new:  # once a machine
            _log.warning(
                "compiled kernels are kept in %s, since neither the package nor a home directory can be written to: "
                "the first query on each machine compiles them, about 10 s; NUMBA_CACHE_DIR names a place that stays",
                base,
            )
        return directory
    _log.warning(
        "there is no place for compiled kernels: every Python process compiles those it needs, 1 to 10 s; set "
        "NUMBA_CACHE_DIR to a directory that this user may write to (in Spark: spark.executorEnv.NUMBA_CACHE_DIR)"
    )
    return None


def _is_private(directory: str) -> bool:
    """True if only this user can have put something there: what is in a cache is run."""
    found = os.lstat(directory)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


@cache
def sources_digest(module: str) -> str:
    """SHA-256 over the file of a module that has kernels and every file of ours that it imports, directly or not: what
    they define, functions and constants alike, is compiled into the kernels. The module is loaded, or about to be."""
    digest = hashlib.sha256()
    for name in sorted(_with_imports(module)):
        digest.update(f"{name} {_source(name)[0]}\n".encode())
    return digest.hexdigest()


def _with_imports(module: str) -> set[str]:
    found = {module}
    waiting = [module]
    while waiting:
        new = set(_source(waiting.pop())[1]) - found
        found |= new
        waiting += new
    return found


@cache
def _source(module: str) -> tuple[str, tuple[str, ...]]:
    """(SHA-256 of a module's file, the modules of ours that it imports).

    Each file is read once, when the first kernel that needs it is defined: a file that is changed later, while this
    process lives, is not what is in its memory, and what it compiles must not pass for that file's.
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


class KernelCacheLocator:
    """Locator of the compiled kernels' cache, as Numba asks for it (numba.core.caching._CacheLocator)."""

    def __init__(self, py_func: Callable[..., Any], directory: str, digest: str) -> None:
        self._line = py_func.__code__.co_firstlineno
        self._directory = directory
        self._digest = digest

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Self | None:
        """None: not ours, or no place."""
        if py_func.__module__.partition(".")[0] not in _OURS:
            return None
        digest = sources_digest(py_func.__module__)
        directory = cache_directory(py_file, f"{py_func.__module__}-{digest[:16]}")
        return None if directory is None else cls(py_func, directory, digest)

    def ensure_cache_path(self) -> None:
        """Raises OSError where the directory has become unwritable."""
        os.makedirs(self._directory, exist_ok=True)

    def get_cache_path(self) -> str:
        return self._directory

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return str(self._line)


def install() -> bool:
    """Let Numba ask KernelCacheLocator first; whether kernels can be kept. Functions of other projects are not touched.

    Numba's list has a private name, which lost its underscore after 0.61. A release without it keeps to its own places.
    """
    asked: Any = getattr(caching, "CacheImpl", None) or getattr(caching, "_CacheImpl", None)
    if not hasattr(asked, "_locator_classes"):
        return True
    if KernelCacheLocator not in asked._locator_classes:
        asked._locator_classes.insert(0, KernelCacheLocator)
    return KernelCacheLocator.from_function(install, __file__) is not None
