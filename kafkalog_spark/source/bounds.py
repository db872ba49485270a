"""Start and end of a read as the options give them, before they are resolved to offsets of a log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.topic_partitions import TopicPartition, set_text, tp_text

LATEST = -1
EARLIEST = -2
"""Kafka's numbers for the end and the start of a log in ListOffsets, both as an offset and as a timestamp."""


class PartitionNumbers(NamedTuple):
    """Numbers of a bound by partition.

    Attributes:
        numbers: Number of each partition that is assigned, or that the bound names.
        unassigned_topics: Topics that the bound names as a whole and of which no partition is assigned.
    """

    numbers: Mapping[TopicPartition, int]
    unassigned_topics: set[str]


@dataclass(frozen=True, slots=True)
class Bound:
    """Start or end of a read (Spark: `KafkaOffsetRangeLimit`). `bound_resolution` resolves it to offsets.

    A number is an offset or, with `by_time`, a timestamp. A timestamp stands for the first offset whose record has at
    least that timestamp.

    Attributes:
        of_all: Number for every partition; None if `partitions` and `topics` have the numbers.
        partitions: Number by partition.
        topics: Number by topic, for all its partitions.
        by_time: True if the numbers are timestamps (ms), False if they are offsets.
    """

    of_all: int | None = None
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    by_time: bool = False

    @property
    def named_topics(self) -> set[str]:
        return {*self.topics, *(topic for topic, _ in self.partitions)}

    def by_partition(self, assigned: Collection[TopicPartition]) -> PartitionNumbers:
        """Return the numbers of the assigned partitions, and of others that the bound names."""
        if self.of_all is not None:
            return PartitionNumbers(dict.fromkeys(assigned, self.of_all), set())
        from_topics = {tp: self.topics[tp[0]] for tp in assigned if tp[0] in self.topics}
        assigned_topics = {topic for topic, _ in assigned}
        return PartitionNumbers(from_topics | dict(self.partitions), self.topics.keys() - assigned_topics)


AT_EARLIEST, AT_LATEST = Bound(EARLIEST), Bound(LATEST)
"""Late-bound: resolved again at every action. The end is the log end offset; with read_committed it is the LSO."""


def check_bounds_agree(start: Bound, end: Bound) -> None:
    """Raise OptionError if two bounds of the same kind name different partitions, or a start is after its end.

    Partitions of whole topics are compared later, when they are known.
    """
    if start.by_time != end.by_time or start.of_all is not None or end.of_all is not None:
        return
    kind, starts, ends = "timestamp" if start.by_time else "offset", start.partitions, end.partitions
    whole_topics = {*start.topics, *end.topics}
    in_one_bound_only = {tp for tp in starts.keys() ^ ends.keys() if tp[0] not in whole_topics}
    if in_one_bound_only or start.named_topics != end.named_topics:
        raise OptionError(
            "The specified start offset and end offset should have the same topic-partitions. "
            f"Topic-partitions for start offset: {set_text(starts, start.topics)}, "
            f"topic-partitions for end offset: {set_text(ends, end.topics)}."
        )
    for tp in sorted(starts.keys() & ends.keys()):
        if starts[tp] > ends[tp] >= 0:  # LATEST and EARLIEST are negative, and cannot be compared yet
            raise OptionError(
                f"The specified start {kind} {starts[tp]} is greater than the end {kind} {ends[tp]} "
                f"for topic {tp[0]} partition {tp[1]}.",
                topic_partition=tp_text(tp),
            )
