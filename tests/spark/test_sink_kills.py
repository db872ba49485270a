"""Exactly once, whatever dies: the whole query is killed with kill -9 again and again and started anew."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.sink.helpers.written_logs import check_log, last_record, texts
from tests.spark.helpers.stream_to_log import SEVERAL_TASKS, started
from tests.spark.test_streaming_sink import add

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[2]
LINES = 100  # of a file, which is a micro-batch
START_SECONDS = 300  # a JVM, a session, a first batch: 20 s, on a busy machine minutes


def places(directory: Path) -> list[str]:
    """Source, log and checkpoint of the query."""
    return [str(directory / name) for name in ("in", "log", "checkpoint")]


def start(directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.helpers.stream_to_log", *places(directory)],
        cwd=ROOT,
        stdin=subprocess.PIPE,  # it ends with this process
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # one kill takes Python, JVM and workers
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 for the query and all its processes. Does nothing when it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.stdin is not None
    process.stdin.close()


def progress(directory: Path) -> int:
    """The last micro-batch that is decided; -1 before the first."""
    return max(last_record(directory / "log").queries.values(), default=-1)


def wait_for(directory: Path, process: subprocess.Popen[bytes], batch: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while progress(directory) < batch:
        assert process.poll() is None, "the query ended by itself"
        assert time.monotonic() < deadline, f"micro-batch {batch} is not written after {START_SECONDS} s"
        time.sleep(0.01)


def kill_and_start_again(spark: Any, directory: Path, rounds: int) -> None:
    """`rounds` runs of the query in processes that are killed; this process's session runs it to its end."""
    rng = random.Random(rounds)
    files = 6 + 3 * rounds  # a round waits for one or two micro-batches
    for number in range(files):
        add(directory / "in", f"{number:03d}.txt", *(f"{number} {line}" for line in range(LINES)))
    for _ in range(rounds):
        before = progress(directory)
        process = start(directory)
        try:
            # a moment behind a commit: in a task, before, in or behind the next one
            wait_for(directory, process, before + 1 + rng.randrange(2))
            time.sleep(rng.random() * 0.3)
        finally:
            kill(process)
    session = spark.newSession()
    for name, value in SEVERAL_TASKS.items():
        session.conf.set(name, value)
    query = started(session, *places(directory))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    check_log(directory / "log")
    counted = Counter(texts(directory / "log"))
    expected = {f"{number} {line}" for number in range(files) for line in range(LINES)}
    assert set(counted) == expected
    assert set(counted.values()) == {1}, counted.most_common(3)


@pytest.mark.timeout(900)
def test_killed_query_writes_each_record_once(spark: Any, tmp_path: Path) -> None:
    kill_and_start_again(spark, tmp_path, 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_query_killed_thirty_times_writes_each_record_once(spark: Any, tmp_path: Path) -> None:
    kill_and_start_again(spark, tmp_path, 30)
