"""Request of a scan: the columns and records that it returns. Importing this module loads no kernel."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_spark.format.layout import MAX_DECOMPRESSED, MAX_INT64, MIN_INT64
from kafkalog_spark.log.decode.record_schema import COLUMNS

FIRST_BATCH_ROWS = 1 << 10
"""Rows of the first Arrow batch. It is small, so that show() and limit() return before a full batch is decoded."""


@dataclass(frozen=True, slots=True)
class RecordPredicate:
    """Conditions on the content of a record. All that are not None must hold.

    A null key or value matches no condition, not even an empty pattern. header_value requires a header_name; one header
    must match both.
    """

    key: bytes | None = None
    key_prefix: bytes | None = None
    value_contains: bytes | None = None
    header_name: bytes | None = None
    header_value: bytes | None = None

    def __bool__(self) -> bool:
        """Return True if there is a condition."""
        return self != EVERY_RECORD


EVERY_RECORD = RecordPredicate()
"""No condition."""


@dataclass(frozen=True)
class ScanRequest:
    """Columns and conditions of a scan.

    Attributes:
        columns: Names of `record_schema`, in the order of the result.
        timestamp_from_ms: Lowest timestamp, inclusive.
        timestamp_until_ms: End of the range of timestamps, exclusive; MAX_INT64 means no limit.
        offset_in: Only these offsets; empty for no such condition.
        timestamp_in_ms: Only these timestamps; empty for no such condition.
        read_committed: Leave out the records of aborted transactions.
        max_decompressed: Bytes that one compressed batch may decompress to.
        drop_malformed: Skip and count damage, up to the next good batch, instead of raising. The log must have been
            opened with pass_over_damage.
        control_records: Include the records of control batches.
        wanted: Only records that satisfy this predicate.
        first_batch_rows: Rows of the first Arrow batch.
    """

    columns: tuple[str, ...] = COLUMNS
    timestamp_from_ms: int = MIN_INT64
    timestamp_until_ms: int = MAX_INT64
    offset_in: tuple[int, ...] = ()
    timestamp_in_ms: tuple[int, ...] = ()
    read_committed: bool = False
    max_decompressed: int = MAX_DECOMPRESSED
    drop_malformed: bool = False
    control_records: bool = False
    wanted: RecordPredicate = EVERY_RECORD
    first_batch_rows: int = FIRST_BATCH_ROWS
