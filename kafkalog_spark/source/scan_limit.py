"""Limit on the bytes that a batch query reads (option `maxScanBytes`)."""

from __future__ import annotations

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.options import ReadOptions


def check_scan_bytes(size: int, options: ReadOptions) -> None:
    """Raise OptionError if a batch read of `size` bytes of .log files exceeds maxScanBytes."""
    limit = options.max_scan_bytes
    if limit is not None and size > limit:
        raise OptionError(
            f"the query would read {size} bytes of .log files ({size / 1e9:.3f} GB), but maxScanBytes is {limit}",
            hint="narrow the read with startingTimestamp, startingOffsets or a subscription, or raise maxScanBytes",
        )
