"""Where a partition lies that has remote segments: in directories of tiered storage, and perhaps in a log directory."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.partition_log import NO_HINTS, OpenHints, PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.tiered.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from kafkalog_spark.log.tiered.tier_options import NO_TIER, TierOptions
from kafkalog_spark.store.interface import Store

if TYPE_CHECKING:
    from kafkalog_spark.log.remote.part_finder import KnownLog
    from kafkalog_spark.log.remote.remote_dir_listing import RemoteMetadata
    from kafkalog_spark.log.remote.remote_segment_file import HeldSegment


@dataclass(frozen=True)
class TieredPlace(PartitionPlace):
    """directory, store: of the log directory's partition; without one of the first remote directory (`is_local`).

    remote: one for each topic id. known, remembered: what a task needs not look up, of a range, or of a log that it
    lists. A pickle carries the keys in `options`.
    """

    is_local: bool = False
    remote: tuple[RemoteDir, ...] = ()
    options: TierOptions = NO_TIER
    metadata: RemoteMetadata | None = None
    known: KnownLog | None = None
    remembered: tuple[HeldSegment, ...] = ()

    @classmethod
    def of(
        cls,
        local: PartitionPlace | None,
        remote: tuple[RemoteDir, ...],
        options: TierOptions,
        metadata: RemoteMetadata | None,
    ) -> TieredPlace:
        """The place of a partition that lies in `remote` directories, and in a local one unless that is None."""
        first = remote[0]
        where = PartitionPlace(first.topic, first.partition, first.directory, first.store) if local is None else local
        return cls(
            where.topic, where.partition, where.directory, where.store, local is not None, remote, options, metadata
        )

    @property
    def local(self) -> PartitionPlace:
        """As if there were no remote segments: of several copies of a partition, this is what is compared."""
        if not self.is_local:
            return self
        return PartitionPlace(self.topic, self.partition, self.directory, self.store)

    def open_unread(self, hints: OpenHints = NO_HINTS) -> PartitionLog:
        """As of PartitionPlace. Raises what reading manifests raises, too."""
        from kafkalog_spark.log.remote.tiered_log import TieredLog

        return TieredLog(
            self.topic,
            self.partition,
            self.directory,
            self.store,
            hints,
            is_local=self.is_local,
            remote=self.remote,
            options=self.options,
            metadata=self.metadata,
            known=self.known,
            remembered=self.remembered,
        )

    @property
    def stores(self) -> tuple[Store, ...]:
        """As of PartitionPlace."""
        return (self.store, *(place.store for place in self.remote))

    @property
    def has_checkpoints(self) -> bool:
        """As of PartitionPlace."""
        return self.is_local and self.known is None

    def exists(self) -> bool:
        """True if any of its directories is there."""
        return super().exists() or any(place.store.exists(place.directory) for place in self.remote)

    def topic_id(self) -> uuid.UUID | None:
        """As of PartitionPlace; without a local log, the one that all remote directories are of."""
        if self.is_local:
            return super().topic_id()
        ids = {place.topic_id for place in self.remote}
        return ids.pop() if len(ids) == 1 else None

    def carrying(self, log: PartitionLog, start: int, end: int | None) -> Self:
        """As of PartitionPlace."""
        from kafkalog_spark.log.remote.tiered_log import TieredLog

        if not isinstance(log, TieredLog):
            return self
        if end is None:
            return replace(self, remembered=log.learnt_from(start))
        return replace(self, known=log.known_for(start, end))


# Local and remote directories of partitions put together.

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
    from kafkalog_spark.log.remote.remote_dir_listing import RemoteMetadata

    copies = [places for (topic, _), places in sorted(local.items()) if topic == REMOTE_LOG_METADATA_TOPIC]
    metadata = RemoteMetadata(copies) if copies else None
    for tp, directories in by_partition.items():
        dirs = tuple(directories.values())
        mine: Sequence[PartitionPlace | None] = found.get(tp) or [None]
        found[tp] = [TieredPlace.of(place, dirs, options, metadata) for place in mine]
    return found
