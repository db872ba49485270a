"""A query of a table, divided into pieces of work that know nothing of each other. Small and picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.format.names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkalog_spark.log.read.discovery import Root
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.tables.table import FINDINGS, PRODUCERS, SEGMENTS, TABLES, TRANSACTIONS, Table, Unit

if TYPE_CHECKING:
    from kafkalog_spark.log.tables.transactions import TransactionalId


@dataclass(frozen=True, slots=True)
class TableQuery:
    """table: a name of TABLES. columns: in the order wanted. history: every record of an internal topic instead of the
    latest of each key. fail_on_data_loss: whether what goes away between planning and reading is an error.
    max_decompressed: bytes that one batch may decompress to, None for what reading allows."""

    table: str
    columns: tuple[str, ...]
    history: bool = False
    fail_on_data_loss: bool = True
    max_decompressed: int | None = None

    @property
    def of(self) -> Table:
        return TABLES[self.table]


@dataclass(frozen=True, slots=True)
class TableUnit:
    """A piece of work. place: None for the log directories themselves. segment: base offset, None for the whole
    partition; of the table `segments`, for the files that are not part of its log. Offsets [start, end). size: bytes
    of .log files that it reads, about."""

    place: PartitionLocation | None
    segment: int | None = None
    start: int = 0
    end: int = MAX_INT64
    size: int = 0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts of other partitions that a unit needs. places: all partitions, where end offsets or directories are asked
    for; coordinators: transactional ids by producer id."""

    places: Mapping[TopicPartition, PartitionLocation] = field(default_factory=dict)
    roots: tuple[Root, ...] = ()
    coordinators: Mapping[int, TransactionalId] = field(default_factory=dict)


def partitions_of(query: TableQuery, present: Mapping[TopicPartition, PartitionLocation]) -> list[TopicPartition]:
    """Those that a query is about when nothing is subscribed to: all, or those of its internal topic."""
    topic = {Unit.OFFSETS_TOPIC: OFFSETS_TOPIC, Unit.TRANSACTION_TOPIC: TRANSACTION_TOPIC}.get(query.of.unit)
    return [tp for tp in present if topic is None or tp[0] == topic]


def surroundings_of(
    query: TableQuery, places: Mapping[TopicPartition, PartitionLocation], roots: tuple[Root, ...]
) -> Surroundings:
    """places: of all partitions, whatever is subscribed to."""
    table = query.of
    if table in (TRANSACTIONS, PRODUCERS) and {"transactional_id", "coordinator_state", "state"} & {*query.columns}:
        from kafkalog_spark.log.tables.transactions import coordinators

        wanted = [place for (topic, _), place in places.items() if topic == TRANSACTION_TOPIC]
        return Surroundings(coordinators=coordinators(place.open(pass_over_damage=True) for place in wanted))
    asks_ends = table.unit is Unit.OFFSETS_TOPIC and {"log_end_offset", "lag"} & {*query.columns}
    return Surroundings(places, roots) if asks_ends or table is FINDINGS else Surroundings()


def units_of(
    query: TableQuery,
    places: Mapping[TopicPartition, PartitionLocation],
    ranges: Mapping[TopicPartition, tuple[int, int]] | None = None,
    *,
    whole: bool = True,
) -> list[TableUnit]:
    """The work, by partition and offset. places: of the partitions that the query is about. ranges: offsets [start,
    end) of each, None for all of them; a partition that is not in it is left out. whole: whether the log directories
    themselves are looked at too, of a table that does.

    Lists every partition's directory. Raises NotALogDirectory for one that cannot be.
    """
    units: list[TableUnit] = []
    if query.of is FINDINGS and whole:
        units.append(TableUnit(None))
    for tp, place in places.items():
        if ranges is not None and tp not in ranges:
            continue
        start, end = (0, MAX_INT64) if ranges is None else ranges[tp]
        log = place.open(pass_over_damage=True)
        if query.of.unit is Unit.SEGMENT:
            units += _of_segments(log, place, start, end)
            if query.of is SEGMENTS and ranges is None and _has_left_overs(log):
                units.append(TableUnit(place))
        else:
            units.append(TableUnit(place, size=sum(_size(log, index) for index in range(len(log.segments)))))
    return units


def _of_segments(log: PartitionLog, place: PartitionLocation, start: int, end: int) -> list[TableUnit]:
    found = []
    for index, segment in enumerate(log.segments):
        following = log.next_base_offset(index)
        if segment.base_offset < end and (following is None or following > start):
            found.append(TableUnit(place, segment.base_offset, start, end, _size(log, index)))
    return found


def _size(log: PartitionLog, index: int) -> int:
    try:
        return log.size_of(index)
    except FileNotFoundError:
        return 0  # whoever reads it finds out what that means


def _has_left_overs(log: PartitionLog) -> bool:
    live = {segment.log for segment in log.segments}
    parsed = ((name, names.parse_segment_file(name)) for name in log.names)
    return any(file is not None and file.suffix == names.LOG_SUFFIX and name not in live for name, file in parsed)
