"""Roots of a read: the paths and URLs that a user gives, with `~` and wildcards expanded."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format.names import DirKind, parse_partition_dir
from kafkalog_spark.store.interface import Store
from kafkalog_spark.store.local_store import LOCAL
from kafkalog_spark.store.paths import is_local, normalised

if TYPE_CHECKING:
    from kafkalog_spark.store.storage_options import StorageOptions


class Root(NamedTuple):
    """A path and its store. The path is absolute, or a URL without a slash at its end."""

    path: str
    store: Store


def is_pattern(path: str) -> bool:
    """Return True if a path has wildcards to expand. A local path that exists as it is written has none."""
    return glob.has_magic(path) and (not is_local(path) or not os.path.lexists(os.path.expanduser(path)))


def expanded_paths(paths: Iterable[str | os.PathLike[str]], storage: StorageOptions | None = None) -> tuple[Root, ...]:
    """Return the roots of paths, each once, in the given order; those of a pattern are sorted by name.

    `~` is the home directory of the user that runs this process. A pattern matches directories only. It does not match
    -delete, -future and -stray directories of partitions; a path must name them in full.

    Raises:
        NotALogDirectory: For a pattern that matches nothing.
        OptionError: For a URL of an unknown scheme.
    """
    stores: dict[str, Store] = {}
    for path_as_given in paths:
        path, store = _located(os.fspath(path_as_given), storage)
        if not is_pattern(path):
            stores[path] = store
            continue
        if store is LOCAL:
            directories = [name for name in sorted(glob.glob(path)) if os.path.isdir(name)]
        else:
            directories = _remote_matches(path, store)
        parsed = ((name, parse_partition_dir(os.path.basename(name))) for name in directories)
        in_use = [name for name, partition in parsed if partition is None or partition.kind is DirKind.LIVE]
        if not in_use:
            raise NotALogDirectory("no directory matches the pattern", path=path)
        stores.update((name, store) for name in in_use)
    return tuple(Root(path, store) for path, store in stores.items())


def _located(path: str, storage: StorageOptions | None) -> Root:
    if is_local(path):
        return Root(normalised(os.path.expanduser(path)), LOCAL)
    from kafkalog_spark.store.stores import store_of  # loads the clients of object stores

    return Root(normalised(path), store_of(path, storage))


def _remote_matches(url: str, store: Store) -> list[str]:
    """Return the directories that match a URL, level by level, with one listing for each matching directory."""

    def matches_in(directory: str, pattern: str) -> list[str]:
        try:
            listing = store.list(directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise NotALogDirectory(f"cannot be listed: {error.strerror}", path=directory) from error
        matching = filter(listing.is_directory, fnmatch.filter(listing.names, pattern))
        return [os.path.join(directory, name) for name in matching]

    scheme, _, bucket_and_path = url.partition("://")
    bucket, *levels = bucket_and_path.split("/")
    directories = [f"{scheme}://{bucket}"]
    for level in levels:
        if glob.has_magic(level):
            directories = [name for directory in directories for name in matches_in(directory, level)]
        else:
            directories = [os.path.join(directory, level) for directory in directories]
    return sorted(directories)
