"""Rows of a task."""

from collections.abc import Generator
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.errors import MalformedValue
from kafkalog_spark.source import task_rows
from kafkalog_spark.source.task_rows import rows_of_task


def test_conversion_error_closes_the_scan_before_it_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    def scan() -> Generator[pa.RecordBatch, None, None]:
        try:
            while True:
                yield pa.record_batch({"offset": pa.array(range(100_000))})
        finally:
            closed.append(True)

    def refuse(projection: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
        raise MalformedValue("not a number")

    monkeypatch.setattr(task_rows, "convert_batch", refuse)
    projection: Any = None
    rows = rows_of_task(scan(), (), projection)
    with pytest.raises(MalformedValue) as raised:
        next(rows)
    assert closed
    assert raised.value.__traceback__ is not None  # the frames that refer to the scan still exist
