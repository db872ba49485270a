"""Directories in which compiled kernels are looked up and stored, in order of preference.

NUMBA_CACHE_DIR                       if it is set
compiled/ in the package              kernels in a platform's wheel; only the build of the wheel writes there
__pycache__ alongside the source      environments that belong to their user, and images that were warmed
~/.cache/numba                        packages that are read-only, or in a zip or wheel (spark-submit --py-files)
$TMPDIR/kafkalog-kernels-<user id>    users without a home directory: containers of YARN and Kubernetes

This module does not import Numba, so that planning can check cheaply whether kernels are compiled.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger(__name__)

BASELINE = {"x86_64": "x86-64-v3", "aarch64": "generic", "arm64": "generic"}
"""LLVM's name of the processor for which a wheel's kernels are compiled, by machine: AVX2 and BMI2 (2013), ARMv8."""


class CacheDirectory(NamedTuple):
    """A directory in which a module's compiled kernels may be.

    Attributes:
        base: Directory that must exist or be creatable.
        path: Directory of the compiled kernels: `base` or a directory below it.
        is_writable_at_runtime: False if only the build of a wheel writes there.
    """

    base: str
    path: str
    is_writable_at_runtime: bool = True


def cache_directories(module: str, py_file: str, digest: str) -> tuple[CacheDirectory, ...]:
    """Return the directories for the kernels of a module, the preferred one first.

    Args:
        module: Name of the module.
        py_file: Path of its source.
        digest: sources_digest of the module. It is part of the names in directories that all programs of a user share.
            The path of the source is not, because Spark and pip give each application another one.
    """
    name, source, directories = f"{module}-{digest[:16]}", os.path.dirname(os.path.abspath(py_file)), []
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        directories.append(CacheDirectory(configured, os.path.join(configured, name)))
    if os.path.isdir(source):
        package = source
        for _ in range(module.count(".") - 1):
            package = os.path.dirname(package)
        compiled = os.path.join(package, "compiled", name)
        directories.append(CacheDirectory(package, compiled, is_writable_at_runtime=False))
        directories.append(CacheDirectory(source, os.path.join(source, "__pycache__")))
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if os.path.isabs(home):  # expanduser leaves "~" for a user without an entry in the password database
        directories.append(CacheDirectory(home, os.path.join(home, "numba", name)))
    temporary = temporary_directory()
    # The name is predictable, and the code in a cache is executed: another user must not be able to put some there.
    if not os.path.lexists(temporary) or _is_private(temporary):
        directories.append(CacheDirectory(temporary, os.path.join(temporary, name)))
    return tuple(directories)


def temporary_directory() -> str:
    """Return the cache directory in TMPDIR. It is used only if no other user can write to it."""
    return os.path.join(tempfile.gettempdir(), f"kafkalog-kernels-{os.getuid()}")


@cache
def writable_directory(directories: tuple[CacheDirectory, ...]) -> str | None:
    """Return the directory in which new kernels are stored; None, with a warning in the log, if none is writable."""
    for base, directory, is_writable_at_runtime in directories:
        is_temporary = base == temporary_directory()
        is_new = not os.path.isdir(base)
        if not is_writable_at_runtime:
            continue
        try:
            if is_temporary:
                os.makedirs(base, mode=0o700, exist_ok=True)
                if not _is_private(base):  # another user created it since `cache_directories`
                    continue
            os.makedirs(directory, exist_ok=True)
            tempfile.TemporaryFile(dir=directory).close()
        except OSError:
            continue
        if is_temporary and is_new:  # warn once per machine
            _log.warning(
                "compiled kernels are stored in %s, because neither the package nor a home directory is writable: the "
                "first query on each machine compiles them, about 10 s; set NUMBA_CACHE_DIR to a permanent directory",
                base,
            )
        return directory
    _log.warning(
        "there is no writable directory for compiled kernels: every Python process compiles those it needs, 1 to 10 s; "
        "set NUMBA_CACHE_DIR to a directory that this user may write to (in Spark: "
        "spark.executorEnv.NUMBA_CACHE_DIR)"
    )
    return None


def has_compiled(module: str) -> bool:
    """Return True if compiled kernels of this module are stored, even if they are of another version of the module."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return True
    for _, path, _ in cache_directories(module, spec.origin, ""):
        folder, name = os.path.split(path)
        pattern = f"{module.rpartition('.')[2]}.*.nbi" if name == "__pycache__" else f"{module}-*/*.nbi"
        if next(Path(path if name == "__pycache__" else folder).glob(pattern), None) is not None:
            return True
    return False


def _is_private(directory: str) -> bool:
    """Return True if a path is a directory of this user, and no other user can write to it."""
    status = os.lstat(directory)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
