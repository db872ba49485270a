"""Decoding without Spark: records/s and GB/s on one core for each codec and record size.

The scan is compared with only decompressing the same batches (`decompress`), for uncompressed logs with copying the
bytes of the file once (`copy`), and with a scan of the columns offset and timestamp.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.data import LARGE_VALUES, OTHER_CODECS, SMALL_VALUES, ensure
from benchmarks.report import Report, in_turn, rate, ratio
from benchmarks.topics import Topic
from kafkalog_spark.format.layout import ATTRIBUTE_CODEC, ATTRIBUTES_AT, LENGTH_AT, LOG_OVERHEAD, RECORDS_AT
from kafkalog_spark.log.codecs.decompress import decompress
from kafkalog_spark.log.codecs.output import Output
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.log_dir import LogDirs

PARTITION = 0  # a quarter of a topic is enough for one core
NO_LIMIT = 1 << 40


@contextmanager
def one_core() -> Iterator[None]:
    """Restrict this process to one core during the block, if the system supports it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)  # child processes would inherit the restriction


def timed(run: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def scan(path: Path, topic: Topic, columns: tuple[str, ...] | None) -> None:
    """Read one partition. Raises RuntimeError if the number of rows is wrong."""
    from kafkalog_spark.log.decode.scan_request import ScanRequest
    from kafkalog_spark.log.read.partition_scan import scan_partition

    log = LogDirs.open(path).partition(topic.name, PARTITION)
    request = ScanRequest() if columns is None else ScanRequest(columns=columns)
    rows = sum(batch.num_rows for batch in scan_partition(log, log.log_start_offset, log.log_end_offset, request))
    if rows != topic.records // 4:
        raise RuntimeError(f"{topic.name}: {rows} rows")


def codec_alone(segments: list[Path]) -> None:
    """Decompress every batch, or copy it if it is not compressed, into reused memory."""
    scratch = Scratch()
    for segment in segments:
        with segment.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = memoryview(data)
            position = 0
            while position < len(view):
                end = (
                    position
                    + LOG_OVERHEAD
                    + int.from_bytes(view[position + LENGTH_AT : position + LENGTH_AT + 4], "big")
                )
                codec = view[position + ATTRIBUTES_AT + 1] & ATTRIBUTE_CODEC
                output = Output(scratch, 0, NO_LIMIT)
                if codec:
                    decompress(codec, view[position + RECORDS_AT : end], output)
                else:
                    output.room(end - position)[:] = view[position:end]
                position = end
            view.release()


def main(report: Report, rounds: int = 5) -> None:
    """Measure all codecs with values of 100 B, and three of them with 1 kB."""
    topics = [*SMALL_VALUES.values(), *OTHER_CODECS.values(), *LARGE_VALUES.values()]
    path = ensure(topics)
    with one_core():
        for topic in topics:
            measure(report, path, topic, rounds)


def measure(report: Report, path: Path, topic: Topic, rounds: int) -> None:
    """Report the rates of one topic."""
    segments = sorted((path / f"{topic.name}-{PARTITION}").glob("*.log"))
    runs = {
        "scan": partial(timed, partial(scan, path, topic, None)),
        "pruned": partial(timed, partial(scan, path, topic, ("offset", "timestamp"))),
        "floor": partial(timed, partial(codec_alone, segments)),
    }
    seconds = in_turn(runs, rounds=rounds)
    records = topic.records // 4
    report.add(
        "decode",
        f"{topic.codec}, {topic.value_size} B",
        M_records_per_s=rate(records / 1e6, seconds["scan"]),
        GB_values_per_s=rate(records * topic.value_size / 1e9, seconds["scan"]),
        GB_file_per_s=rate(sum(segment.stat().st_size for segment in segments) / 1e9, seconds["scan"]),
        pruned_M_records_per_s=rate(records / 1e6, seconds["pruned"]),
        **{
            f"x_time_of_{'copy' if topic.codec == 'none' else 'decompress'}_alone": round(
                ratio(seconds["scan"], seconds["floor"]), 2
            )
        },
    )


if __name__ == "__main__":
    main(Report())
