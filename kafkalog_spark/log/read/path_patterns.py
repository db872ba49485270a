"""Paths as a user writes them: `~` for the home directory, the wildcards of a shell, URLs of object stores."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.log.format.names import DirKind, parse_partition_dir
from kafkalog_spark.log.store.interface import Store
from kafkalog_spark.log.store.local_store import LOCAL
from kafkalog_spark.log.store.urls import is_local, normalised

if TYPE_CHECKING:
    from kafkalog_spark.log.store.storage_options import StorageOptions


class Root(NamedTuple):
    """A path, absolute or a URL without a slash at its end, and what reads there."""

    path: str
    store: Store


def is_pattern(path: str) -> bool:
    """Whether a path stands for directories that have to be looked up: a directory of just that name comes first, so
    that `[` and `*` may be in a name. A URL with one is a pattern."""
    return glob.has_magic(path) and (not is_local(path) or not os.path.lexists(os.path.expanduser(path)))


def expanded_paths(paths: Iterable[str | os.PathLike[str]], storage: StorageOptions | None = None) -> tuple[Root, ...]:
    """Places, each once, in the order given; those that a pattern finds sorted by name.

    `~` is the home directory of the user that runs this process. A pattern finds directories, and of partitions'
    directories those in use: not the -delete, -future and -stray ones, which are read where they are named in full.
    Raises NotALogDirectory for a pattern that finds nothing, OptionError for a URL that nothing here reads.
    """
    found: dict[str, Store] = {}
    for given in paths:
        path, store = _located(os.fspath(given), storage)
        if not is_pattern(path):
            found[path] = store
            continue
        directories = _matches(path) if store is LOCAL else _remote_matches(path, store)
        in_use = [name for name in directories if _in_use(name)]
        if not in_use:
            raise NotALogDirectory("no directory matches the pattern", path=path)
        found.update((name, store) for name in in_use)
    return tuple(Root(path, store) for path, store in found.items())


def _located(path: str, storage: StorageOptions | None) -> Root:
    if is_local(path):
        return Root(normalised(os.path.expanduser(path)), LOCAL)
    from kafkalog_spark.log.store.stores import store_of  # the libraries of object stores only where they are wanted

    return Root(normalised(path), store_of(path, storage))


def _matches(path: str) -> list[str]:
    return [name for name in sorted(glob.glob(path)) if os.path.isdir(name)]


def _remote_matches(url: str, store: Store) -> list[str]:
    """Level by level, one listing for each directory that a level matched."""
    scheme, _, rest = url.partition("://")
    bucket, *levels = rest.split("/")
    found = [f"{scheme}://{bucket}"]
    for level in levels:
        found = [name for directory in found for name in _below(directory, level, store)]
    return sorted(found)


def _below(directory: str, level: str, store: Store) -> Iterator[str]:
    if not glob.has_magic(level):
        yield os.path.join(directory, level)
        return
    try:
        listing = store.list(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise NotALogDirectory(f"cannot be listed: {error.strerror}", path=directory) from error
    for name in listing.names:
        if fnmatch.fnmatchcase(name, level) and listing.is_directory(name):
            yield os.path.join(directory, name)


def _in_use(path: str) -> bool:
    parsed = parse_partition_dir(os.path.basename(path))
    return parsed is None or parsed.kind is DirKind.LIVE
