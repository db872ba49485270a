"""Request of a task's scan, from the options of the read and the pushed filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.row_filter import RowFilter

if TYPE_CHECKING:
    from kafkalog_spark.log.decode.scan_request import ScanRequest


def scan_request(options: ReadOptions, row_filter: RowFilter, columns: tuple[str, ...]) -> ScanRequest:
    """Return the request of a scan.

    Args:
        options: Options of the read.
        row_filter: Pushed filters.
        columns: Columns to scan. With mode=PERMISSIVE they include columns about damage.
    """
    from kafkalog_spark.log.decode.scan_request import ScanRequest

    return ScanRequest(
        columns=columns,
        timestamp_from_ms=row_filter.timestamp_from_ms,
        timestamp_until_ms=row_filter.timestamp_until_ms,
        offset_in=row_filter.offset_in or (),
        timestamp_in_ms=row_filter.timestamp_in_ms or (),
        read_committed=options.read_committed,
        max_decompressed=options.max_decompressed_batch_bytes,
        drop_malformed=options.passes_over_damage,
        wanted=options.wanted,
    )
