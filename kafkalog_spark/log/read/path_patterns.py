"""Paths as a user writes them: `~` for the home directory, and the wildcards of a shell."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.log.format.names import DirKind, parse_partition_dir


def is_pattern(path: str) -> bool:
    """Whether a path stands for directories that have to be looked up: a directory of just that name comes first, so
    that `[` and `*` may be in a name."""
    return glob.has_magic(path) and not os.path.lexists(os.path.expanduser(path))


def expanded_paths(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Absolute paths, each once, in the order given; those that a pattern finds sorted by name.

    `~` is the home directory of the user that runs this process. A pattern finds directories, and of partitions'
    directories those in use: not the -delete, -future and -stray ones, which are read where they are named in full.
    Raises NotALogDirectory for a pattern that finds nothing.
    """
    found: dict[str, None] = {}
    for given in paths:
        path = os.path.expanduser(os.fspath(given))
        if not is_pattern(path):
            found[os.path.abspath(path)] = None
            continue
        directories = [name for name in sorted(glob.glob(path)) if os.path.isdir(name) and _in_use(name)]
        if not directories:
            raise NotALogDirectory("no directory matches the pattern", path=os.path.abspath(path))
        found.update((os.path.abspath(name), None) for name in directories)
    return tuple(found)


def _in_use(path: str) -> bool:
    parsed = parse_partition_dir(os.path.basename(path))
    return parsed is None or parsed.kind is DirKind.LIVE
