"""Partitions that lie in several log directories: which copy is read, and whether they are copies of one topic at all.

A cluster keeps each partition on several brokers, so its log directories, read together, hold the same records more
than once. Offsets are the same in every copy, so one is read instead of another without a gap. The leader's copy is the
one that counts: the highest leader epoch (leader-epoch-checkpoint), since a copy of an older epoch may hold records
that the cluster has given up, and of these the furthest log end, since a follower may lag.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.read.small_files import cluster_id, leader_epochs

if TYPE_CHECKING:
    from kafkalog_spark.log.read.partition_log import PartitionLocation

Replicas = Literal["longest", "error", "merge"]
"""How a partition in several log directories is read. "longest": read the copy that `best` names; "error";
"merge": that copy, and what is damaged in it from the others (repair/merged_copies)."""
REPLICAS: tuple[Replicas, ...] = ("longest", "error", "merge")

TopicPartition = tuple[str, int]

NO_EPOCH = -1
"""Epoch of a copy without entries in its leader-epoch-checkpoint: Kafka's UNDEFINED_EPOCH."""
_SHOWN = 5  # partitions in the line that reports the choice

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaCopy:
    """A copy of a partition. `log_end`: None where the epoch alone has decided against it."""

    place: PartitionLocation
    epoch: int
    log_end: int | None

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


def leader_epoch(place: PartitionLocation) -> int:
    """The last epoch in leader-epoch-checkpoint, NO_EPOCH without one."""
    epochs = leader_epochs(place.store, place.directory)
    return epochs[-1].epoch if epochs else NO_EPOCH


def chosen_copy(
    places: Sequence[PartitionLocation], *, pass_over_damage: bool = False
) -> tuple[ReplicaCopy, list[ReplicaCopy]] | None:
    """The copy to read, and all there are; None when every one has been deleted since it was listed.

    Opens the logs only where epochs do not decide. Raises what finding the end of such a log raises.
    """
    copies = [ReplicaCopy(place, leader_epoch(place), None) for place in places if place.local.exists()]
    highest = max((copy.epoch for copy in copies), default=NO_EPOCH)
    leaders = [copy for copy in copies if copy.epoch == highest]
    for copy in leaders if len(leaders) > 1 else ():
        index, local = copies.index(copy), copy.place.local
        try:
            copies[index] = replace(copy, log_end=local.open(pass_over_damage=pass_over_damage).log_end_offset)
        except NotALogDirectory:
            if local.exists():
                raise
            del copies[index]
    return (best(copies), copies) if copies else None


def chosen_locations(
    places: Mapping[TopicPartition, PartitionLocation],
    copies: Mapping[TopicPartition, Sequence[PartitionLocation]],
    wanted: Collection[TopicPartition],
    replicas: Replicas = "longest",
    *,
    pass_over_damage: bool = False,
) -> dict[TopicPartition, PartitionLocation]:
    """Where to read each of the `wanted` partitions, in their order. Only these are judged.

    Reports in one line where there was a choice. Raises NotALogDirectory where directories hold different topics of
    one name, and with replicas="error" for a partition in several places; what `chosen_copy` raises.
    """
    if replicas == "error":
        refuse_copies(copies, wanted)
    check_one_topic(places, copies, wanted)
    choices = {}
    result = {}
    for tp in wanted:
        result[tp] = places[tp]
        if tp in copies and (choice := chosen_copy(copies[tp], pass_over_damage=pass_over_damage)) is not None:
            result[tp] = choice[0].place
            if len(choice[1]) > 1:
                choices[tp] = choice
    report(choices)
    return result


def check_one_topic(
    places: Mapping[TopicPartition, PartitionLocation],
    copies: Mapping[TopicPartition, Sequence[PartitionLocation]],
    wanted: Collection[TopicPartition],
) -> None:
    """Raise NotALogDirectory where what is wanted of a topic lies in several log directories as different topics.

    Decided by the topic ids in partition.metadata (Kafka 2.8 and newer); where a partition has none, by the cluster ids
    in the log directories' meta.properties. What says nothing is taken for the same.
    """
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
                clusters[parent] = cluster_id(parents[parent], parent)
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
