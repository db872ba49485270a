"""How much a batch read would look at: segments, bytes and records of a range, reported before anything of it is read.

    print(estimate(["/data/kafka-logs"], {"subscribe": "orders", "startingTimestamp": "1700000000000"}))

Planned as the read itself is, so that its bytes are what `maxScanBytes` is held against.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.filters import RowFilter
from kafkalog_spark.source.offsets import TopicPartition, tp_text
from kafkalog_spark.source.options import READ_OPTIONS, SUBSCRIPTION_OPTIONS, parse_read_options
from kafkalog_spark.source.partition_bounds import PartitionRange, open_log_dirs, partition_ranges
from kafkalog_spark.source.planning import segments_of, splits_of

_EVERY_ROW = RowFilter()


@dataclass(frozen=True, slots=True)
class PartitionEstimate:
    """segments: those that hold any of the range. size: bytes of their .log files that would be looked at. records:
    offsets [start, end), of which compaction and control batches may have left fewer."""

    topic: str
    partition: int
    start: int
    end: int
    segments: int
    size: int
    records: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Sums over the partitions; size: bytes. `str` has a line for each partition, and one for them together."""

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
    """Estimate a batch read of these log directories: of every topic that is not internal, where no option names some.
    Raises as planning the read, and OptionError for options without a meaning here."""
    given = {name.lower() for name in options}
    # what cannot be held against maxScanBytes cannot be estimated
    for name in ("table", *(spec.name for spec in READ_OPTIONS if "maxScanBytes" in spec.excludes)):
        if name.lower() in given:
            raise OptionError(f"option '{name}' has no meaning for an estimate, which is of a range of records")
    texts = {"paths": json.dumps([os.fspath(path) for path in paths]), **options}
    if "mode" not in given:
        texts["mode"] = "DROPMALFORMED"  # where a damaged log ends has to be known, not whether it is good
    if not given & {option.name.lower() for option in SUBSCRIPTION_OPTIONS}:
        texts["allTopics"] = "true"
    parsed = parse_read_options(texts)
    ranges = partition_ranges(parsed, open_log_dirs(parsed), _EVERY_ROW)
    segments = segments_of(ranges, parsed, _EVERY_ROW)
    sizes: Counter[TopicPartition] = Counter()
    for split in splits_of(ranges, segments, parsed, _EVERY_ROW):
        sizes[split.range.topic_partition] += split.size
    partitions = [
        PartitionEstimate(
            *each.topic_partition, each.range.start, each.range.end, len(needed), sizes[each.topic_partition],
            each.range.size,
        )
        for each, needed in zip(ranges, segments, strict=True)
    ]  # fmt: skip
    count, records = sum(one.segments for one in partitions), sum(one.records for one in partitions)
    return Estimate(count, sizes.total(), records, partitions)


def _amounts(of: PartitionEstimate | Estimate) -> str:
    return (
        f"{of.segments} segments, {of.size} bytes of .log files ({of.size / 1e9:.3f} GB), at most {of.records} records"
    )


@dataclass(frozen=True)
class Description:
    """The range of offsets of every partition, with the directory that it is read from. `str` has a line for each.

    2 partitions of 1 topic, at most 1,250 records
    orders-0  offsets 1000 to 2000  /data/kafka-logs/orders-0
    orders-1  offsets 750 to 1000   /data/kafka-logs/orders-1
    """

    partitions: Sequence[PartitionRange]
    most_records: int | None = None  # of each range

    def __str__(self) -> str:
        ranges = [partition.range for partition in self.partitions]
        topics = {each.topic for each in ranges}
        records = sum(min(each.size, self.most_records or each.size) for each in ranges)
        counts = f"{_number(len(self.partitions), 'partition')} of {_number(len(topics), 'topic')}"
        lines = [f"{counts}, at most {_number(records, 'record')}"]
        table = [
            (tp_text(each.topic_partition), f"offsets {each.range.start} to {each.range.end}", each.log.directory)
            for each in self.partitions
        ]
        widths = [max((len(row[column]) for row in table), default=0) for column in range(2)]
        lines += [f"{name:<{widths[0]}}  {offsets:<{widths[1]}}  {where}" for name, offsets, where in table]
        return "\n".join(lines)


def describe(path: str | os.PathLike[str], **options: object) -> Description:
    """Describe what `spark.read.format("kafkalog").options(**options).load(path)` would read now, without a session and
    without reading records: Spark shows neither path nor topics nor offsets of a source in Python, in explain() or on
    its pages. Raises what the query would raise."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    parsed = parse_read_options({"path": os.fspath(path), **texts})
    if parsed.table is not None:
        raise OptionError(f"describe applies to records, not to the table '{parsed.table.table}'")
    return Description(partition_ranges(parsed, open_log_dirs(parsed), _EVERY_ROW), parsed.most_records)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
