"""Chooses the copy to read of partitions that are in several log directories.

Log directories of several brokers, read together, hold copies of one partition. Offsets are the same in every copy, so
a reader can change from one copy to another without a gap. The leader's copy is read: the one with the highest leader
epoch (leader-epoch-checkpoint), since a copy of an older epoch may hold records that the cluster has truncated; among
these, the one with the furthest log end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.state_files import leader_epochs_or_empty, meta_properties_or_default

Replicas = Literal["longest", "error", "merge"]
"""What to do with a partition in several log directories. "longest": read the copy that `choose_copy` returns. "error":
raise an error. "merge": read that copy, and replace damage in it by batches of the others (`log.repair.merged_log`)."""

REPLICAS: tuple[Replicas, ...] = ("longest", "error", "merge")

NO_EPOCH = -1
"""Epoch of a copy without entries in its leader-epoch-checkpoint (Kafka: UNDEFINED_EPOCH)."""

_SHOWN = 5  # partitions in the message about the choice

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaCopy:
    """A copy of a partition. `log_end` is None if the leader epochs alone decided the choice."""

    location: PartitionLocation
    epoch: int
    log_end: int | None = None

    def __str__(self) -> str:
        epoch = "no leader epoch" if self.epoch == NO_EPOCH else f"leader epoch {self.epoch}"
        return f"{self.location.directory} ({epoch}{'' if self.log_end is None else f', log end {self.log_end}'})"


class ReplicaChoice(NamedTuple):
    """The copy to read, and all copies of the partition."""

    chosen: ReplicaCopy
    copies: list[ReplicaCopy]


def best_copy(copies: Sequence[ReplicaCopy]) -> ReplicaCopy:
    """Return the copy with the highest leader epoch. Of several, return the first one with the furthest log end."""
    return max(copies, key=lambda copy: (copy.epoch, -1 if copy.log_end is None else copy.log_end))


def log_choices(choices: Mapping[TopicPartition, ReplicaChoice]) -> None:
    """Log, in one line, which copies are read instead of which others. Log nothing if there was no choice."""
    if not choices:
        return
    parts = [
        f"{topic}-{partition} from {copy}, not {', '.join(str(other) for other in copies if other is not copy)}"
        for (topic, partition), (copy, copies) in list(choices.items())[:_SHOWN]
    ]
    if len(choices) > _SHOWN:
        parts.append(f"{len(choices) - _SHOWN} more")
    _log.warning(
        "replicas=longest: %d partitions lie in several log directories; read are %s", len(choices), "; ".join(parts)
    )


def refuse_copies(
    copies: Mapping[TopicPartition, Sequence[PartitionLocation]], wanted: Iterable[TopicPartition]
) -> None:
    """Raise NotALogDirectory for the first wanted partition that has several copies (replicas=error)."""
    for topic, partition in wanted:
        if locations := copies.get((topic, partition)):
            first, second, *_ = locations
            raise NotALogDirectory(
                f"the partition lies in {first.directory} too; one of them must be left out",
                topic_partition=f"{topic}-{partition}",
                path=second.directory,
                hint="replicas=longest reads the copy of the highest leader epoch, and of these the one that ends last",
            )


def choose_leading_copy(
    locations: Sequence[PartitionLocation],
    find_log_end: Callable[[PartitionLocation], int | None],
    *,
    always_find_end: bool,
) -> ReplicaChoice | None:
    """Choose the copy to read among those of the highest leader epoch.

    Args:
        locations: The copies.
        find_log_end: Returns the log end of a copy; None if it was deleted. Called only if epochs alone do not decide.
        always_find_end: Call `find_log_end` for the copies of the highest epoch, even if there is only one.

    Returns:
        None if every copy was deleted.
    """
    copies = []
    for location in locations:
        epochs = leader_epochs_or_empty(location.store, location.directory)
        copies.append(ReplicaCopy(location, epochs[-1].epoch if epochs else NO_EPOCH))
    while copies:
        highest = max(copy.epoch for copy in copies)
        leaders = [copy for copy in copies if copy.epoch == highest]
        for copy in leaders if always_find_end or len(leaders) > 1 else ():
            end = find_log_end(copy.location)
            index = copies.index(copy)
            copies[index : index + 1] = [] if end is None else [replace(copy, log_end=end)]
        if any(copy.epoch == highest for copy in copies):
            return ReplicaChoice(best_copy(copies), copies)
    return None


def choose_copy(locations: Sequence[PartitionLocation], *, pass_over_damage: bool = False) -> ReplicaChoice | None:
    """Choose the copy to read as `choose_leading_copy`, and open copies only if epochs do not decide.

    Raises:
        CorruptBatch, UnsupportedFormat: For damage at the end of a log, unless pass_over_damage.
        NotALogDirectory: If a copy cannot be read.
    """

    def find_log_end(location: PartitionLocation) -> int | None:
        try:
            return location.in_log_directory.open(pass_over_damage=pass_over_damage).log_end_offset
        except NotALogDirectory:
            if location.in_log_directory.exists():
                raise
            return None

    return choose_leading_copy(
        [location for location in locations if location.in_log_directory.exists()], find_log_end, always_find_end=False
    )


def check_one_topic(
    locations: Mapping[TopicPartition, PartitionLocation],
    copies: Mapping[TopicPartition, Sequence[PartitionLocation]],
    wanted: Collection[TopicPartition],
) -> None:
    """Raise NotALogDirectory if log directories hold different topics of the same name.

    Topics are compared by the topic IDs in partition.metadata (Kafka 2.8 and newer); if a partition has none, by the
    cluster IDs in the meta.properties of the log directories. Missing IDs count as equal.
    """
    by_topic: dict[str, list[PartitionLocation]] = {}
    for tp in wanted:
        by_topic.setdefault(tp[0], []).extend(copies.get(tp, (locations[tp],)))
    cluster_ids: dict[str, str | None] = {}  # by log directory; read only if needed
    for of_topic in by_topic.values():
        log_dirs = {location.log_dir: location.store for location in of_topic}
        if len(log_dirs) == 1:
            continue
        topic_ids = [(location, location.topic_id()) for location in of_topic]
        with_topic_id = [
            (location, f"topic id {uuid_to_text(topic_id)}") for location, topic_id in topic_ids if topic_id is not None
        ]
        _refuse_different_ids(with_topic_id)
        if len(with_topic_id) < len(topic_ids):
            for log_dir in log_dirs.keys() - cluster_ids.keys():
                cluster_ids[log_dir] = meta_properties_or_default(log_dirs[log_dir], log_dir).cluster_id
            clusters = [(location, cluster_ids[location.log_dir]) for location in of_topic]
            with_cluster_id = [
                (location, f"cluster {cluster}") for location, cluster in clusters if cluster is not None
            ]
            _refuse_different_ids(with_cluster_id)


def _refuse_different_ids(ids: Sequence[tuple[PartitionLocation, str]]) -> None:
    """Raise NotALogDirectory if the IDs, of the topic or the cluster of each location, are not all the same."""
    if len({text for _, text in ids}) <= 1:
        return
    (location, text), *others = ids
    other, other_text = next(pair for pair in others if pair[1] != text)
    raise NotALogDirectory(
        f"the log directories hold different topics named {location.topic}: {location.directory} is of {text}, "
        f"{other.directory} of {other_text}",
        hint="load the directories of each cluster by themselves, and put the DataFrames together with union",
    )
