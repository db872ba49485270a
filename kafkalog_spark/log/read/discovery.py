"""Finds the partitions below a root: in directories of a broker, or of tiered storage.

The layout is recognized by the names in the root. Only if every name fits two layouts, one directory is listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.format.names import DirKind, PartitionDir
from kafkalog_spark.log.read.missing_segments import hint_at_segments
from kafkalog_spark.log.read.partition_listing import has_partition_file
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.roots import Root
from kafkalog_spark.log.tiered import object_keys
from kafkalog_spark.log.tiered.object_keys import LOCAL_TIERED_ROOT, Layout
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition
from kafkalog_spark.log.tiered.tier_options import TierOptions
from kafkalog_spark.store.interface import Listing, Store
from kafkalog_spark.store.parallel import in_parallel

LOG_DIR_FILES = frozenset({META_PROPERTIES_FILE, RECOVERY_POINT_CHECKPOINT, names.CLEAN_SHUTDOWN_FILE})
"""Files by which a log directory is recognized, even one without partitions."""


@dataclass(frozen=True)
class RemoteDir:
    """Directory of a partition's remote segments, of one topic ID.

    Attributes:
        layout: AIVEN or LOCAL_TIERED.
        partition: Topic ID, topic and partition.
        directory: The directory.
        store: Its store.
        tier_root: Root of the remote storage, if a log directory's names.REMOTE_STORAGE_FILE gives it; else None. If
            it is set, `directory` need not exist yet, as long as the root does.
    """

    layout: Layout
    partition: TopicIdPartition
    directory: str
    store: Store
    tier_root: str | None = None


class RootPartitions(NamedTuple):
    """Partitions below one root.

    Attributes:
        locations: Partitions of a log directory.
        remote: Directories of tiered storage.
        is_partition: True if the root itself is a partition directory.
        remote_storage: Path of the log directory's names.REMOTE_STORAGE_FILE; None if it does not exist.
    """

    locations: Sequence[PartitionLocation] = ()
    remote: Sequence[RemoteDir] = ()
    is_partition: bool = False
    remote_storage: str | None = None


def find_partitions(root: Root, options: TierOptions) -> RootPartitions:
    """List a root, and return the partitions below it.

    Raises:
        NotALogDirectory: If the root does not exist, cannot be read, has no known layout or several, or is named like a
            partition directory and holds no segment.
    """
    path, store = root
    listing = _listed(path, store)
    root_partition = names.parse_partition_dir(os.path.basename(path))
    if root_partition is not None and any(
        name.endswith((names.LOG_SUFFIX, names.LOG_SUFFIX + names.SWAP_SUFFIX)) for name in listing.names
    ):
        beside = os.path.join(os.path.dirname(path), names.REMOTE_STORAGE_FILE)
        recorded = beside if not store.is_remote and os.path.exists(beside) else None
        locations = [PartitionLocation(root_partition.topic, root_partition.partition, path, store)]
        return RootPartitions(locations, is_partition=True, remote_storage=recorded)
    layout = _layout_of(root, listing, options)
    if layout is Layout.AIVEN:
        return RootPartitions(remote=list(_aiven_dirs(root, listing, options)))
    if layout is Layout.LOCAL_TIERED:
        return RootPartitions(remote=list(_local_tiered_dirs(root, listing)))
    parsed = ((name, names.parse_partition_dir(name)) for name in sorted(listing.names))
    partition_dirs = [
        (name, partition) for name, partition in parsed if partition is not None and listing.is_directory(name)
    ]
    has_log_dir_file = bool(LOG_DIR_FILES & set(listing.names))
    if not partition_dirs and not has_log_dir_file:
        raise _not_a_log_dir(root, listing, root_partition)
    locations = [
        PartitionLocation(partition.topic, partition.partition, os.path.join(path, name), store)
        for name, partition in partition_dirs
        if partition.kind is DirKind.LIVE
    ]
    if locations and not has_log_dir_file and not store.is_remote and not any(map(_may_be_partition, locations)):
        raise NotALogDirectory(
            f"is not a Kafka log directory: {os.path.basename(locations[0].directory)} in it is named like a "
            "partition's directory, but has no file of a partition, nor has another one, and there is no "
            "meta.properties",
            path=path,
            hint=hint_at_segments(path, store, listing) or "give what log.dirs names",
        )
    has_tier = names.REMOTE_STORAGE_FILE in listing.names
    return RootPartitions(locations, remote_storage=os.path.join(path, names.REMOTE_STORAGE_FILE) if has_tier else None)


def _not_a_log_dir(root: Root, listing: Listing, root_partition: PartitionDir | None) -> NotALogDirectory:
    """Return the error for a directory without partitions.

    root_partition: the parsed name of the directory; None if it is not that of a partition.
    """
    path, store = root
    instead = hint_at_segments(path, store, listing)
    if root_partition is not None:
        return NotALogDirectory(
            "the partition's directory holds no segment (.log file)",
            path=path,
            hint=instead or "give the partition's directory of a broker, or what log.dirs names",
        )
    segments = any(names.parse_segment_file(name) for name in listing.names)
    return NotALogDirectory(
        "is not a Kafka log directory: no <topic>-<partition> directory in it" + (", but segment files" * segments),
        path=path,
        hint="rename it to <topic>-<partition>, or give its parent"
        if segments
        else instead or "give what log.dirs names",
    )


def _may_be_partition(location: PartitionLocation) -> bool:
    """Return True if a directory has files of a partition, or is empty, as while a partition is being created."""
    try:
        entries = os.listdir(location.directory)
        return not entries or has_partition_file(entries)
    except OSError:
        return True  # opening it reports the error


def _listed(path: str, store: Store) -> Listing:
    try:
        return store.list(path)
    except NotADirectoryError:
        what = "is a file; give the log directory that holds the partition directories, or one of these"
        raise NotALogDirectory(what, path=path) from None
    except FileNotFoundError as error:
        # An object store has no directories. Its error names the prefix that does not exist.
        what = (error.strerror if store.is_remote else None) or "does not exist"
        raise NotALogDirectory(what, path=path, hint=hint_at_segments(path, store)) from None
    except OSError as error:
        raise NotALogDirectory(f"cannot be read: {error.strerror}", path=path) from error


def _layout_of(root: Root, listing: Listing, options: TierOptions) -> Layout | None:
    """Return the layout of a root, None if it has none. Raises NotALogDirectory if it has several."""
    first: dict[Layout | None, str] = {}  # first directory of each layout; of None, the first that fits two layouts
    for name in sorted(listing.names):
        layouts = _layouts_of(name, options.key_prefix)
        only = layouts[0] if len(layouts) == 1 else None
        if layouts and only not in first and listing.is_directory(name):
            first[only] = name
    ambiguous = first.pop(None, None)
    requested = options.layout
    if requested is not None:
        return requested if requested in first or ambiguous is not None else Layout.BROKER
    if ambiguous is not None and not first.keys() & {Layout.AIVEN, Layout.LOCAL_TIERED}:
        children = root.store.list(os.path.join(root.path, ambiguous))
        partitions = (name for name in children.names if object_keys.parse_partition_number(name) is not None)
        first[Layout.AIVEN if any(map(children.is_directory, partitions)) else Layout.LOCAL_TIERED] = ambiguous
    if len(first) > 1:
        shown = ", ".join(f"{layout.value} ({name})" for layout, name in first.items() if layout is not None)
        raise NotALogDirectory(
            f"the directories in it are of several layouts: {shown}",
            path=root.path,
            hint="give a longer path, or say with the option layout which one is meant",
        )
    return next(iter(first), None)


def _layouts_of(name: str, key_prefix: str) -> list[Layout]:
    """Return the layouts in which a directory may have this name. `a-0-<id>` may be a topic in Aiven's layout, too."""
    if names.parse_partition_dir(name) is not None:
        return [Layout.BROKER]
    layouts = []
    if object_keys.parse_aiven_topic_dir(name, key_prefix) is not None:
        layouts.append(Layout.AIVEN)
    if name == LOCAL_TIERED_ROOT or object_keys.parse_local_tiered_dir(name) is not None:
        layouts.append(Layout.LOCAL_TIERED)
    return layouts


def _aiven_dirs(root: Root, listing: Listing, options: TierOptions) -> Iterator[RemoteDir]:
    prefix, store = options.key_prefix, root.store

    def partitions(name: str) -> Iterator[RemoteDir]:
        topic = object_keys.parse_aiven_topic_dir(name, prefix)
        if topic is None or not listing.is_directory(name):
            return
        directory = os.path.join(root.path, name)
        with suppress(FileNotFoundError):  # deleted since it was listed
            below = store.list(directory)
            for number_name in sorted(filter(below.is_directory, below.names)):
                number = object_keys.parse_partition_number(number_name)
                if number is not None:
                    path = os.path.join(directory, number_name)
                    yield RemoteDir(Layout.AIVEN, TopicIdPartition(*topic, number), path, store)

    try:
        for dirs in in_parallel(lambda name: list(partitions(name)), sorted(listing.names), lambda _: store.is_remote):
            yield from dirs
    except OSError as error:
        raise NotALogDirectory(f"cannot be listed: {error.strerror}", path=root.path) from error


def _local_tiered_dirs(root: Root, listing: Listing) -> Iterator[RemoteDir]:
    path = root.path
    if LOCAL_TIERED_ROOT in listing.names:
        path = os.path.join(path, LOCAL_TIERED_ROOT)
        listing = _listed(path, root.store)
    for name in sorted(listing.names):
        parsed = object_keys.parse_local_tiered_dir(name)
        if parsed is not None and listing.is_directory(name):
            yield RemoteDir(Layout.LOCAL_TIERED, parsed, os.path.join(path, name), root.store)
