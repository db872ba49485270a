"""Directories of compiled kernels. Knows no Numba, so that planning can ask whether there are any.

NUMBA_CACHE_DIR                       where it is set
compiled/ in the package              the kernels that a platform's wheel brings; never written to but by its build
__pycache__ alongside the source      an environment that belongs to its user, or an image that was warmed
~/.cache/numba                        a package that is read-only, or in a zip or wheel (spark-submit --py-files)
$TMPDIR/kafkalog-kernels-<user id>    no home either: containers of YARN and Kubernetes
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
"""Processor that a wheel's kernels are compiled for, by machine: AVX2 and BMI2 (2013), ARMv8 (LLVM's names)."""


class CacheDirectory(NamedTuple):
    """base: directory that must be there, or be made. path: directory of the compiled kernels, in or below it."""

    base: str
    path: str
    written_when_run: bool = True


def cache_directories(module: str, py_file: str, digest: str) -> tuple[CacheDirectory, ...]:
    """Directories for the kernels of a module, the preferred one first.

    digest: sources_digest of the module. It is in the names below directories that all programs of a user share; the
    path of the source is not, since Spark gives each application a directory of its own, and so does pip.
    """
    packed, source, found = f"{module}-{digest[:16]}", os.path.dirname(os.path.abspath(py_file)), []
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        found.append(CacheDirectory(named, os.path.join(named, packed)))
    if os.path.isdir(source):
        package = source
        for _ in range(module.count(".") - 1):
            package = os.path.dirname(package)
        found.append(CacheDirectory(package, os.path.join(package, "compiled", packed), written_when_run=False))
        found.append(CacheDirectory(source, os.path.join(source, "__pycache__")))
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if os.path.isabs(home):  # "~" stays "~" for a user whom the system does not know
        found.append(CacheDirectory(home, os.path.join(home, "numba", packed)))
    temporary = temporary_directory()
    # Everybody can foresee its name, and what is in a cache is run.
    if not os.path.lexists(temporary) or _is_private(temporary):
        found.append(CacheDirectory(temporary, os.path.join(temporary, packed)))
    return tuple(found)


def temporary_directory() -> str:
    """The directory in TMPDIR, used if it belongs to this user alone."""
    return os.path.join(tempfile.gettempdir(), f"kafkalog-kernels-{os.getuid()}")


def _is_private(directory: str) -> bool:
    """True if only this user can have put something there."""
    found = os.lstat(directory)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


@cache
def writable_directory(directories: tuple[CacheDirectory, ...]) -> str | None:
    """The directory for what had to be compiled; None, with one line in the log, where there is none."""
    for base, directory, written_when_run in directories:
        temporary = base == temporary_directory()
        new = not os.path.isdir(base)
        if not written_when_run:
            continue
        try:
            if temporary:
                os.makedirs(base, mode=0o700, exist_ok=True)
                if not _is_private(base):  # somebody was faster
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


def has_compiled(module: str) -> bool:
    """True if some process has compiled kernels of this module before, of this version of it or of another."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return True
    for _, path, _ in cache_directories(module, spec.origin, ""):
        folder, name = os.path.split(path)
        pattern = f"{module.rpartition('.')[2]}.*.nbi" if name == "__pycache__" else f"{module}-*/*.nbi"
        if next(Path(path if name == "__pycache__" else folder).glob(pattern), None) is not None:
            return True
    return False
