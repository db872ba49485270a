"""Discovery of partitions below the roots of a read: directories of a broker, or of tiered storage.

Names alone decide the layout. Only where all names could be of two layouts, one directory is listed to decide.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.format.names import LOG_SUFFIX, DirKind, PartitionDir, parse_partition_dir
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.tiered.remote_names import (
    LOCAL_TIERED_ROOT,
    Layout,
    TopicIdPartition,
    parse_aiven_topic_dir,
    parse_local_tiered_dir,
    parse_partition_number,
)
from kafkalog_spark.log.tiered.tier_options import TierOptions
from kafkalog_spark.store.interface import Listing, Store, in_parallel, is_local, normalised
from kafkalog_spark.store.local_store import LOCAL

if TYPE_CHECKING:
    from kafkalog_spark.store.storage_options import StorageOptions


def partition_dirs(log_dir: str | os.PathLike[str]) -> Iterator[tuple[PartitionDir, str]]:
    """(name taken apart, path) of the partitions' directories in a log directory, of every kind. Raises OSError."""
    with os.scandir(log_dir) as entries:
        for entry in entries:
            parsed = names.parse_partition_dir(entry.name) if entry.is_dir() else None
            if parsed is not None:
                yield parsed, entry.path


def log_files(directory: str | os.PathLike[str]) -> dict[int, os.stat_result]:
    """By base offset, in order: the .log files in a partition's directory that are not on their way in or out,
    with what the system says of them. Raises OSError."""
    found: dict[int, os.stat_result] = {}
    for entry in os.scandir(directory):
        if entry.name.endswith(LOG_SUFFIX) and (file := names.parse_segment_file(entry.name)):
            with suppress(FileNotFoundError):  # gone since it was listed
                found[file.base_offset] = entry.stat()
    return dict(sorted(found.items()))


def log_bytes(directory: str | os.PathLike[str]) -> int:
    """Bytes of the .log files in a partition's directory; 0 when it cannot be read: it is going away, or whoever opens
    it says what is wrong."""
    try:
        return sum(facts.st_size for facts in log_files(directory).values())
    except OSError:
        return 0


class Root(NamedTuple):
    """A path, absolute or a URL without a slash at its end, and what reads there."""

    path: str
    store: Store


def is_pattern(path: str) -> bool:
    """True if a path stands for directories that have to be looked up: a directory of just that name comes first, so
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


LOG_DIR_MARKS = frozenset({META_PROPERTIES_FILE, RECOVERY_POINT_CHECKPOINT, names.CLEAN_SHUTDOWN_FILE})
"""A directory with one of these is a log directory even when it holds no partition yet."""


@dataclass(frozen=True)
class RemoteDir:
    """Where a partition's remote segments lie, of one topic id. layout: AIVEN or LOCAL_TIERED."""

    layout: Layout
    topic: str
    partition: int
    topic_id: uuid.UUID
    directory: str
    store: Store

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic, self.topic_id, self.partition)


@dataclass
class RootPartitions:
    """Partitions found below one root, of a log directory or of tiered storage. is_partition: the root is a partition's
    directory itself."""

    places: list[PartitionLocation] = field(default_factory=list)
    remote: list[RemoteDir] = field(default_factory=list)
    is_partition: bool = False


def partitions_below(root: Root, options: TierOptions) -> RootPartitions:
    """List a root. Raises NotALogDirectory: it is missing, unreadable or of no layout, or of several."""
    path, store = root
    listing = _listed(path, store)
    own = names.parse_partition_dir(os.path.basename(path))
    if own is not None and any(
        name.endswith((names.LOG_SUFFIX, names.LOG_SUFFIX + names.SWAP_SUFFIX)) for name in listing.names
    ):
        return RootPartitions([PartitionLocation(own.topic, own.partition, path, store)], is_partition=True)
    layout = _layout_of(root, listing, options)
    if layout is Layout.AIVEN:
        return RootPartitions(remote=list(_aiven_dirs(root, listing, options)))
    if layout is Layout.LOCAL_TIERED:
        return RootPartitions(remote=list(_local_tiered_dirs(root, listing)))
    found = False
    places = []
    for name in sorted(listing.names):
        parsed = names.parse_partition_dir(name)
        if parsed is None or not listing.is_directory(name):
            continue
        found = True
        if parsed.kind is DirKind.LIVE:
            places.append(PartitionLocation(parsed.topic, parsed.partition, os.path.join(path, name), store))
    if not found and own is None and not LOG_DIR_MARKS & set(listing.names):
        raise _no_log_directory(path, listing)
    return RootPartitions(places)


def _listed(path: str, store: Store) -> Listing:
    try:
        return store.list(path)
    except NotADirectoryError:
        raise NotALogDirectory(
            "is a file; give the log directory that holds the partition directories, or one of these", path=path
        ) from None
    except FileNotFoundError as error:
        # an object store says what it looked for: there are no directories in it
        raise NotALogDirectory((error.strerror if store.remote else None) or "does not exist", path=path) from None
    except OSError as error:
        raise NotALogDirectory(f"cannot be read: {error.strerror}", path=path) from error


def _no_log_directory(path: str, listing: Listing) -> NotALogDirectory:
    segments = any(names.parse_segment_file(name) for name in listing.names)
    return NotALogDirectory(
        "is not a Kafka log directory: no <topic>-<partition> directory in it" + (", but segment files" * segments),
        path=path,
        hint="rename it to <topic>-<partition>, or give its parent" if segments else "give what log.dirs names",
    )


def _layout_of(root: Root, listing: Listing, options: TierOptions) -> Layout | None:
    """The layout of the directories in a root; None where there are none of any."""
    first: dict[Layout | None, str] = {}
    for name in sorted(listing.names):
        layouts = _layouts_of(name, options.key_prefix)
        meant = layouts[0] if len(layouts) == 1 else None  # None: could be of two
        if layouts and meant not in first and listing.is_directory(name):
            first[meant] = name
    either = first.pop(None, None)
    wanted = options.layout
    if wanted is not None:
        return wanted if wanted in first or either is not None else Layout.BROKER
    if either is not None and not first.keys() & {Layout.AIVEN, Layout.LOCAL_TIERED}:
        first[_layout_below(os.path.join(root.path, either), root.store)] = either
    if len(first) > 1:
        shown = ", ".join(f"{layout.value} ({name})" for layout, name in first.items() if layout is not None)
        raise NotALogDirectory(
            f"the directories in it are of several layouts: {shown}",
            path=root.path,
            hint="give a longer path, or say with the option layout which one is meant",
        )
    return next(iter(first), None)


def _layouts_of(name: str, key_prefix: str) -> list[Layout]:
    """Those in which a directory may have this name: a topic of Aiven's may look like a partition of
    LocalTieredStorage's."""
    if names.parse_partition_dir(name) is not None:
        return [Layout.BROKER]
    found = []
    if parse_aiven_topic_dir(name, key_prefix) is not None:
        found.append(Layout.AIVEN)
    if name == LOCAL_TIERED_ROOT or parse_local_tiered_dir(name) is not None:
        found.append(Layout.LOCAL_TIERED)
    return found


def _layout_below(directory: str, store: Store) -> Layout:
    listing = store.list(directory)
    below = any(parse_partition_number(name) is not None and listing.is_directory(name) for name in listing.names)
    return Layout.AIVEN if below else Layout.LOCAL_TIERED


def _aiven_dirs(root: Root, listing: Listing, options: TierOptions) -> Iterator[RemoteDir]:
    topics = []
    for name in sorted(listing.names):
        topic = parse_aiven_topic_dir(name, options.key_prefix)
        if topic is not None and listing.is_directory(name):
            topics.append((*topic, os.path.join(root.path, name)))

    def partitions(found: tuple[str, uuid.UUID, str]) -> list[RemoteDir]:
        topic, topic_id, directory = found
        try:
            below = root.store.list(directory)
        except FileNotFoundError:
            return []  # deleted since it was listed
        numbers = ((parse_partition_number(name), name) for name in below.names if below.is_directory(name))
        return [
            RemoteDir(Layout.AIVEN, topic, number, topic_id, os.path.join(directory, name), root.store)
            for number, name in sorted(numbers, key=lambda one: one[1])
            if number is not None
        ]

    try:
        for dirs in in_parallel(partitions, topics, lambda _: root.store.remote):
            yield from dirs
    except OSError as error:
        raise NotALogDirectory(f"cannot be listed: {error.strerror}", path=root.path) from error


def _local_tiered_dirs(root: Root, listing: Listing) -> Iterator[RemoteDir]:
    path = root.path
    if LOCAL_TIERED_ROOT in listing.names:
        path = os.path.join(path, LOCAL_TIERED_ROOT)
        listing = _listed(path, root.store)
    for name in sorted(listing.names):
        found = parse_local_tiered_dir(name)
        if found is not None and listing.is_directory(name):
            yield RemoteDir(
                Layout.LOCAL_TIERED, found.topic, found.partition, found.topic_id, os.path.join(path, name), root.store
            )
