"""Option maxScanBytes: a read that would look at too much is refused before it begins."""

from __future__ import annotations

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.options import ReadOptions


def check_scan_bytes(size: int, options: ReadOptions) -> None:
    """Raise OptionError where `size`, the bytes of .log files that a batch would look at, is above the limit."""
    limit = options.max_scan_bytes
    if limit is not None and size > limit:
        raise OptionError(
            f"this would read {size} bytes of .log files ({size / 1e9:.3f} GB), maxScanBytes is {limit}",
            hint="narrow it with startingTimestamp, startingOffsets or a subscription, or allow more",
        )
