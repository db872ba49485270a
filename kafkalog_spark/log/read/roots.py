"""The roots of a read: paths and URLs as a user gives them, with `~` and wildcards resolved."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format.names import DirKind, parse_partition_dir
from kafkalog_spark.store.interface import LOCAL, Store, is_local, normalised

if TYPE_CHECKING:
    from kafkalog_spark.store.storage_options import StorageOptions


class Root(NamedTuple):
    """A path, absolute or a URL without a slash at its end, and what reads there."""

    path: str
    store: Store


def is_pattern(path: str) -> bool:
    """True if a path must be looked up: a URL with wildcards, or a local path unless something has just that name."""
    return glob.has_magic(path) and (not is_local(path) or not os.path.lexists(os.path.expanduser(path)))


def expanded_paths(paths: Iterable[str | os.PathLike[str]], storage: StorageOptions | None = None) -> tuple[Root, ...]:
    """Places, each once, in the order given; those that a pattern finds sorted by name. `~` is the home directory of
    the user that runs this process. A pattern finds directories, and of partitions' directories those in use: not the
    -delete, -future and -stray ones, which are read where they are named in full. Raises NotALogDirectory for a pattern
    that finds nothing, OptionError for a URL that nothing here reads."""
    found: dict[str, Store] = {}
    for given in paths:
        path, store = _located(os.fspath(given), storage)
        if not is_pattern(path):
            found[path] = store
            continue
        if store is LOCAL:
            directories = [name for name in sorted(glob.glob(path)) if os.path.isdir(name)]
        else:
            directories = _remote_matches(path, store)
        parsed = ((name, parse_partition_dir(os.path.basename(name))) for name in directories)
        in_use = [name for name, partition in parsed if partition is None or partition.kind is DirKind.LIVE]
        if not in_use:
            raise NotALogDirectory("no directory matches the pattern", path=path)
        found.update((name, store) for name in in_use)
    return tuple(Root(path, store) for path, store in found.items())


def _located(path: str, storage: StorageOptions | None) -> Root:
    if is_local(path):
        return Root(normalised(os.path.expanduser(path)), LOCAL)
    from kafkalog_spark.store.stores import store_of  # the libraries of object stores only where they are wanted

    return Root(normalised(path), store_of(path, storage))


def _remote_matches(url: str, store: Store) -> list[str]:
    """Level by level, one listing for each directory that a level matched."""

    def matches_in(directory: str, pattern: str) -> list[str]:
        try:
            listing = store.list(directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise NotALogDirectory(f"cannot be listed: {error.strerror}", path=directory) from error
        found = filter(listing.is_directory, fnmatch.filter(listing.names, pattern))
        return [os.path.join(directory, name) for name in found]

    scheme, _, rest = url.partition("://")
    bucket, *levels = rest.split("/")
    found = [f"{scheme}://{bucket}"]
    for level in levels:
        if glob.has_magic(level):
            found = [name for directory in found for name in matches_in(directory, level)]
        else:
            found = [os.path.join(directory, level) for directory in found]
    return sorted(found)
