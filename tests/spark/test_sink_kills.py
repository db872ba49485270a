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

import pytest

from kafkalog_spark.sink.sink_record import RECORD_FILE, read_record
from tests.sink.sink_helpers import check_log, texts
from tests.spark.test_streaming_sink import add

ROOT = Path(__file__).parents[2]
LINES = 100  # of a file, which is a micro-batch


def start(directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.stream_to_log", *(str(directory / n) for n in ("in", "log", "checkpoint"))],
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
    if not (directory / "log" / RECORD_FILE).exists():
        return -1
    return max(read_record(directory / "log").queries.values(), default=-1)


def wait_for(directory: Path, process: subprocess.Popen[bytes], batch: int) -> None:
    deadline = time.monotonic() + 120
    while progress(directory) < batch:
        assert process.poll() is None, "the query ended by itself"
        assert time.monotonic() < deadline, f"micro-batch {batch} is not written after 120 s"
        time.sleep(0.01)


def kill_and_start_again(directory: Path, rounds: int) -> None:
    rng = random.Random(rounds)
    files = 6 + 3 * rounds  # a round waits for one or two micro-batches
    for number in range(files):
        add(directory / "in", f"{number:03d}.txt", *(f"{number} {line}" for line in range(LINES)))
    process = start(directory)
    try:
        for _ in range(rounds):
            # a moment behind a commit: in a task, before, in or behind the next one
            wait_for(directory, process, progress(directory) + 1 + rng.randrange(2))
            time.sleep(rng.random() * 0.3)
            kill(process)
            process = start(directory)
        (directory / "stop").touch()
        assert process.wait(150) == 0
    finally:
        kill(process)
    check_log(directory / "log")
    counted = Counter(texts(directory / "log"))
    expected = {f"{number} {line}" for number in range(files) for line in range(LINES)}
    assert set(counted) == expected
    assert set(counted.values()) == {1}, counted.most_common(3)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_each_record_is_there_once_after_a_kill(tmp_path: Path) -> None:
    kill_and_start_again(tmp_path, 1)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_each_record_is_there_once_after_thirty_kills(tmp_path: Path) -> None:
    kill_and_start_again(tmp_path, 30)
