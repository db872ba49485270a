"""Remote storage recorded in a log directory, and the options with which a reader allows it.

A broker records the location of its remote segments in `kafkalog.remote-storage.properties`. The reader does not trust
the file, because the log directory may come from an untrusted source. Only a folder beside the log directory is read
without an option. Any other root must be given as an option or as one of the paths of the read, and every endpoint as
an option. Private keys and credentials are taken only from options or the environment.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kafkalog_spark.errors import KafkalogError, NotALogDirectory
from kafkalog_spark.format import names
from kafkalog_spark.format.meta_properties import parse_properties
from kafkalog_spark.format.relative_path import joined_below
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.roots import Root
from kafkalog_spark.log.read.state_files import parsed_file
from kafkalog_spark.log.remote.refused_store import RefusedStore
from kafkalog_spark.log.remote.remote_storage_options import RemoteStorageOptions
from kafkalog_spark.log.remote.tiered_log import LocationWithoutTopicId, TieredLocation
from kafkalog_spark.log.tiered.key_ring import KEY_OPTION_PREFIX
from kafkalog_spark.log.tiered.object_keys import LOCAL_TIERED_ROOT, Layout, remote_directory
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition
from kafkalog_spark.log.tiered.tier_options import ROOT_OPTION, TierOptions
from kafkalog_spark.store.hadoop_options import HADOOP_PREFIX
from kafkalog_spark.store.obstore_options import OBSTORE_PREFIX
from kafkalog_spark.store.parallel import in_parallel
from kafkalog_spark.store.paths import is_local, normalised, parse_path
from kafkalog_spark.store.storage_options import StorageOptions
from kafkalog_spark.store.stores import store_of

_REGION = HADOOP_PREFIX + "endpoint.region"
_PATH_STYLE = HADOOP_PREFIX + "path.style.access"
_VALID_REGION = re.compile(r"[a-z0-9-]{1,40}")
"""Pattern of valid regions. A region becomes part of the host name, so other characters could select another host."""
_S3_ENDPOINT = HADOOP_PREFIX + "endpoint"
_ENDPOINTS = (_S3_ENDPOINT, *(OBSTORE_PREFIX + name for name in ("base_url", "endpoint", "account_name")))
"""Storage options that select the server that receives the credentials."""
_DISK_ONLY_HINT = "layout=broker reads what is on disk alone"


class RecordedDirs(NamedTuple):
    """Remote directories of the partitions of a log directory.

    Attributes:
        locations: The partitions. A partition without a readable topic ID has a LocationWithoutTopicId.
        dirs: Remote directory of each partition that can have remote segments.
        key_files: Recorded paths of private keys, by key ID, for messages only: the files are never opened.
    """

    locations: list[PartitionLocation]
    dirs: list[RemoteDir]
    key_files: dict[str, str]


def recorded_dirs(
    file: Root,
    locations: Iterable[PartitionLocation],
    roots: Sequence[Root],
    storage: StorageOptions | None,
    tier: TierOptions,
) -> RecordedDirs:
    """Return the remote directories of partitions, according to the file in which their broker recorded its storage.

    Args:
        file: kafkalog.remote-storage.properties of the log directory.
        locations: Partitions in the log directory.
        roots: All paths of the read. Remote directories below one of them are allowed.
        storage: Options of the reader for object stores.
        tier: Options of the reader; `tier.root` replaces the root that the file names.

    Returns:
        The partitions and their remote directories. A directory that the reader has not allowed has a RefusedStore.

    Raises:
        CorruptFile: If the file cannot be parsed.
        OptionError: If a value in the file cannot be used.
        NotALogDirectory: If the file cannot be read for another reason than its permissions.
    """
    path = file.path
    try:
        recorded = RemoteStorageOptions.of_recorded(parsed_file(file.store, path, parse_properties))
    except PermissionError as error:
        reason = f"cannot be read, and says where remote segments of this log are: {error.strerror}"
        refused = RefusedStore(path, reason, f"give the remote storage as another path of the read; {_DISK_ONLY_HINT}")
        return RecordedDirs(*_locate_dirs(locations, lambda partition: _create_refused_dir(partition, refused)), {})
    except OSError as error:
        raise NotALogDirectory(f"cannot be read: {error.strerror}", path=path) from error
    except KafkalogError as error:
        raise error.at(path=path) from None
    own_options = storage or StorageOptions()
    root = recorded.root if tier.root is None else _select_root(tier.root, recorded.layout)
    missing = _missing_options(recorded, root, file, own_options, tier)
    store = None if missing else store_of(root, own_options.merged_over(_select_safe_options(recorded.storage)))
    refused = _create_refused_store(path, recorded, missing, tier)

    def locate_dir(partition: TopicIdPartition) -> RemoteDir:
        directory = joined_below(root, remote_directory(recorded.layout, partition, recorded.key_prefix))
        by_path = next((other.store for other in roots if directory.startswith(f"{other.path}/")), None)
        allowed = store or by_path
        if allowed is None:
            return _create_refused_dir(partition, refused)
        return RemoteDir(recorded.layout, partition, directory, allowed, root)

    return RecordedDirs(*_locate_dirs(locations, locate_dir), recorded.keys.files)


def refuse_unallowed(locations: Iterable[PartitionLocation]) -> None:
    """Raise OptionError if a partition has remote storage that the reader has not allowed."""
    for location in locations:
        for remote in location.remote if isinstance(location, TieredLocation) else ():
            if isinstance(remote.store, RefusedStore):
                remote.store.list(remote.directory)


def _locate_dirs(
    locations: Iterable[PartitionLocation], locate: Callable[[TopicIdPartition], RemoteDir]
) -> tuple[list[PartitionLocation], list[RemoteDir]]:
    def dir_of(location: PartitionLocation) -> tuple[PartitionLocation, RemoteDir | None]:
        if names.is_written_by_broker(location.topic):
            return location, None  # brokers never copy segments of internal topics
        topic_id = location.topic_id()
        if topic_id is None:
            return LocationWithoutTopicId(location.topic, location.partition, location.directory, location.store), None
        return location, locate(TopicIdPartition(location.topic, topic_id, location.partition))

    located = list(in_parallel(dir_of, locations, lambda location: location.store.is_remote))
    return [location for location, _ in located], [remote_dir for _, remote_dir in located if remote_dir]


def _create_refused_dir(partition: TopicIdPartition, store: RefusedStore) -> RemoteDir:
    """Return a remote directory with the path of the file, so that no recorded value is used as a path."""
    return RemoteDir(Layout.AIVEN, partition, store.path, store, store.path)


def _create_refused_store(
    path: str, recorded: RemoteStorageOptions, missing: list[str], tier: TierOptions
) -> RefusedStore:
    keys = [
        f"{KEY_OPTION_PREFIX}{key_id}={name}"
        for key_id, name in recorded.keys.files.items()
        if key_id not in tier.keys.ids
    ]
    options = " ".join(map(shlex.quote, [*missing, *keys]))
    return RefusedStore(
        path,
        f"names {recorded.root} as the remote storage of this log, which no option allows",
        f"if you trust it, give the options {options} (commands: --option NAME=VALUE for each); {_DISK_ONLY_HINT}",
    )


def _select_root(root: str, layout: Layout) -> str:
    chosen = normalised(root)
    is_above = layout is Layout.LOCAL_TIERED and os.path.basename(chosen) != LOCAL_TIERED_ROOT
    return os.path.join(chosen, LOCAL_TIERED_ROOT) if is_above else chosen


def _missing_options(
    recorded: RemoteStorageOptions, root: str, file: Root, own_options: StorageOptions, tier: TierOptions
) -> list[str]:
    """Return the options, as NAME=VALUE, that the reader must set to allow the recorded storage."""
    missing = []
    if tier.root is None and not _is_beside(recorded, file):
        missing.append(f"{ROOT_OPTION}={recorded.root}")
    scheme, bucket, _ = parse_path(root)
    if scheme != parse_path(recorded.root).scheme:
        return missing  # tiered.root replaces the root by another kind of store, which has endpoints of its own
    given_names = {name for name, _ in own_options.values}
    if given_names & {f"{HADOOP_PREFIX}bucket.{bucket}.endpoint", f"{OBSTORE_PREFIX}endpoint"}:
        given_names.add(_S3_ENDPOINT)
    recorded_endpoints = {name: value.text for name, value in recorded.storage.values if name in _ENDPOINTS}
    return missing + [f"{name}={text}" for name, text in recorded_endpoints.items() if name not in given_names]


def _is_beside(recorded: RemoteStorageOptions, file: Root) -> bool:
    """Return True if the recorded root is a local folder in the parent directory of the log directory."""
    if file.store.is_remote or not is_local(recorded.folder):
        return False
    log_dir = os.path.dirname(file.path)
    return os.path.realpath(os.path.dirname(recorded.folder)) == os.path.realpath(os.path.dirname(log_dir))


def _select_safe_options(storage: StorageOptions) -> StorageOptions:
    """Return the recorded options that select neither the server nor the credentials of a request."""
    return StorageOptions(
        tuple(
            (name, value)
            for name, value in storage.values
            if name == _PATH_STYLE or (name == _REGION and _VALID_REGION.fullmatch(value.text))
        )
    )
