"""Executors that are processes of their own: attempts that fail, and several at once, leave each record once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sink.helpers.written_logs import check_log, texts
from tests.spark.helpers.sink_local_cluster import ROWS, TASKS

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[3]


@pytest.mark.spark
@pytest.mark.timeout(900)  # four JVMs start one after the other, each in 5 s or, on a busy machine, in a minute
@pytest.mark.slow
def test_failing_and_speculative_tasks_write_each_record_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.helpers.sink_local_cluster", str(tmp_path / "log")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = texts(tmp_path / "log")
    assert sorted(map(int, found)) == list(range(ROWS * TASKS))
    for partition in range(3):
        numbers = list(map(int, texts(tmp_path / "log", partition=partition)))
        assert numbers == sorted(numbers), "tasks follow one another, and so do their rows"
    check_log(tmp_path / "log")
    attempts = re.search(r"attempts (\d+)", done.stdout)
    assert attempts is not None
    assert int(attempts[1]) >= TASKS + 2, "two attempts were meant to fail"
