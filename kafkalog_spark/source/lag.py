"""How far a streaming query is behind its partitions: what the Kafka source reports as metrics, which Spark does not
let a Python source do.

    spark.streams.addListener(LagListener())                    # prints a line for each progress
    offsets_behind_latest(query.lastProgress)                   # one Lag for each source of the query
    offsets_behind_latest(query.lastProgress, "/data/logs", subscribe="orders")     # against the logs as they are now

Runs in the driver's own Python process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from kafkalog_spark.errors import MalformedOffsets
from kafkalog_spark.source.live_logs import LiveLogs
from kafkalog_spark.source.offset_range_limit import TopicPartition, tp_text
from kafkalog_spark.source.options import parse_read_options
from kafkalog_spark.source.stream_offsets import Offsets, offsets_of, parse_offsets_text

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


def offsets_behind_latest(progress: Any, path: str | None = None, **options: str) -> list[Lag]:
    """The lag of every source of a query whose offsets are partitions'; none for a query without progress yet.

    progress: a StreamingQueryProgress, or its JSON as a dict. path, options: the log directory and what the query reads
    of it (subscribe, isolationLevel ...): then the logs are looked at now, instead of what they were when the batch
    began. Raises what reading the log directory raises.
    """
    latest_now = None if path is None else _latest_now(path, options)
    lags = []
    for source in _sources(progress):
        end = _offsets(source, "endOffset")
        latest = _offsets(source, "latestOffset") if latest_now is None else latest_now
        if end is not None and latest is not None:
            lags.append(lag_of(end, latest))
    return lags


class LagListener(StreamingQueryListener):
    """Reports the lag of every query at every progress.

    report: called with the query's name or id and its Lag; prints a line by default. path, options: as for
    offsets_behind_latest.
    """

    def __init__(self, report: Callable[[str, Lag], None] | None = None, path: str | None = None, **options: str):
        super().__init__()
        self._report = _print if report is None else report
        self._path = path
        self._options = options

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        for lag in offsets_behind_latest(progress, self._path, **self._options):
            self._report(progress.name or str(progress.id), lag)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


def _print(query: str, lag: Lag) -> None:
    print(f"{query}: {lag}", flush=True)


def _latest_now(path: str, options: Mapping[str, str]) -> Offsets:
    logs = LiveLogs(parse_read_options({"path": path, **options}, streaming=True, quiet=True)).look()
    return {tp: live.readers_end for tp, live in logs.items()}


def _sources(progress: Any) -> list[Any]:
    if progress is None:
        return []
    return list(progress["sources"] if isinstance(progress, Mapping) else progress.sources)


def _offsets(source: Any, name: str) -> Offsets | None:
    """None where the source has none, or offsets of another kind."""
    text = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    if not text:
        return None
    try:
        return parse_offsets_text(text) if isinstance(text, str) else offsets_of(text)
    except MalformedOffsets:
        return None
