"""What a RowFilter means: the definition that the kernels are held against."""

from __future__ import annotations

from kafkalog_spark.source.row_filter import RowFilter


def accepts(row_filter: RowFilter, offset: int, timestamp_ms: int) -> bool:
    """True if this row of an accepted partition passes."""
    return (
        row_filter.offset_from <= offset < row_filter.offset_until
        and row_filter.timestamp_from_ms <= timestamp_ms < row_filter.timestamp_until_ms
        and (row_filter.offset_in is None or offset in row_filter.offset_in)
        and (row_filter.timestamp_in_ms is None or timestamp_ms in row_filter.timestamp_in_ms)
    )
