"""Batch filters: batches that a filter excludes are left out of every scan, whatever the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read import batch_filters
from kafkalog_spark.log.read.batch_exclusion import BatchFilter, BatchFilters
from kafkalog_spark.log.read.partition_log import PartitionLog
from tests.golden_data import KAFKA_4_3, data_dir
from tests.log.helpers.rows import plain_rows

TOPIC = "transactions"


class ExcludeOffsets:
    """Leaves out the batches whose base offset gives `remainder` when divided by 3."""

    def __init__(self, remainder: int) -> None:
        self._remainder = remainder

    def excludes(self, table: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        excluded: npt.NDArray[np.bool_] = table[:, HeaderColumn.BASE_OFFSET] % 3 == self._remainder
        return excluded


def offsets(dirs: LogDirs, **options: Any) -> set[tuple[int, int]]:
    rows = plain_rows(dirs.scan(TOPIC, columns=("partition", "offset"), **options))
    return {(row["partition"], row["offset"]) for row in rows}


def test_excluded_batches_are_skipped_in_addition_to_aborted_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dirs = LogDirs.open(data_dir(KAFKA_4_3))
    committed, everything = offsets(dirs, read_committed=True), offsets(dirs)
    assert committed < everything
    bases = {
        (partition, header.base_offset): header
        for partition in dirs.topics[TOPIC]
        for header in headers_of(dirs.partition(TOPIC, partition))
    }

    def third(
        log: PartitionLog, start: int, end: int, request: ScanRequest, dropped: list[KafkalogError]
    ) -> BatchFilter | None:
        return ExcludeOffsets(0)

    excluded = {
        (partition, offset)
        for (partition, base), header in bases.items()
        if base % 3 == 0
        for offset in range(base, header.last_offset + 1)
    }
    assert excluded & committed
    monkeypatch.setattr(batch_filters, "FILTERS", (*batch_filters.FILTERS, third))
    assert offsets(dirs, read_committed=True) == committed - excluded
    assert offsets(dirs) == everything - excluded


def headers_of(log: PartitionLog) -> list[BatchHeader]:
    headers: list[BatchHeader] = []
    for index in range(len(log.segments)):
        with log.open_segment(index) as file:
            headers += list(file.headers())
    return headers


def test_batch_is_excluded_if_any_filter_excludes_it() -> None:
    table = np.zeros((6, len(HeaderColumn)), np.int64)
    table[:, HeaderColumn.BASE_OFFSET] = range(6)
    assert BatchFilters([]).excluded(table).size == 0
    assert BatchFilters([ExcludeOffsets(0)]).excluded(table).tolist() == [1, 0, 0, 1, 0, 0]
    assert BatchFilters([ExcludeOffsets(0), ExcludeOffsets(2)]).excluded(table).tolist() == [1, 0, 1, 1, 0, 1]
