"""Examples with Spark do what they say, run one after the other in this process's session instead of a JVM each.

tests/examples runs others as a user does.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQueryManager

from tests.source.helpers.made_logs import append, numbers

pytestmark = pytest.mark.end_to_end

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`run(name, *arguments)`: what the example prints. Its session is the one that is there, and outlives it."""
    listeners: list[Any] = []
    add = StreamingQueryManager.addListener

    def added(self: StreamingQueryManager, listener: Any) -> None:
        listeners.append(listener)
        add(self, listener)

    monkeypatch.setattr(StreamingQueryManager, "addListener", added)
    # of what stop() does, that listeners have heard of everything
    monkeypatch.setattr(SparkSession, "stop", lambda self: self.sparkContext._jsc.sc().listenerBus().waitUntilEmpty())
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def ran(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    yield ran
    for listener in listeners:
        spark.streams.removeListener(listener)


Run = Callable[..., str]


def test_stream_to_parquet_example_writes_every_record(run: Run, tmp_path: Path) -> None:
    for partition in range(3):
        append(tmp_path / "log", "orders", partition, numbers(0, 100))
    told = run("stream_to_parquet.py", tmp_path / "log", "orders", tmp_path / "out", "--once")
    assert "orders: 0 offsets behind latest in 3 partitions" in told
    assert f"300 records in {tmp_path / 'out'}" in told


def test_windowed_count_example_prints_complete_windows(run: Run, tmp_path: Path) -> None:
    times = [1_700_000_000_000 + at * 1000 for at in (0, 1, 11, 12, 13, 21, 40)]
    append(tmp_path, "orders", 0, numbers(0, len(times)), timestamps=times)
    told = run("windowed_count.py", tmp_path, "orders", "--once")
    assert [line.split()[1] for line in told.splitlines() if line.endswith(" records")] == ["2", "3", "1"]


def test_table_to_topic_example_writes_every_row(run: Run) -> None:
    assert "10000 records in topic orders" in run("parquet_to_kafka.py")
