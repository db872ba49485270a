"""Description of a batch read: the offset range of every partition, and the directory that it is read from."""

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
    """Offset range of every partition, with the directory that it is read from. `str` has a line for each.

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
        lines += [f"{name:<{widths[0]}}  {offsets:<{widths[1]}}  {path}" for name, offsets, path in table]
        return "\n".join(lines)


def describe(path: str | os.PathLike[str], **options: object) -> Description:
    """Describe what `spark.read.format("kafkalog").options(**options).load(path)` would read now.

    Needs no session and reads no records. Spark itself shows neither path nor topics nor offsets of a Python source, in
    explain() or in its UI.

    Args:
        path: The log directory.
        **options: Options of the read; True and False become `true` and `false`.

    Raises:
        KafkalogError: What the query would raise.
    """
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    parsed = parse_read_options({"path": os.fspath(path), **texts})
    if parsed.table is not None:
        raise OptionError(f"describe is of records, not of the table '{parsed.table.table}'")
    return Description(plan_ranges(parsed, open_log_dirs(parsed), RowFilter()), parsed.most_records)


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
