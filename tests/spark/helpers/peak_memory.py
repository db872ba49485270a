"""The batch reader with its process's peak memory written down: format("kafkalog_peak"), and as a script.

python -m tests.spark.helpers.peak_memory LOG_DIRECTORY [name=value ...] reads one task without Spark and prints rows
and bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkalog_spark.datasource import KafkaLogDataSource

PEAK_FILE = "peakfile"
"""Option: where a task writes the peak resident memory (bytes) of its worker."""


class PeakMemorySource(KafkaLogDataSource):
    """kafkalog, and each task tells the peak of its worker since the task began."""

    def __init__(self, options: dict[str, str]) -> None:
        others = dict(options)
        self._peak_file = others.pop(PEAK_FILE)
        super().__init__(others)

    @classmethod
    def name(cls) -> str:
        return "kafkalog_peak"

    def reader(self, schema: Any) -> DataSourceReader:
        return _PeakReader(super().reader(schema=schema), self._peak_file)


class _PeakReader(DataSourceReader):
    def __init__(self, reader: DataSourceReader, path: str) -> None:
        self._reader = reader
        self._path = path

    def partitions(self) -> Any:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        forget_peak()
        yield from self._reader.read(partition)
        Path(self._path).write_text(str(peak_bytes()))


def forget_peak() -> None:
    """Let the peak begin at what is resident now: a worker has run other tasks before (man proc, clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Largest resident memory of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def main(log_dir: str, *options: str) -> None:
    from tests.source.helpers.driver import Load

    scan = Load(log_dir, **dict(option.split("=", 1) for option in options)).scan()
    (task,) = scan.tasks()
    rows = sum(batch.num_rows for batch in task)
    print(rows, peak_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
