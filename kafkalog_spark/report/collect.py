"""Collects a report's facts: one pass over all batch headers, one of the check, and small tables of the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafkalog_spark.errors import KafkalogError, UnknownPartition
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.names import OFFSETS_TOPIC
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.state_files import meta_properties_or_default
from kafkalog_spark.log.tables.batches import UncompressedSizes
from kafkalog_spark.log.tables.context import context_of
from kafkalog_spark.log.tables.declarations import table_query
from kafkalog_spark.log.tables.read_table import rows_of_units
from kafkalog_spark.log.tables.table import TableUnit
from kafkalog_spark.log.tables.units import units_of
from kafkalog_spark.report import summary
from kafkalog_spark.report.batch_totals import COLUMNS, BatchTotals
from kafkalog_spark.report.facts import CodecTotal, Facts, ProducerTotal, Row, TopKeys
from kafkalog_spark.report.key_counts import KeyCounts
from kafkalog_spark.report.lag_totals import LagTotals

_log = logging.getLogger(__name__)

MAX_SHOWN_TOPICS = 8  # topics with a series of their own: the number of colours that are easy to distinguish
MAX_FINDINGS = 500  # findings that are shown, errors first; all are counted
MAX_TOP_KEYS = 25
MAX_SHOWN_PRODUCERS = 100  # producers that are listed, those with the most bytes

OnProgress = Callable[[str, int, int], None]
"""Callback that receives a description of the current step, the bytes done, and the bytes in all."""


def collect(
    dirs: LogDirs, made_at: int, on_progress: OnProgress, *, top_keys: Sequence[str] = (), with_check: bool = True
) -> Facts:
    """Return the facts about log directories.

    Args:
        dirs: The log directories.
        made_at: Time of the report in ms.
        on_progress: Called during the work.
        top_keys: Topics whose keys are counted, which reads their records.
        with_check: True to include the findings of kafkalog-check, which reads every file once more.

    Raises:
        UnknownPartition: If a topic of `top_keys` does not exist.
        NotALogDirectory: If a log directory cannot be read.
        OptionError: If copies of a partition in several directories are of different topics.
    """
    for topic in top_keys:
        if topic not in dirs.topics:
            raise UnknownPartition(f"topic {topic} is not in {', '.join(dirs.paths)}", hint="see --top-keys")
    return _Collector(dirs, on_progress, with_check).facts(made_at, top_keys)


@dataclass
class _Collector:
    _dirs: LogDirs
    _on_progress: OnProgress
    _has_check: bool

    def __post_init__(self) -> None:
        self._locations = self._dirs.choose_locations(self._dirs.locations, pass_over_damage=True)
        self._done = self._total = 0

    def facts(self, made_at: int, top_keys: Sequence[str]) -> Facts:
        metas = [meta_properties_or_default(root.store, root.path) for root in self._dirs.roots]  # fails early
        totals = self._walk_batches()
        rows = list(self._rows("partitions", self._locations, "partitions"))
        errors, notes, findings = self._check() if self._has_check else (None, None, [])
        groups, lags = self._groups()
        for codec in totals.codecs.values():
            codec.ratio = self._ratio(codec)
        partitions = summary.partitions_of(rows, totals)
        return Facts(
            paths=self._dirs.paths,
            cluster_ids=tuple(sorted({meta.cluster_id for meta in metas if meta.cluster_id})),
            made_at=made_at,
            topics=summary.topics_of(partitions, totals),
            partitions=partitions,
            segments=summary.timelines(partitions),
            producers=self._producers(totals),
            open_transactions=self._open_transactions(totals, rows),
            groups=groups,
            lags=lags.largest(),
            topic_lags=lags.by_topic(),
            errors=errors,
            notes=notes,
            findings=tuple(findings),
            top_keys=tuple(map(self._top_keys, top_keys)),
            **summary.rates(totals.series),
        )

    def _walk_batches(self) -> BatchTotals:
        query = table_query("batches", COLUMNS)
        units = units_of(query, self._locations)
        sizes: dict[str, int] = {}
        for unit in units:
            assert unit.location is not None
            sizes[unit.location.topic] = sizes.get(unit.location.topic, 0) + unit.size
        shown = sorted(sizes, key=lambda topic: (-sizes[topic], topic))[:MAX_SHOWN_TOPICS]
        self._total = sum(sizes.values()) * (2 if self._has_check else 1)
        totals = BatchTotals(tuple(shown))
        for rows in rows_of_units(self._counted(units, "reading batches"), query, context_of(query, {}, ())):
            totals.add(rows)
        return totals

    def _counted(self, units: list[TableUnit], doing: str, *, is_counted: bool = True) -> Iterator[TableUnit]:
        """Yield the units, and report the progress when the next one is requested."""
        for unit in units:
            self._on_progress(doing, self._done, self._total)
            yield unit
            if is_counted:
                self._done += unit.size
        self._on_progress(doing, self._done, self._total)

    def _rows(self, table: str, locations: Mapping[TopicPartition, PartitionLocation], doing: str) -> Iterator[Row]:
        query = table_query(table)
        context = context_of(query, self._locations, self._dirs.roots)
        units = units_of(query, locations)
        for batch in rows_of_units(self._counted(units, doing, is_counted=table == "findings"), query, context):
            yield from batch.to_pylist()

    def _check(self) -> tuple[int, int, list[Row]]:
        counts = {"error": 0, "note": 0}
        kept: dict[str, list[Row]] = {"error": [], "note": []}
        for row in self._rows("findings", self._locations, "checking"):
            counts[row["severity"]] += 1
            if len(kept[row["severity"]]) < MAX_FINDINGS:
                kept[row["severity"]].append(row)
        return counts["error"], counts["note"], [*kept["error"], *kept["note"]][:MAX_FINDINGS]

    def _groups(self) -> tuple[tuple[Row, ...], LagTotals]:
        internal = {tp: location for tp, location in self._locations.items() if tp[0] == OFFSETS_TOPIC}
        groups = [row for row in self._rows("groups", internal, "groups") if row["error"] is None]
        lags = LagTotals()
        for row in self._rows("consumer_offsets", internal, "committed offsets"):
            if row["error"] is None:
                lags.add(row)
        groups.sort(key=lambda group: (-(group["lag"] or 0), group["group_id"]))
        return tuple(groups), lags

    def _producers(self, totals: BatchTotals) -> tuple[ProducerTotal, ...]:
        locations = {tp: self._locations[tp] for tp, of in totals.partitions.items() if of.is_transactional}
        for row in self._rows("producers", locations, "producers"):
            if row["transactional_id"] is not None and row["producer_id"] in totals.producers:
                totals.producers[row["producer_id"]].transactional_id = row["transactional_id"]
        by_size = sorted(totals.producers.values(), key=lambda producer: (-producer.size, producer.producer_id))
        return tuple(by_size[:MAX_SHOWN_PRODUCERS])

    def _open_transactions(self, totals: BatchTotals, partitions: list[Row]) -> tuple[Row, ...]:
        """Return the open transactions. Reads only partitions that may have one."""
        unstable = {
            (row["topic"], row["partition"])
            for row in partitions
            if row["last_stable_offset"] is None or row["last_stable_offset"] < row["log_end_offset"]
        }
        locations = {
            tp: self._locations[tp] for tp, of in totals.partitions.items() if of.is_transactional and tp in unstable
        }
        rows = self._rows("transactions", locations, "transactions")
        return tuple(row for row in rows if row["state"] in ("open", "hanging"))

    def _ratio(self, total: CodecTotal) -> float | None:
        stored = plain = 0.0
        for sample in total.samples if total.codec not in ("none", None) else ():
            try:
                log = self._locations[total.topic, sample.partition].open(pass_over_damage=True)
                with log.open_segment(log.segment_index(sample.segment)) as file:
                    header = file.header_at(sample.position) if file.base_offset == sample.segment else None
                    ratio = None if header is None else UncompressedSizes(file).ratio_of(header)
            except (KafkalogError, FileNotFoundError) as gone:  # the segment was deleted since it was read
                _log.info("no compression ratio of a batch: %s", gone)
                continue
            if header is not None and ratio is not None:
                stored += header.size
                plain += header.size * ratio
        return plain / stored if stored else None

    def _top_keys(self, topic: str) -> TopKeys:
        from kafkalog_spark.log.decode.scan_request import ScanRequest
        from kafkalog_spark.log.read.partition_scan import scan_partition  # the kernels
        from kafkalog_spark.log.read.segment_scan import ScanStatistics

        counts = KeyCounts()
        unread: list[KafkalogError] = []
        request = ScanRequest(columns=("key", "value"), drop_malformed=True)
        for partition in self._dirs.topics[topic]:
            self._on_progress(f"keys of {topic}-{partition}", self._done, self._total)
            statistics = ScanStatistics()
            try:
                log = self._locations[topic, partition].open(pass_over_damage=True)
                start, end = log.log_start_offset, log.log_end_offset
                for rows in scan_partition(log, start, end, request, statistics=statistics, on_loss=unread.append):
                    counts.add(rows.column(0), rows.column(1))
            except KafkalogError as error:
                unread.append(error)
            unread += statistics.dropped
        found = tuple(counts.top(MAX_TOP_KEYS))
        return TopKeys(topic, counts.records, counts.missed, found, tuple(map(str, unread)))
