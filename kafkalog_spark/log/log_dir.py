"""Log directories: `LogDirs`, the reader without Spark.

    dirs = LogDirs.open("/data/kafka-logs")
    dirs.topics                                    # {"orders": (0, 1, 2), ...}
    log = dirs.partition("orders", 0)
    log.log_start_offset, log.log_end_offset
    offset_for_timestamp(log, 1_700_000_000_000)
    for batch in dirs.scan("orders"):              # pyarrow.RecordBatch
        ...
    dirs.table("batches", "orders").read_all()     # pyarrow.RecordBatchReader

The kernels are loaded when records are read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafkalog_spark.errors import UnknownPartition
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.log.read import discovery, replica_choice
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.missing_segments import warn_of_missing_segments
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.replica_choice import Replicas
from kafkalog_spark.log.read.roots import Root, expanded_paths
from kafkalog_spark.log.tiered.object_keys import Layout
from kafkalog_spark.log.tiered.tier_options import DEFAULT_TIER_OPTIONS, TierOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalog_spark.log.decode.scan_request import ScanRequest
    from kafkalog_spark.store.storage_options import StorageOptions


@dataclass(frozen=True)
class LogDirs:
    """The partitions of one or more log directories (Kafka's log.dirs), as they were listed.

    Attributes:
        locations: The first location of each partition.
        roots: The directories that were opened, with wildcards expanded.
        copies: All locations of partitions that are in several of the directories; `choose_locations` selects the one
            to read.
        partitions_only: True if every root is the directory of a single partition.
    """

    locations: dict[TopicPartition, PartitionLocation] = field(default_factory=dict)
    roots: tuple[Root, ...] = ()
    copies: dict[TopicPartition, tuple[PartitionLocation, ...]] = field(default_factory=dict)
    partitions_only: bool = False

    @classmethod
    def open(
        cls,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        storage: StorageOptions | None = None,
        tier: TierOptions = DEFAULT_TIER_OPTIONS,
    ) -> LogDirs:
        """List log directories, single partition directories, or directories of tiered storage.

        A partition directory may be a -stray, -future or -delete one. Remote storage that a log directory's own file
        names is opened too, if it is a folder beside the log directory, one of `paths` or `tier.root`; not with
        layout=broker.

        Args:
            paths: Paths, or URLs of object stores (docs/object_storage.md); `~` and shell wildcards are expanded.
            storage: How to access object stores.
            tier: Options of tiered storage. Without a layout, names of directories decide which one it is.

        Raises:
            NotALogDirectory: If a path is missing, unreadable or none of these, or a pattern matches nothing.
            OptionError: For a URL of an unknown scheme.
        """
        if isinstance(paths, str | os.PathLike):
            paths = [paths]
        roots = expanded_paths(paths, storage)
        local: dict[TopicPartition, list[PartitionLocation]] = {}
        remote: list[RemoteDir] = []
        partitions_only = True
        for root in roots:
            below_root = discovery.find_partitions(root, tier)
            partitions_only = partitions_only and below_root.is_partition
            remote += below_root.remote
            locations = below_root.locations
            if below_root.remote_storage is not None and tier.layout is not Layout.BROKER:
                from kafkalog_spark.log.remote.recorded_storage import recorded_dirs  # only needed if there is one

                recorded = recorded_dirs(
                    Root(below_root.remote_storage, root.store), below_root.locations, roots, storage, tier
                )
                remote += recorded.dirs
                tier = replace(tier, keys=tier.keys.with_recorded_files(recorded.key_files))
                locations = recorded.locations
            for location in locations:
                others = local.setdefault((location.topic, location.partition), [])
                if not any(_same_directory(location, other) for other in others):
                    others.append(location)
        ordered = sorted(_with_remote_dirs(local, remote, tier).items())
        return cls(
            {tp: locations[0] for tp, locations in ordered},
            roots,
            {tp: tuple(locations) for tp, locations in ordered if len(locations) > 1},
            partitions_only and bool(ordered),
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Absolute paths and URLs of the roots."""
        return tuple(root.path for root in self.roots)

    @property
    def topics(self) -> dict[str, tuple[int, ...]]:
        """Partitions by topic, both sorted, internal topics included."""
        topics: dict[str, list[int]] = {}
        for topic, partition in self.locations:
            topics.setdefault(topic, []).append(partition)
        return {topic: tuple(partitions) for topic, partitions in topics.items()}

    def partition(self, topic: str, partition: int) -> PartitionLog:
        """Open a partition. If several directories have a copy, open the one that `replica_choice.best_copy` returns.

        Raises:
            UnknownPartition: If no directory contains the partition.
        """
        location = self.locations.get((topic, partition))
        if location is None:
            partitions = self.topics.get(topic)
            what = self._topics_instead_of(topic)
            if partitions:
                what = f"{topic} has partitions {', '.join(map(str, partitions))}"
            raise UnknownPartition(f"not in {', '.join(self.paths)} ({what})", topic_partition=f"{topic}-{partition}")
        return self.choose_locations([(topic, partition)])[topic, partition].open()

    def choose_locations(
        self, partitions: Collection[TopicPartition], replicas: Replicas = "longest", *, pass_over_damage: bool = False
    ) -> dict[TopicPartition, PartitionLocation]:
        """Return the location to read of each partition, in their order. Log all choices in one line.

        Args:
            partitions: The partitions.
            replicas: What to do with a partition in several log directories.
            pass_over_damage: Ignore damage when the ends of copies are compared.

        Raises:
            NotALogDirectory: If the directories hold different topics of the same name, or as `choose_copy`; with
                replicas="error" for a partition with several copies.
            OptionError: With replicas="merge", which reads all copies, for tiered storage.
        """
        if replicas == "error":
            replica_choice.refuse_copies(self.copies, partitions)
        replica_choice.check_one_topic(self.locations, self.copies, partitions)
        choices = {}
        result = {tp: self.locations[tp] for tp in partitions}
        for tp in partitions:
            copies = self.copies.get(tp)
            if copies is not None and replicas == "merge":
                from kafkalog_spark.log.repair.merged_log import merged_location

                result[tp] = merged_location(copies)
            elif copies is not None:
                choice = replica_choice.choose_copy(copies, pass_over_damage=pass_over_damage)
                if choice is not None:
                    result[tp] = choice[0].location
                    if len(choice[1]) > 1:
                        choices[tp] = choice
        replica_choice.log_choices(choices)
        return result

    def _topics_instead_of(self, topic: str) -> str:
        near = names.similar_topics(topic, self.topics)
        some = list(self.topics)
        text = ", ".join(some[:10]) + (f" and {len(some) - 10} more" if len(some) > 10 else "") or "none"
        return (f"did you mean {', '.join(near)}? " if near else "") + f"topics: {text}"

    def _check_topic(self, topic: str | None) -> None:
        if topic is not None and topic not in self.topics:
            raise UnknownPartition(
                f"topic {topic} is not in {', '.join(self.paths)} ({self._topics_instead_of(topic)})"
            )

    def scan(
        self,
        topic: str | None = None,
        request: ScanRequest | None = None,
        *,
        tail: int | None = None,
        damage_rows: bool = False,
        replicas: Replicas = "longest",
        **options: object,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a topic, partition by partition.

        Args:
            topic: The topic; None for every topic that is not internal.
            request: Columns and conditions.
            tail: Only the last so many records of each partition. Conditions of the request narrow these.
            damage_rows: Yield a row for each damaged stretch too, instead of an error. Its columns
                (`record_schema.DAMAGE_COLUMN_TYPES`) come last, or where `columns` names them.
            replicas: What to do with a partition in several directories; "error" raises NotALogDirectory.
            **options: Fields of ScanRequest (columns=, timestamp_from_ms=, read_committed= ...), instead of `request`.

        Raises:
            UnknownPartition: For an unknown topic.
            KafkalogError: As `scan_partition`.
        """
        from kafkalog_spark.log.decode.scan_request import ScanRequest
        from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
        from kafkalog_spark.log.read.partition_scan import scan_partition
        from kafkalog_spark.log.read.tail import tail_start
        from kafkalog_spark.log.repair.damage_rows import scan_with_damage, with_damage_columns

        request = request or ScanRequest(**options)  # type: ignore[arg-type]
        self._check_topic(topic)
        partitions = [
            key for key in self.locations if key[0] == topic or (topic is None and not names.is_internal(key[0]))
        ]
        pass_over_damage = request.drop_malformed or damage_rows
        for location in self.choose_locations(partitions, replicas, pass_over_damage=pass_over_damage).values():
            log = location.open(pass_over_damage=pass_over_damage)
            warn_of_missing_segments([log])
            end = last_stable_offset(log) if request.read_committed else log.log_end_offset
            start = log.log_start_offset
            if tail is not None:
                start = tail_start(log, start, end, tail, request)
            if damage_rows:
                columns = with_damage_columns(request.columns)
                yield from scan_with_damage(log, start, end, columns, request, is_last=True)
            else:
                yield from scan_partition(log, start, end, request)

    def keys_and_values(self, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield key and value of every record of a topic."""
        for batch in LogDirs.scan(self, topic, columns=("key", "value")):
            yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)

    def table(
        self, name: str, topic: str | None = None, *, columns: Iterable[str] | None = None, history: bool = False
    ) -> pa.RecordBatchReader:
        """Return a metadata table (docs/tables.md), such as `batches` or `segments`; or `records`.

        For `records`, `scan` has more options; like there, internal topics are only included if named.

        Args:
            name: Name of the table.
            topic: Narrow the table to a topic; None for all topics, internal ones included.
            columns: Names, in the order of the result; None for all but those that must be named.
            history: In a table made of an internal topic, every record instead of the latest one of each key.

        Raises:
            OptionError: For an unknown table or column, and for a history or topic if the table has none.
            UnknownPartition: For an unknown topic.
            NotALogDirectory: While reading, if a file cannot be read.
            DataLoss: While reading, if a file has gone.
        """
        import pyarrow as pa

        from kafkalog_spark.log.decode.record_schema import COLUMNS, record_schema
        from kafkalog_spark.log.tables.context import context_of
        from kafkalog_spark.log.tables.declarations import RECORDS, table_query
        from kafkalog_spark.log.tables.read_table import rows_of_units
        from kafkalog_spark.log.tables.units import partitions_of, units_of, warn_of_missing_topic

        self._check_topic(topic)
        if name == RECORDS and not history:
            chosen = COLUMNS if columns is None else tuple(columns)
            return pa.RecordBatchReader.from_batches(record_schema(chosen), self.scan(topic, columns=chosen))
        locations = self.choose_locations(self.locations, pass_over_damage=True)
        query = table_query(name, columns, of_topics=topic is not None, history=history)
        warn_of_missing_topic(query, locations, self.paths)
        selected = {tp: locations[tp] for tp in partitions_of(query, locations) if topic is None or tp[0] == topic}

        def rows() -> Iterator[pa.RecordBatch]:
            context = context_of(query, locations, self.roots)
            yield from rows_of_units(units_of(query, selected, is_unnarrowed=topic is None), query, context)

        return pa.RecordBatchReader.from_batches(query.table.schema(query.columns), rows())


def _same_directory(location: PartitionLocation, other: PartitionLocation) -> bool:
    """Return True if two locations are the same directory, perhaps by a symbolic link."""
    if location.directory == other.directory or location.store.is_remote or other.store.is_remote:
        return location.directory == other.directory
    try:
        return os.path.samefile(location.directory, other.directory)
    except OSError:
        return False  # deleted since it was listed


def _with_remote_dirs(
    local: Mapping[TopicPartition, Sequence[PartitionLocation]], remote: Iterable[RemoteDir], options: TierOptions
) -> dict[TopicPartition, list[PartitionLocation]]:
    """Return the locations of each partition, with its remote directories.

    Each copy in a log directory gets all remote directories of the partition. A partition that no log directory holds
    is located in the first of them.
    """
    located = {tp: list(locations) for tp, locations in local.items()}
    by_partition: dict[TopicPartition, dict[str, RemoteDir]] = {}
    for remote_dir in remote:
        topic, _, number = remote_dir.partition
        directories = by_partition.setdefault((topic, number), {})
        directories.setdefault(remote_dir.directory, remote_dir)
    if not by_partition:
        return located
    # only needed if there are remote segments
    from kafkalog_spark.log.remote.remote_metadata_reader import RemoteMetadata
    from kafkalog_spark.log.remote.tiered_log import TieredLocation

    copies = [locations for (topic, _), locations in sorted(local.items()) if topic == names.REMOTE_LOG_METADATA_TOPIC]
    metadata = RemoteMetadata(copies) if copies else None
    for tp, directories in by_partition.items():
        dirs = tuple(directories.values())
        # A manifest has the same information as the topic, and reading it costs less.
        needs_topic = any(remote.tier_root is None or remote.layout is Layout.LOCAL_TIERED for remote in dirs)
        located[tp] = [
            TieredLocation(
                *tp, location.directory, location.store, tp in located, dirs, options, metadata if needs_topic else None
            )
            for location in located.get(tp, dirs[:1])
        ]
    return located
