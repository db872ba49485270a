"""Discovery of partitions below the roots of a read: directories of a broker, or of tiered storage.

Names alone decide the layout. Only where all names could be of two layouts, one directory is listed to decide.

Log directories of several brokers, read together, hold copies of one partition. Offsets are the same in every copy, so
one is read instead of another without a gap: the leader's, that of the highest leader epoch (leader-epoch-checkpoint),
since a copy of an older one may hold records that the cluster has given up; of these the furthest log end.
"""

from __future__ import annotations

import fnmatch
import glob
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import RECOVERY_POINT_CHECKPOINT, TopicPartition
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.format.names import LOG_SUFFIX, DirKind, PartitionDir, parse_partition_dir
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.read.missing_segments import explain, has_partition_file
from kafkalog_spark.log.read.partition_log import PartitionLocation, leader_epochs, readable_meta_properties
from kafkalog_spark.log.tiered import remote_names
from kafkalog_spark.log.tiered.remote_names import LOCAL_TIERED_ROOT, Layout, TopicIdPartition
from kafkalog_spark.log.tiered.tier_options import TierOptions
from kafkalog_spark.store.interface import Listing, Store
from kafkalog_spark.store.local_store import LOCAL
from kafkalog_spark.store.parallel import in_parallel
from kafkalog_spark.store.paths import is_local, normalised

if TYPE_CHECKING:
    from kafkalog_spark.store.storage_options import StorageOptions

Replicas = Literal["longest", "error", "merge"]
"""How a partition in several log directories is read. "longest": read the copy that `best` names; "error";
"merge": that copy, and what is damaged in it from the others (repair/merged_log)."""
REPLICAS: tuple[Replicas, ...] = ("longest", "error", "merge")

NO_EPOCH = -1  # epoch of a copy without entries in its leader-epoch-checkpoint: Kafka's UNDEFINED_EPOCH
_SHOWN = 5  # partitions in the line that reports the choice

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaCopy:
    """A copy of a partition. `log_end`: None where the epoch alone has decided against it."""

    place: PartitionLocation
    epoch: int
    log_end: int | None = None

    def __str__(self) -> str:
        epoch = "no leader epoch" if self.epoch == NO_EPOCH else f"leader epoch {self.epoch}"
        return f"{self.place.directory} ({epoch}{'' if self.log_end is None else f', log end {self.log_end}'})"


def best(copies: Sequence[ReplicaCopy]) -> ReplicaCopy:
    """The highest leader epoch, then the furthest log end, then the first one given."""
    return max(copies, key=lambda copy: (copy.epoch, -1 if copy.log_end is None else copy.log_end))


def report(chosen: Mapping[TopicPartition, tuple[ReplicaCopy, Sequence[ReplicaCopy]]]) -> None:
    """Log, in one line, which copies are read instead of which; nothing for none."""
    if not chosen:
        return
    parts = [
        f"{topic}-{partition} from {copy}, not {', '.join(str(other) for other in copies if other is not copy)}"
        for (topic, partition), (copy, copies) in list(chosen.items())[:_SHOWN]
    ]
    if len(chosen) > _SHOWN:
        parts.append(f"{len(chosen) - _SHOWN} more")
    _log.warning(
        "replicas=longest: %d partitions lie in several log directories; read are %s", len(chosen), "; ".join(parts)
    )


def refuse_copies(
    copies: Mapping[TopicPartition, Sequence[PartitionLocation]], wanted: Iterable[TopicPartition]
) -> None:
    """replicas=error: raise NotALogDirectory for the first of the `wanted` partitions that lies in several places."""
    for topic, partition in wanted:
        if places := copies.get((topic, partition)):
            first, second, *_ = places
            raise NotALogDirectory(
                f"the partition lies in {first.directory} too; one of them must be left out",
                topic_partition=f"{topic}-{partition}",
                path=second.directory,
                hint="replicas=longest reads the copy of the highest leader epoch, and of these the one that ends last",
            )


def leading_copy(
    places: Sequence[PartitionLocation], log_end: Callable[[PartitionLocation], int | None], *, alone_too: bool
) -> tuple[ReplicaCopy, list[ReplicaCopy]] | None:
    """The copy to read, of those of the highest leader epoch, and all; None when every one has been deleted. log_end:
    of a copy's log, None for a deleted one; asked where epochs do not decide, and with alone_too always."""
    copies = []
    for place in places:
        epochs = leader_epochs(place.store, place.directory)
        copies.append(ReplicaCopy(place, epochs[-1].epoch if epochs else NO_EPOCH))
    while copies:
        highest = max(copy.epoch for copy in copies)
        leaders = [copy for copy in copies if copy.epoch == highest]
        for copy in leaders if alone_too or len(leaders) > 1 else ():
            end = log_end(copy.place)
            index = copies.index(copy)
            copies[index : index + 1] = [] if end is None else [replace(copy, log_end=end)]
        if any(copy.epoch == highest for copy in copies):
            return best(copies), copies
    return None


def chosen_copy(
    places: Sequence[PartitionLocation], *, pass_over_damage: bool = False
) -> tuple[ReplicaCopy, list[ReplicaCopy]] | None:
    """As `leading_copy`, of copies in log directories. Raises what finding the end of a log raises."""

    def log_end(place: PartitionLocation) -> int | None:
        try:
            return place.local.open(pass_over_damage=pass_over_damage).log_end_offset
        except NotALogDirectory:
            if place.local.exists():
                raise
            return None

    return leading_copy([place for place in places if place.local.exists()], log_end, alone_too=False)


def check_one_topic(
    places: Mapping[TopicPartition, PartitionLocation],
    copies: Mapping[TopicPartition, Sequence[PartitionLocation]],
    wanted: Collection[TopicPartition],
) -> None:
    """Raise NotALogDirectory where what is wanted of a topic lies in several log directories as different topics.
    Decided by the topic ids in partition.metadata (Kafka 2.8 and newer); where a partition has none, by the cluster ids
    in the log directories' meta.properties. What says nothing is taken for the same."""
    of_topic: dict[str, list[PartitionLocation]] = {}
    for tp in wanted:
        of_topic.setdefault(tp[0], []).extend(copies.get(tp, (places[tp],)))
    clusters: dict[str, str | None] = {}
    for found in of_topic.values():
        parents = {place.log_dir: place.store for place in found}
        if len(parents) == 1:
            continue
        ids = [(place, place.topic_id()) for place in found]
        named = [(place, f"topic id {uuid_to_text(known)}") for place, known in ids if known is not None]
        if len({mark for _, mark in named}) > 1:
            _refuse_two_topics(named)
        if len(named) < len(ids):
            for parent in parents.keys() - clusters.keys():
                clusters[parent] = readable_meta_properties(parents[parent], parent).cluster_id
            of_parent = [(place, clusters[place.log_dir]) for place in found]
            of_cluster = [(place, f"cluster {cluster}") for place, cluster in of_parent if cluster is not None]
            if len({mark for _, mark in of_cluster}) > 1:
                _refuse_two_topics(of_cluster)


def _refuse_two_topics(marked: Sequence[tuple[PartitionLocation, str]]) -> None:
    (place, mark), *others = marked
    other, other_mark = next(found for found in others if found[1] != mark)
    raise NotALogDirectory(
        f"the log directories hold different topics named {place.topic}: {place.directory} is of {mark}, "
        f"{other.directory} of {other_mark}",
        hint="load the directories of each cluster by themselves, and put the DataFrames together with union",
    )


def partition_dirs(log_dir: str | os.PathLike[str]) -> Iterator[tuple[PartitionDir, str]]:
    """(name taken apart, path) of the partitions' directories in a log directory, of every kind. Raises OSError."""
    with os.scandir(log_dir) as entries:
        for entry in entries:
            parsed = names.parse_partition_dir(entry.name)
            if parsed is not None and os.path.isdir(entry.path):  # is_dir() of an entry raises for a link to itself
                yield parsed, entry.path


def log_files(directory: str | os.PathLike[str]) -> dict[int, os.stat_result]:
    """By base offset, in order: the .log files that are not on their way in or out, and their facts. Raises OSError."""
    found: dict[int, os.stat_result] = {}
    for entry in os.scandir(directory):
        if entry.name.endswith(LOG_SUFFIX) and (file := names.parse_segment_file(entry.name)):
            with suppress(FileNotFoundError):  # gone since it was listed
                found[file.base_offset] = entry.stat()
    return dict(sorted(found.items()))


def log_bytes(directory: str | os.PathLike[str]) -> int:
    """Bytes of the .log files in a partition's directory; 0 when it cannot be read: whoever opens it says why."""
    try:
        return sum(facts.st_size for facts in log_files(directory).values())
    except OSError:
        return 0


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


LOG_DIR_MARKS = frozenset({META_PROPERTIES_FILE, RECOVERY_POINT_CHECKPOINT, names.CLEAN_SHUTDOWN_FILE})
"""A directory with one of these is a log directory even when it holds no partition yet."""


@dataclass(frozen=True)
class RemoteDir:
    """Where a partition's remote segments lie, of one topic id. layout: AIVEN or LOCAL_TIERED. tier_root: where a log
    directory's own file says that its segments are copied to; then the directory need not be there yet, as long as that
    is."""

    layout: Layout
    partition: TopicIdPartition
    directory: str
    store: Store
    tier_root: str | None = None


class RootPartitions(NamedTuple):
    """Partitions found below one root, of a log directory or of tiered storage. is_partition: the root is a partition's
    directory itself. remote_storage: path of the file that says where the log directory's segments are copied to."""

    places: Sequence[PartitionLocation] = ()
    remote: Sequence[RemoteDir] = ()
    is_partition: bool = False
    remote_storage: str | None = None


def partitions_below(root: Root, options: TierOptions) -> RootPartitions:
    """List a root. Raises NotALogDirectory: it is missing, unreadable or of no layout, or of several; or it is named
    like a partition, and holds no segment."""
    path, store = root
    listing = _listed(path, store)
    own = names.parse_partition_dir(os.path.basename(path))
    if own is not None and any(
        name.endswith((names.LOG_SUFFIX, names.LOG_SUFFIX + names.SWAP_SUFFIX)) for name in listing.names
    ):
        beside = os.path.join(os.path.dirname(path), names.REMOTE_STORAGE_FILE)
        recorded = beside if not store.remote and os.path.exists(beside) else None
        places = [PartitionLocation(own.topic, own.partition, path, store)]
        return RootPartitions(places, is_partition=True, remote_storage=recorded)
    layout = _layout_of(root, listing, options)
    if layout is Layout.AIVEN:
        return RootPartitions(remote=list(_aiven_dirs(root, listing, options)))
    if layout is Layout.LOCAL_TIERED:
        return RootPartitions(remote=list(_local_tiered_dirs(root, listing)))
    parsed = ((name, names.parse_partition_dir(name)) for name in sorted(listing.names))
    found = [(name, partition) for name, partition in parsed if partition is not None and listing.is_directory(name)]
    is_marked = bool(LOG_DIR_MARKS & set(listing.names))
    if not found and not is_marked:
        raise _not_a_log_dir(root, listing, own)
    places = [
        PartitionLocation(partition.topic, partition.partition, os.path.join(path, name), store)
        for name, partition in found
        if partition.kind is DirKind.LIVE
    ]
    if places and not is_marked and not store.remote and not any(map(_may_be_partition, places)):
        raise NotALogDirectory(
            f"is not a Kafka log directory: {os.path.basename(places[0].directory)} in it is named like a partition's "
            "directory, but has no file of a partition, nor has another one, and there is no meta.properties",
            path=path,
            hint=explain(path, store, listing) or "give what log.dirs names",
        )
    has_tier = names.REMOTE_STORAGE_FILE in listing.names
    return RootPartitions(places, remote_storage=os.path.join(path, names.REMOTE_STORAGE_FILE) if has_tier else None)


def _not_a_log_dir(root: Root, listing: Listing, own: PartitionDir | None) -> NotALogDirectory:
    """Error for a directory without partitions. `own`: what its name says, if that is a partition's."""
    path, store = root
    instead = explain(path, store, listing)
    if own is not None:
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


def _may_be_partition(place: PartitionLocation) -> bool:
    """True also for an empty directory: a partition that is just being created."""
    try:
        entries = os.listdir(place.directory)
        return not entries or has_partition_file(entries)
    except OSError:
        return True  # whoever opens it says what is wrong


def _listed(path: str, store: Store) -> Listing:
    try:
        return store.list(path)
    except NotADirectoryError:
        what = "is a file; give the log directory that holds the partition directories, or one of these"
        raise NotALogDirectory(what, path=path) from None
    except FileNotFoundError as error:
        # an object store says what it looked for: there are no directories in it
        what = (error.strerror if store.remote else None) or "does not exist"
        raise NotALogDirectory(what, path=path, hint=explain(path, store)) from None
    except OSError as error:
        raise NotALogDirectory(f"cannot be read: {error.strerror}", path=path) from error


def _layout_of(root: Root, listing: Listing, options: TierOptions) -> Layout | None:
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
        below = root.store.list(os.path.join(root.path, either))
        partitions = (name for name in below.names if remote_names.parse_partition_number(name) is not None)
        first[Layout.AIVEN if any(map(below.is_directory, partitions)) else Layout.LOCAL_TIERED] = either
    if len(first) > 1:
        shown = ", ".join(f"{layout.value} ({name})" for layout, name in first.items() if layout is not None)
        raise NotALogDirectory(
            f"the directories in it are of several layouts: {shown}",
            path=root.path,
            hint="give a longer path, or say with the option layout which one is meant",
        )
    return next(iter(first), None)


def _layouts_of(name: str, key_prefix: str) -> list[Layout]:
    """Those in which a directory may have this name: `a-0-<id>` may be a topic of Aiven's, too."""
    if names.parse_partition_dir(name) is not None:
        return [Layout.BROKER]
    found = []
    if remote_names.parse_aiven_topic_dir(name, key_prefix) is not None:
        found.append(Layout.AIVEN)
    if name == LOCAL_TIERED_ROOT or remote_names.parse_local_tiered_dir(name) is not None:
        found.append(Layout.LOCAL_TIERED)
    return found


def _aiven_dirs(root: Root, listing: Listing, options: TierOptions) -> Iterator[RemoteDir]:
    prefix, store = options.key_prefix, root.store

    def partitions(name: str) -> Iterator[RemoteDir]:
        topic = remote_names.parse_aiven_topic_dir(name, prefix)
        if topic is None or not listing.is_directory(name):
            return
        directory = os.path.join(root.path, name)
        with suppress(FileNotFoundError):  # deleted since it was listed
            below = store.list(directory)
            for number_name in sorted(filter(below.is_directory, below.names)):
                number = remote_names.parse_partition_number(number_name)
                if number is not None:
                    path = os.path.join(directory, number_name)
                    yield RemoteDir(Layout.AIVEN, TopicIdPartition(*topic, number), path, store)

    try:
        for dirs in in_parallel(lambda name: list(partitions(name)), sorted(listing.names), lambda _: store.remote):
            yield from dirs
    except OSError as error:
        raise NotALogDirectory(f"cannot be listed: {error.strerror}", path=root.path) from error


def _local_tiered_dirs(root: Root, listing: Listing) -> Iterator[RemoteDir]:
    path = root.path
    if LOCAL_TIERED_ROOT in listing.names:
        path = os.path.join(path, LOCAL_TIERED_ROOT)
        listing = _listed(path, root.store)
    for name in sorted(listing.names):
        found = remote_names.parse_local_tiered_dir(name)
        if found is not None and listing.is_directory(name):
            yield RemoteDir(Layout.LOCAL_TIERED, found, os.path.join(path, name), root.store)
