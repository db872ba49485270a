"""Lag of a streaming query: how many offsets it is behind the ends of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from kafkalog_spark.errors import MalformedOffsets
from kafkalog_spark.source.live_logs import LiveLogs
from kafkalog_spark.source.offsets import Offsets, offsets_of
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.topic_partitions import TopicPartition, tp_text

_SHOWN = 5  # partitions in the text of a lag, the largest lags first


@dataclass(frozen=True)
class Lag:
    """Offsets that a query is behind latest, by partition: an upper bound of the records that it has still to read."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())

    @property
    def metrics(self) -> dict[str, str]:
        """Names and texts as in the progress of the Kafka source; empty without partitions."""
        behind = self.by_partition.values()
        if not behind:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "avgOffsetsBehindLatest": str(self.total / len(behind)),
        }

    def __str__(self) -> str:
        furthest = sorted(((tp, n) for tp, n in self.by_partition.items() if n), key=lambda item: (-item[1], item[0]))
        shown = [f"{tp_text(tp)} {n}" for tp, n in furthest[:_SHOWN]]
        if len(furthest) > _SHOWN:
            shown.append(f"{len(furthest) - _SHOWN} more")
        text = f"{self.total} offsets behind latest in {len(self.by_partition)} partitions"
        return f"{text}: {', '.join(shown)}" if shown else text


def lag_of(end: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Lag:
    """Return the lag of a query whose next offsets are `end`. A partition without an offset is read from 0."""
    return Lag({tp: max(offset - end.get(tp, 0), 0) for tp, offset in sorted(latest.items())})


def offsets_behind_latest(progress: Mapping[str, Any] | None, path: str | None = None, **options: str) -> list[Lag]:
    """Return the lag of every source of a query that has offsets of partitions.

    Args:
        progress: A StreamingQueryProgress, or its JSON as a dict; None for a query without progress.
        path: The log directory, for the present lag. None for the lag at the start of the batch.
        **options: Options of the query (subscribe, isolationLevel ...). Only used with `path`.

    Raises:
        KafkalogError: As `LiveLogs.look`.
    """
    ends_now = None
    if path is not None:
        logs = LiveLogs(parse_read_options({"path": path, **options}, streaming=True, quiet=True), quiet=True).look()
        ends_now = {tp: live.readers_end for tp, live in logs.items()}
    lags = []
    for source in progress["sources"] if progress is not None else ():
        end = _offsets(source, "endOffset")
        latest = _offsets(source, "latestOffset") if ends_now is None else ends_now
        if end is not None and latest is not None:
            lags.append(lag_of(end, latest))
    return lags


class LagListener(StreamingQueryListener):
    """Listener that reports the lag of every query at every progress, in the driver's own Python process.

    The Kafka source reports it as metrics, which a Python source cannot.

    Args:
        report: Called with a query's name or ID and its Lag; prints a line by default.
        path: As in `offsets_behind_latest`.
        **options: As in `offsets_behind_latest`.
    """

    def __init__(self, report: Callable[[str, Lag], None] | None = None, path: str | None = None, **options: str):
        super().__init__()
        self._report = report or (lambda query, lag: print(f"{query}: {lag}", flush=True))
        self._path = path
        self._options = options

    def _ignore(self, event: Any) -> None:
        pass

    onQueryStarted = onQueryIdle = onQueryTerminated = _ignore

    def onQueryProgress(self, event: Any) -> None:
        query = event.progress["name"] or str(event.progress["id"])
        for lag in offsets_behind_latest(event.progress, self._path, **self._options):
            self._report(query, lag)


def _offsets(source: Mapping[str, Any], name: str) -> Offsets | None:
    """Return the offsets of a source; None if it has no offsets, or offsets of another source."""
    text = source.get(name)
    if not text:
        return None
    try:
        return offsets_of(text)
    except MalformedOffsets:
        return None
