"""Columns of single values as texts, as Spark writes them in JSON and CSV."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import cast

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed import civil_text_kernel as kernel
from kafkalog_spark.typed.java_numbers import java_numbers
from kafkalog_spark.typed.pieces.numbers import whole_numbers
from kafkalog_spark.typed.pieces.pieces import Pieces

_FIRST_SECOND = -62_135_510_400
"""0001-01-02: before it, zones have the offset that they have then."""
_LAST_SECOND, _ERA_S = 32_503_680_000, 146_097 * 86_400
"""The year 3000, after which zones repeat with the calendar, in eras of 400 years."""
_WHOLE_QUARTERS = 94_694_400
"""1973: since then, offsets have changed at whole quarters of an hour only."""


def scalar_texts(column: pa.Array, zone: tzinfo, *, quoted: bool) -> Pieces:
    """What each entry of a column is that is neither text nor bytes; any for null. zone: of timestamps. quoted: whether
    what JSON has in quotes is in quotes."""
    kind = column.type
    if pa.types.is_floating(kind):
        return java_numbers(column, quoted)
    if pa.types.is_date32(kind):
        return _dates(column, quoted)
    if pa.types.is_timestamp(kind):
        return _moments(column, None if kind.tz is None else zone, quoted)
    return Pieces.of(column.cast(pa.string()))  # booleans, whole numbers, and decimals as BigDecimal.toString


def _dates(column: pa.Array, quoted: bool) -> Pieces:
    days = whole_numbers(column)
    made = Pieces.up_to(len(days), kernel.MAX_DATE)
    kernel.write_dates(days, quoted, made.data, made.offsets)
    return made


def _moments(column: pa.Array, zone: tzinfo | None, quoted: bool) -> Pieces:
    """Timestamps; zone: None for those without."""
    us = whole_numbers(column)
    seconds = np.zeros(1, np.int64) if zone is None or zone is UTC else _ahead(us, zone)
    made = Pieces.up_to(len(us), kernel.MAX_MOMENT)
    kernel.write_moments(us + seconds * 1_000_000, seconds, zone is not None, quoted, made.data, made.offsets)
    return made


def _ahead(us: np.ndarray, zone: tzinfo) -> np.ndarray:
    """By how many seconds the zone's clocks are ahead of UTC, int64[n]. A zone is asked once for each quarter of an
    hour, and for each second where it may change in between."""
    seconds = us // 1_000_000
    times = np.where(seconds >= _WHOLE_QUARTERS, seconds // 900 * 900, seconds)
    asked, places = np.unique(times, return_inverse=True)
    found = np.array([_offset_at(int(second), zone) for second in asked], np.int64)
    return cast(np.ndarray, found[places])


def _offset_at(second: int, zone: tzinfo) -> int:
    second = max(second, _FIRST_SECOND)
    if second > _LAST_SECOND:
        second -= (second - _LAST_SECOND + _ERA_S - 1) // _ERA_S * _ERA_S
    offset = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())
