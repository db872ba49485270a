"""Where a user wants a read to start and end: Spark's KafkaOffsetRangeLimit as plain values.

`Bound` is one side. What it comes to in a log is decided in bounds.py; what can be said before that, here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError

TopicPartition = tuple[str, int]

# What Kafka's ListOffsets takes for "the end" and "the start", as an offset and as a timestamp.
LATEST = -1
EARLIEST = -2

_SHOWN_PARTITIONS = 20  # in an error; a directory may hold thousands


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start offset, looked up again at every action."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The log end offset (read_committed: the LSO), looked up again at every action."""


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset, LATEST or EARLIEST for each partition; `topics` gives LATEST or EARLIEST to whole topics."""

    offsets: Mapping[TopicPartition, int]
    topics: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """The first offset whose record timestamp is at least `timestamp` (ms), in every partition."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """Timestamps (ms) by partition."""

    timestamps: Mapping[TopicPartition, int]


Bound = Earliest | Latest | SpecificOffsets | GlobalTimestamp | SpecificTimestamps


def tp_text(topic_partition: TopicPartition) -> str:
    """`topic-0`, as Kafka writes a partition."""
    return f"{topic_partition[0]}-{topic_partition[1]}"


def check_bounds_agree(start: Bound, end: Bound) -> None:
    """What can be checked of two bounds before any log is known. Raises OptionError.

    Both by offset, or both by timestamp: they must name the same partitions, and no start may be after its end.
    Partitions of topics that either side gives as a whole are compared later, when the partitions are known.
    """
    whole: set[str] = set()
    if isinstance(start, SpecificOffsets) and isinstance(end, SpecificOffsets):
        kind, starts, ends = "offset", start.offsets, end.offsets
        whole = {*start.topics, *end.topics}
        same_topics = _topics_of(start) == _topics_of(end)
    elif isinstance(start, SpecificTimestamps) and isinstance(end, SpecificTimestamps):
        kind, starts, ends = "timestamp", start.timestamps, end.timestamps
        same_topics = True
    else:
        return
    only_here = {tp for tp in starts.keys() ^ ends.keys() if tp[0] not in whole}
    if only_here or not same_topics:
        raise OptionError(
            "The specified start offset and end offset should have the same topic-partitions. "
            f"Topic-partitions for start offset: {set_text(starts, start)}, "
            f"topic-partitions for end offset: {set_text(ends, end)}."
        )
    for tp in sorted(starts.keys() & ends.keys()):
        if starts[tp] > ends[tp] >= 0:  # LATEST and EARLIEST are negative and not comparable yet
            raise OptionError(
                f"The specified start {kind} {starts[tp]} is greater than the end {kind} {ends[tp]} "
                f"for topic {tp[0]} partition {tp[1]}.",
                topic_partition=tp_text(tp),
            )


def _topics_of(bound: SpecificOffsets) -> set[str]:
    return {*bound.topics, *(topic for topic, _ in bound.offsets)}


def set_text(partitions: Collection[TopicPartition], bound: Bound | None = None) -> str:
    """Partitions as the connector prints a set of them; topics that `bound` gives as a whole as `topic-*`."""
    whole = [f"{topic}-*" for topic in sorted(bound.topics)] if isinstance(bound, SpecificOffsets) else []
    return f"Set({cut_text([*whole, *map(tp_text, sorted(partitions))])})"


def cut_text(names: list[str]) -> str:
    more = len(names) - _SHOWN_PARTITIONS
    return ", ".join(names[:_SHOWN_PARTITIONS]) + (f", ... ({more} more)" if more > 0 else "")
