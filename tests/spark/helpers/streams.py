"""Helpers for streaming tests in real Spark: a query that collects its batches."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.source.helpers.driver import SUBSCRIPTIONS

NO_TIME = "Python worker failed to connect back"
"""What Spark says when the process that it starts for a stream's source is not there after 10 s (4.0 to 4.3: a constant
of PythonWorkerFactory.createSimpleWorker, which no setting changes). Starting Python takes that long on a machine that
does other things too, and the query has not begun by then."""

START_SECONDS = 600
"""How long that is tried again: beside five other users of two cores, ten times in a row were too few."""


def start_query(writer: Any, *path: str) -> Any:
    """`writer.start(*path)`, anew where Spark gave the source's process no time. A query that has its sources, or that
    has failed to get them for another reason."""
    end = time.monotonic() + START_SECONDS
    while True:
        query = writer.start(*path)
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.01)
        if NO_TIME not in str(query.exception()) or time.monotonic() > end:
            return query


class Collected:
    """What a query has handed to foreachBatch: the values of each batch, sorted."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}
        self.query: Any = None

    def __call__(self, frame: Any, number: int) -> None:
        values = frame.select("value").toArrow()["value"].to_pylist()
        self.batches[number] = sorted(value.decode() for value in values)

    @property
    def values(self) -> list[str]:
        """Return the values of all batches, by batch ID."""
        return [value for number in sorted(self.batches) for value in self.batches[number]]


def frame_of(spark: Any, path: Path, **options: object) -> Any:
    """`spark.readStream.format("kafkalog").options(...).load(path)`. All topics unless some are named."""
    if not options.keys() & SUBSCRIPTIONS:
        options["allTopics"] = True
    return spark.readStream.format("kafkalog").options(**options).load(str(path))


def started(frame: Any, checkpoint: Path, **trigger: Any) -> Collected:
    """Start it; `trigger`: as of DataStreamWriter.trigger."""
    collected = Collected()
    writer = frame.writeStream.foreachBatch(collected).option("checkpointLocation", str(checkpoint))
    collected.query = start_query(writer.trigger(**trigger) if trigger else writer)
    return collected


@contextlib.contextmanager
def running(frame: Any, checkpoint: Path, **trigger: Any) -> Iterator[Collected]:
    """Start a query and stop it when the block ends."""
    collected = started(frame, checkpoint, **trigger)
    try:
        yield collected
    finally:
        collected.query.stop()


def ran(frame: Any, checkpoint: Path) -> Collected:
    """Run a query with Trigger.AvailableNow to its end."""
    collected = started(frame, checkpoint, availableNow=True)
    collected.query.awaitTermination(600)
    assert not collected.query.isActive, "the query does not end"
    return collected


def failure(frame: Any, checkpoint: Path) -> str:
    """Return the error of a query that must fail, without Spark's wrapping."""
    from pyspark.errors import StreamingQueryException

    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    with pytest.raises(StreamingQueryException) as caught:
        start_query(writer.trigger(availableNow=True)).awaitTermination(600)
    text = str(caught.value)
    assert "kafkalog_spark.errors." in text
    assert "Traceback" not in text
    return text.partition("kafkalog_spark.errors.")[2].partition(": ")[2]


def offsets_of(checkpoint: Path, batch: int) -> str:
    """Return the source's end offsets of a batch, as stored in the checkpoint."""
    return (checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]
