"""Start after a crash: rate of recovery, compared with a clean start and with reading and checksumming the same bytes.

The logs have large or small batches. All bytes are in the page cache, so that the disk is not measured.
`progress_lines` is the number of log messages about the progress of the recovery.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from crc32c import crc32c

from benchmarks.report import Report, in_turn, rate, ratio
from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.format.checkpoint import RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.format.names import CLEAN_SHUTDOWN_FILE
from tests.spark.helpers.large_segment import write_segment

BAR_MB_S = 300
SIZE = 1 << 30
PARTITIONS = 4
_PIECE = 8 << 20
_NONE: dict[str, Any] = {"codec": Codec.NONE}
SHAPES: dict[str, dict[str, Any]] = {
    "64 KB batches of 100 B": {"value_size": 100, "batch_size": 64 << 10, **_NONE},
    "16 KB batches of 1 kB": {"value_size": 1000, "batch_size": 16 << 10, **_NONE},
    "one record of 100 B a batch": {"value_size": 100, "batch_size": 170, **_NONE},
}


def main(report: Report, rounds: int = 3) -> None:
    """Measure each shape in a directory of its own, which is removed afterwards."""
    for name, shape in SHAPES.items():
        directory = Path(tempfile.mkdtemp(prefix="kafkalog-recovery-"))
        try:
            data = directory / "data"
            write_segment(data, SIZE // PARTITIONS, **shape)
            _copies(data)
            measure(report, name, data, rounds)
        finally:
            shutil.rmtree(directory)


def measure(report: Report, name: str, data: Path, rounds: int) -> None:
    """Report the recovery of one shape."""
    (data / "meta.properties").unlink()  # the broker writes its own
    broker = RunningBroker(data)
    size = sum(path.stat().st_size for path in data.glob("*/*.log"))
    seconds = in_turn(
        {
            "unclean": lambda: _start(broker, clean=False),
            "clean": lambda: _start(broker, clean=True),
            "read": lambda: _read(data),
        },
        rounds=rounds,
        warmups=1,
    )
    progress = [line for line in broker.log().splitlines() if "loading logs: " in line]
    report.add(
        "broker_recovery",
        f"{size / 1e9:.2f} GB, {PARTITIONS} logs, {name}",
        MB_per_s=rate(size / 1e6, seconds["unclean"]),
        bar_MB_per_s=BAR_MB_S,
        seconds=round(statistics.median(seconds["unclean"]), 2),
        clean_start_seconds=round(statistics.median(seconds["clean"]), 2),
        x_time_of_read_and_crc=round(ratio(seconds["unclean"], seconds["read"]), 2),
        progress_lines=len(progress),
        last_progress=progress[-1].partition("loading logs: ")[2] if progress else "none",
    )


def _copies(data: Path) -> None:
    """Link the log of partition 0 as partitions 1 to 3. Links suffice, because recovery does not modify a good log."""
    for partition in range(1, PARTITIONS):
        copy = data / f"t-{partition}"
        copy.mkdir()
        for file in (data / "t-0").iterdir():
            os.link(file, copy / file.name)


def _start(broker: RunningBroker, *, clean: bool) -> float:
    """Return the seconds until the broker serves; then stop it. `clean=False` removes the marker of the clean stop."""
    if not clean:
        for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_CHECKPOINT):
            (broker.log_dir / name).unlink(missing_ok=True)
    begin = time.perf_counter()
    broker.start()
    seconds = time.perf_counter() - begin
    broker.stop()
    return seconds


def _read(data: Path) -> float:
    """Return the seconds to read all bytes and compute their CRC-32C in one thread: the minimum for a recovery."""
    begin = time.perf_counter()
    for path in data.glob("*/*.log"):
        with path.open("rb", buffering=0) as file:
            crc = 0
            while piece := file.read(_PIECE):
                crc = crc32c(piece, crc)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main(Report())
