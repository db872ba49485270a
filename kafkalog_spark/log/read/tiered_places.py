"""Local and remote directories of partitions put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.root_places import RemoteDir
from kafkalog_spark.log.tiered.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from kafkalog_spark.log.tiered.tier_options import TierOptions

TopicPartition = tuple[str, int]


def with_remote(
    local: Mapping[TopicPartition, Sequence[PartitionPlace]], remote: Iterable[RemoteDir], options: TierOptions
) -> dict[TopicPartition, list[PartitionPlace]]:
    """The places of each partition. Each copy in a log directory has all remote directories of the partition; those of
    partitions that no log directory holds are a place by themselves."""
    found = {tp: list(places) for tp, places in local.items()}
    by_partition: dict[TopicPartition, dict[str, RemoteDir]] = {}
    for place in remote:
        by_partition.setdefault((place.topic, place.partition), {}).setdefault(place.directory, place)
    if not by_partition:
        return found
    # the classes that read remote segments only where there are some
    from kafkalog_spark.log.read.remote_metadata import RemoteMetadata
    from kafkalog_spark.log.read.tiered_place import TieredPlace

    copies = [places for (topic, _), places in sorted(local.items()) if topic == REMOTE_LOG_METADATA_TOPIC]
    metadata = RemoteMetadata(copies) if copies else None
    for tp, directories in by_partition.items():
        dirs = tuple(directories.values())
        mine: Sequence[PartitionPlace | None] = found.get(tp) or [None]
        found[tp] = [TieredPlace.of(place, dirs, options, metadata) for place in mine]
    return found
