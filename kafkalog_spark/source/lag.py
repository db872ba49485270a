"""Lag of a streaming query: how many offsets it is behind the ends of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from kafkalog_spark.errors import MalformedOffsets
from kafkalog_spark.source.live_logs import LiveLogs
from kafkalog_spark.source.offsets import Offsets, TopicPartition, offsets_of, tp_text
from kafkalog_spark.source.options import parse_read_options

_SHOWN = 5  # partitions in a line, those furthest behind first


@dataclass(frozen=True)
class Lag:
    """Offsets behind latest, by partition: how many the query has still to read, at most (gaps and markers count)."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())

    @property
    def metrics(self) -> dict[str, str]:
        """Under the names, and as the texts, that the Kafka source's progress has; empty without partitions."""
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
    """`end`: the next offsets to be read. A partition that the query has not come to begins at 0."""
    return Lag({tp: max(offset - end.get(tp, 0), 0) for tp, offset in sorted(latest.items())})


def offsets_behind_latest(progress: Mapping[str, Any] | None, path: str | None = None, **options: str) -> list[Lag]:
    """The lag of every source of a query whose offsets are partitions'; none for a query without progress yet. Raises
    what reading the log directory raises.

    progress: a StreamingQueryProgress, or its JSON as a dict. path, options: the log directory and what the query reads
    of it (subscribe, isolationLevel ...), to have the lag of now instead of when the batch began.
    """
    latest_now = None
    if path is not None:
        logs = LiveLogs(parse_read_options({"path": path, **options}, streaming=True, quiet=True), quiet=True).look()
        latest_now = {tp: live.readers_end for tp, live in logs.items()}
    lags = []
    for source in progress["sources"] if progress is not None else ():
        end = _offsets(source, "endOffset")
        latest = _offsets(source, "latestOffset") if latest_now is None else latest_now
        if end is not None and latest is not None:
            lags.append(lag_of(end, latest))
    return lags


class LagListener(StreamingQueryListener):
    """Reports the lag of every query at every progress, in the driver's own Python process: what the Kafka source
    reports as metrics, which Spark does not let a Python source do.

    report: of a query's name or id and its Lag; prints a line by default. path, options: of offsets_behind_latest.
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
    """None where the source has none, or offsets of another kind."""
    text = source.get(name)
    if not text:
        return None
    try:
        return offsets_of(text)
    except MalformedOffsets:
        return None
