"""A query of a table, divided into pieces of work that know nothing of each other. Small and picklable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.format.names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkalog_spark.log.read.discovery import Root
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.tables.table import FINDINGS, PRODUCERS, RECORDS, SEGMENTS, TABLES, TRANSACTIONS, Table

if TYPE_CHECKING:
    from kafkalog_spark.log.tables.internal_topics import TransactionalId


@dataclass(frozen=True, slots=True)
class TableQuery:
    """table: a name of TABLES. history: every record of an internal topic instead of the latest of each key.
    fail_on_data_loss: whether what goes away between planning and reading is an error. max_decompressed: bytes that one
    batch may decompress to, None for what reading allows."""

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
    partition; of the table `segments`, for files outside its log. Offsets [start, end). size: bytes of .log files."""

    place: PartitionLocation | None
    segment: int | None = None
    start: int = 0
    end: int = MAX_INT64
    size: int = 0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts of other partitions that a unit needs. coordinators: transactional ids by producer id."""

    places: Mapping[TopicPartition, PartitionLocation] = field(default_factory=dict)
    roots: tuple[Root, ...] = ()
    coordinators: Mapping[int, TransactionalId] = field(default_factory=dict)


def table_query(
    name: str, columns: Iterable[str] | None = None, *, of_topics: bool = False, history: bool = False
) -> TableQuery:
    """of_topics: whether it is narrowed to topics. Raises OptionError for a name or a column that there is not, and for
    what the table does not have: a history, or topics."""
    table = TABLES.get(name)
    if table is None and name == RECORDS:
        raise OptionError(f"the table '{name}' has no history", hint="compaction leaves what there is of it")
    if table is None:
        raise OptionError(f"there is no table '{name}'", hint=f"there are {', '.join((RECORDS, *TABLES))}")
    if history and not table.has_history:
        of = ", ".join(table.name for table in TABLES.values() if table.has_history)
        raise OptionError(f"the table '{name}' has no history", hint=f"these have one: {of}")
    if of_topics and not table.of_topics:
        raise OptionError(f"the table '{name}' is not of single topics", hint="leave the topic out and filter its rows")
    chosen = table.default_columns if columns is None else tuple(columns)
    table.schema(chosen)
    return TableQuery(name, chosen, history)


def partitions_of(query: TableQuery, present: Mapping[TopicPartition, PartitionLocation]) -> list[TopicPartition]:
    """Those that a query is about when nothing is subscribed to: all, or those of its internal topic."""
    return [tp for tp in present if query.of.topic in (None, tp[0])]


def surroundings_of(
    query: TableQuery, places: Mapping[TopicPartition, PartitionLocation], roots: tuple[Root, ...]
) -> Surroundings:
    """places: of all partitions, whatever is subscribed to."""
    table = query.of
    if table in (TRANSACTIONS, PRODUCERS) and {"transactional_id", "coordinator_state", "state"} & {*query.columns}:
        from kafkalog_spark.log.tables.internal_topics import coordinators

        states = [place for (topic, _), place in places.items() if topic == TRANSACTION_TOPIC]
        return Surroundings(coordinators=coordinators(place.open(pass_over_damage=True) for place in states))
    needs_ends = table.topic == OFFSETS_TOPIC and {"log_end_offset", "lag"} & {*query.columns}
    return Surroundings(places, roots) if needs_ends or table is FINDINGS else Surroundings()


def units_of(
    query: TableQuery,
    places: Mapping[TopicPartition, PartitionLocation],
    ranges: Mapping[TopicPartition, tuple[int, int]] | None = None,
    *,
    whole: bool = True,
) -> list[TableUnit]:
    """The work, by partition and offset. places: of the partitions that the query is about. ranges: offsets [start,
    end) of each, None for all of them; a partition that is not in it is left out. whole: whether the log directories
    themselves are looked at too, of a table that does. Raises NotALogDirectory."""
    units: list[TableUnit] = []
    if query.of is FINDINGS and whole:
        units.append(TableUnit(None))
    for tp, place in places.items():
        if ranges is not None and tp not in ranges:
            continue
        start, end = (0, MAX_INT64) if ranges is None else ranges[tp]
        log = place.open(pass_over_damage=True)
        if not query.of.has_ranges:
            units.append(TableUnit(place, size=sum(segment_size(log, index) for index in range(len(log.segments)))))
            continue
        for index, segment in enumerate(log.segments):
            next_base = log.next_base_offset(index)
            if segment.base_offset < end and (next_base is None or next_base > start):
                units.append(TableUnit(place, segment.base_offset, start, end, segment_size(log, index)))
        if query.of is SEGMENTS and ranges is None and left_overs(log):
            units.append(TableUnit(place))
    return units


def segment_size(log: PartitionLog, index: int) -> int:
    """Bytes of a .log; 0 where it has gone: whoever reads it finds out what that means."""
    try:
        return log.size_of(index)
    except FileNotFoundError:
        return 0


def left_overs(log: PartitionLog) -> dict[str, names.SegmentFileName]:
    """The .log files in the directory that are not part of the log, by name."""
    live = {segment.log for segment in log.segments}
    parsed = {name: names.parse_segment_file(name) for name in sorted(log.names) if name not in live}
    return {name: file for name, file in parsed.items() if file is not None and file.suffix == names.LOG_SUFFIX}
