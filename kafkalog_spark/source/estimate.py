"""Estimate of a batch read: its segments, bytes and records, without reading them.

    print(estimate(["/data/kafka-logs"], {"subscribe": "orders", "startingTimestamp": "1700000000000"}))

It is planned like the read itself, so `maxScanBytes` limits the same number of bytes.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.options import READ_OPTIONS, SUBSCRIPTION_OPTIONS
from kafkalog_spark.source.planning import plan_ranges, plan_segments, splits_of
from kafkalog_spark.source.read_locations import open_log_dirs
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.topic_partitions import TopicPartition

_EVERY_ROW = RowFilter()


@dataclass(frozen=True, slots=True)
class PartitionEstimate:
    """Estimate for the offsets [start, end) of a partition.

    Attributes:
        segments: Number of segments that contain part of the range.
        size: Bytes of their .log files that would be read.
        records: Upper bound of the number of records: compaction and control batches leave gaps.
    """

    topic: str
    partition: int
    start: int
    end: int
    segments: int
    size: int
    records: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Sums over the partitions. The text (`str`) has one line for each partition, and one for the sums."""

    segments: int
    size: int
    records: int
    partitions: Sequence[PartitionEstimate]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{p.topic}-{p.partition}: offsets {p.start} to {p.end}, {_amounts(p)}" for p in self.partitions]
        return "\n".join([*lines, f"{len(self.partitions)} partitions: {_amounts(self)}"])


def estimate(paths: Iterable[str | os.PathLike[str]], options: Mapping[str, str]) -> Estimate:
    """Estimate a batch read of these log directories.

    Args:
        paths: The log directories.
        options: Options of the read. If none of them names topics, the estimate covers all topics that are not
            internal.

    Raises:
        OptionError: For an option that has no meaning in an estimate.
        KafkalogError: As `plan_ranges`.
    """
    given = {name.lower() for name in options}
    # A read that maxScanBytes cannot limit cannot be estimated either.
    for name in ("table", *(spec.name for spec in READ_OPTIONS if "maxScanBytes" in spec.excludes)):
        if name.lower() in given:
            raise OptionError(f"option '{name}' has no meaning in an estimate, which is about a range of records")
    texts = {"paths": json.dumps([os.fspath(path) for path in paths]), **options}
    if "mode" not in given:
        texts["mode"] = "DROPMALFORMED"  # a damaged log is estimated, too
    if not given & {option.name.lower() for option in SUBSCRIPTION_OPTIONS}:
        texts["allTopics"] = "true"
    parsed = parse_read_options(texts)
    planned = plan_segments(plan_ranges(parsed, open_log_dirs(parsed), _EVERY_ROW), parsed, _EVERY_ROW)
    sizes: Counter[TopicPartition] = Counter()
    for split in splits_of(planned, parsed, _EVERY_ROW):
        sizes[split.range.topic_partition] += split.size
    partitions = [
        PartitionEstimate(
            *each.topic_partition, each.start, each.end, len(segments), sizes[each.topic_partition], each.size
        )
        for each, segments in ((planned_range.partition.range, planned_range.segments) for planned_range in planned)
    ]  # fmt: skip
    segment_count = sum(partition.segments for partition in partitions)
    records = sum(partition.records for partition in partitions)
    return Estimate(segment_count, sizes.total(), records, partitions)


def _amounts(estimate: PartitionEstimate | Estimate) -> str:
    size = f"{estimate.size} bytes of .log files ({estimate.size / 1e9:.3f} GB)"
    return f"{estimate.segments} segments, {size}, at most {estimate.records} records"
