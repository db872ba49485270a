"""How much a batch read would look at: segments, bytes and records of a range, reported before anything of it is read.

    print(estimate(["/data/kafka-logs"], {"subscribe": "orders", "startingTimestamp": "1700000000000"}))

Planned as the read itself is, so that its bytes are what `maxScanBytes` is held against.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.assigned_places import open_log_dirs
from kafkalog_spark.source.filters import RowFilter
from kafkalog_spark.source.offset_range_limit import TopicPartition
from kafkalog_spark.source.option_names import SUBSCRIPTION_OPTIONS
from kafkalog_spark.source.options import parse_read_options
from kafkalog_spark.source.planning import facts_of, resolved_ranges, splits_of

_EVERY_ROW = RowFilter()
_DAMAGE_IS_NO_REASON = "DROPMALFORMED"
"""Mode. Where a damaged log ends has to be known, not whether it is good."""
_WITHOUT_MEANING = ("table", "tail")


@dataclass(frozen=True, slots=True)
class PartitionEstimate:
    """Of one partition. segments: that hold any of the range. size: bytes of their .log files that would be looked at.
    records: offsets [start, end), of which compaction and control batches may have left fewer."""

    topic: str
    partition: int
    start: int
    end: int
    segments: int
    size: int

    @property
    def records(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of all partitions that the read is about. `str` has a line for each, and a sum."""

    partitions: Sequence[PartitionEstimate]

    @property
    def segments(self) -> int:
        return sum(partition.segments for partition in self.partitions)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(partition.size for partition in self.partitions)

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        fields = ("topic", "partition", "start", "end", "segments", "size", "records")
        return {
            "segments": self.segments,
            "size": self.size,
            "records": self.records,
            "partitions": [{name: getattr(one, name) for name in fields} for one in self.partitions],
        }

    def __str__(self) -> str:
        lines = [
            f"{one.topic}-{one.partition}: offsets {one.start} to {one.end}, {_amounts(one)}" for one in self.partitions
        ]
        return "\n".join([*lines, f"{len(self.partitions)} partitions: {_amounts(self)}"])


def estimate(paths: Iterable[str | os.PathLike[str]], options: Mapping[str, str]) -> Estimate:
    """What a batch read of these log directories with these options would look at; every topic that is not internal,
    where no option names some. Raises what planning the read raises; OptionError for options without a meaning here."""
    given = {name.lower() for name in options}
    for name in _WITHOUT_MEANING:
        if name in given:
            raise OptionError(f"option '{name}' has no meaning for an estimate, which is of a range of records")
    texts = {"paths": json.dumps([os.fspath(path) for path in paths]), **options}
    if "mode" not in given:
        texts["mode"] = _DAMAGE_IS_NO_REASON
    if not given & {option.name.lower() for option in SUBSCRIPTION_OPTIONS}:
        texts["allTopics"] = "true"
    parsed = parse_read_options(texts)
    ranges, places, logs = resolved_ranges(open_log_dirs(parsed), parsed, _EVERY_ROW)
    facts = facts_of(ranges, places, logs, parsed, _EVERY_ROW)
    sizes: Counter[TopicPartition] = Counter()
    for split in splits_of(ranges, facts, places, logs, parsed, _EVERY_ROW):
        sizes[split.range.topic_partition] += split.size
    return Estimate(
        [
            PartitionEstimate(*tp, one.start, one.end, len(facts[tp]), sizes[tp])
            for one in ranges
            for tp in (one.topic_partition,)
        ]
    )


def _amounts(of: PartitionEstimate | Estimate) -> str:
    return (
        f"{of.segments} segments, {of.size} bytes of .log files ({of.size / 1e9:.3f} GB), at most {of.records} records"
    )
