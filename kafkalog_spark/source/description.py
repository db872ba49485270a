"""Description of a batch read: the offset range of each partition, and the directory from which it is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.log_bounds import PartitionRange
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.planning import plan_ranges
from kafkalog_spark.source.read_locations import open_log_dirs
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.topic_partitions import tp_text


@dataclass(frozen=True)
class Description:
    """Offset range of each partition, and its directory. The text (`str`) has one line for each partition:

    2 partitions of 1 topic, at most 1,250 records
    orders-0  offsets 1000 to 2000  /data/kafka-logs/orders-0
    orders-1  offsets 750 to 1000   /data/kafka-logs/orders-1
    """

    partitions: Sequence[PartitionRange]
    tail: int | None = None  # largest number of records of each range

    def __str__(self) -> str:
        ranges = [partition.range for partition in self.partitions]
        topics = {each.topic for each in ranges}
        records = sum(min(each.size, self.tail or each.size) for each in ranges)
        counts = f"{_counted(len(self.partitions), 'partition')} of {_counted(len(topics), 'topic')}"
        lines = [f"{counts}, at most {_counted(records, 'record')}"]
        table = [
            (tp_text(each.topic_partition), f"offsets {each.range.start} to {each.range.end}", each.log.directory)
            for each in self.partitions
        ]
        widths = [max((len(row[column]) for row in table), default=0) for column in range(2)]
        lines += [f"{name:<{widths[0]}}  {offsets:<{widths[1]}}  {path}" for name, offsets, path in table]
        return "\n".join(lines)


def describe(path: str | os.PathLike[str], **options: object) -> Description:
    """Describe the ranges that `spark.read.format("kafkalog").options(**options).load(path)` would read now.

    Needs no session and reads no records. For a Python source, Spark's explain() and UI show neither path nor topics
    nor offsets.

    Args:
        path: The log directory.
        **options: Options of the read; True and False become `true` and `false`.

    Raises:
        KafkalogError: The error that the query would raise.
    """
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    parsed = parse_read_options({"path": os.fspath(path), **texts})
    if parsed.table is not None:
        raise OptionError(f"describe() covers records, not the table '{parsed.table.table_name}'")
    return Description(plan_ranges(parsed, open_log_dirs(parsed), RowFilter()), parsed.tail)


def _counted(count: int, noun: str) -> str:
    """Return "1 topic" or "2 topics"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
