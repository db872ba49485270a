"""A worker's memory is bounded whatever the segment holds: below 300 MB, interpreter and libraries included."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.format.layout import Codec
from tests.spark.helpers.large_segment import write_segment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc"),
]
ROOT = Path(__file__).parents[2]
LIMIT = 300 << 20  # bytes

# Sizes in the file. The compressed ones decompress to about twice that.
SHAPES: dict[str, dict[str, Any]] = {
    "100 bytes": {"size": 600 << 20, "value_size": 100, "codec": Codec.NONE, "batch_size": 1 << 20},
    "1 kB, zstd": {"size": 200 << 20, "value_size": 1000, "codec": Codec.ZSTD, "batch_size": 1 << 20},
    "10 MB, lz4": {"size": 200 << 20, "value_size": 10 << 20, "codec": Codec.LZ4, "batch_size": 12 << 20},
    "one record a batch": {"size": 100 << 20, "value_size": 1000, "codec": Codec.NONE, "batch_size": 1080},
}


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "large"
    path.mkdir()
    yield path
    for file in path.rglob("*.log"):  # pytest keeps the directories of the last three runs
        file.unlink()


@pytest.mark.parametrize("shape", SHAPES)
def test_task_memory_stays_below_the_limit_for_any_segment(log_dir: Path, shape: str) -> None:
    records = write_segment(log_dir, **SHAPES[shape])
    for options in ([], ["isolationLevel=read_committed", "includeHeaders=true"]):
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.helpers.peak_memory", str(log_dir), "maxPartitionBytes=4g", *options],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        rows, peak = map(int, done.stdout.split())
        assert rows == records
        assert peak < LIMIT, f"{peak >> 20} MB"


def test_spark_worker_memory_stays_below_the_limit(spark: Any, log_dir: Path, tmp_path: Path) -> None:
    from tests.spark.helpers.peak_memory import PeakMemorySource

    records = write_segment(log_dir, **SHAPES["100 bytes"])
    session = spark.newSession()
    session.dataSource.register(PeakMemorySource)
    peak_file = tmp_path / "peak"
    options = {"allTopics": "true", "maxPartitionBytes": "4g", "peakFile": str(peak_file)}
    df = session.read.format("kafkalog_peak").options(**options)
    assert df.load(str(log_dir)).count() == records
    peak = int(peak_file.read_text())
    assert peak < LIMIT, f"{peak >> 20} MB"
    print(f"peak of the worker: {peak >> 20} MB")
