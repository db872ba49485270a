"""What a batch read with these options would read now: Spark shows neither path nor topics nor offsets of a source in
Python, in explain() or on its pages.

    print(kafkalog_spark.describe("/data/kafka-logs", subscribe="orders", startingTimestamp="1700000000000"))

    2 partitions of 1 topic, at most 1,250 records
    orders-0  offsets 1000 to 2000  /data/kafka-logs/orders-0
    orders-1  offsets 750 to 1000   /data/kafka-logs/orders-1
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.source.assigned_places import open_log_dirs, places_to_read
from kafkalog_spark.source.bounds import LogView, OffsetRange, resolve_bounds
from kafkalog_spark.source.log_view import opened_view
from kafkalog_spark.source.offset_range_limit import TopicPartition
from kafkalog_spark.source.options import parse_read_options
from kafkalog_spark.source.subscription import assigned_partitions


@dataclass(frozen=True)
class Description:
    """The range of offsets of every partition, with the directory that it is read from. `str` has a line for each."""

    partitions: Sequence[tuple[OffsetRange, PartitionPlace]]
    tail: int | None = None
    """Of each range the last so many records only."""

    def __str__(self) -> str:
        topics = {asked.topic for asked, _ in self.partitions}
        records = sum(min(asked.size, self.tail or asked.size) for asked, _ in self.partitions)
        counts = f"{_number(len(self.partitions), 'partition')} of {_number(len(topics), 'topic')}"
        lines = [f"{counts}, at most {_number(records, 'record')}"]
        table = [
            (f"{asked.topic}-{asked.partition}", f"offsets {asked.start} to {asked.end}", place.directory)
            for asked, place in self.partitions
        ]
        widths = [max((len(row[column]) for row in table), default=0) for column in range(2)]
        lines += [f"{name:<{widths[0]}}  {offsets:<{widths[1]}}  {where}" for name, offsets, where in table]
        return "\n".join(lines)


def describe(path: str | os.PathLike[str], **options: object) -> Description:
    """What `spark.read.format("kafkalog").options(**options).load(path)` would read now. Needs no Spark session.

    Opens the log of each partition, reads no records. Raises what the query would raise.
    """
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    parsed = parse_read_options({"path": os.fspath(path), **texts})
    if parsed.table is not None:
        raise OptionError(f"describe is of records, not of the table '{parsed.table.table}'")
    dirs = open_log_dirs(parsed)
    assigned = assigned_partitions(parsed.subscription, dirs.places)
    places = places_to_read(parsed, dirs, assigned)
    views: dict[TopicPartition, LogView] = {}
    for tp, place in places.items():
        found = opened_view(place, parsed)
        if found is not None:
            views[tp] = found[1]
    ranges = resolve_bounds(
        parsed.start,
        parsed.end,
        views,
        assigned=assigned,
        on_no_match=parsed.on_no_match,
        fail_on_data_loss=parsed.fail_on_data_loss,
    )
    return Description([(asked, places[asked.topic_partition]) for asked in ranges], parsed.tail)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
