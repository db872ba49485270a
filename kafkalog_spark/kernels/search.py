"""Search kernels: find matching records by key, value or header before anything is copied.

They return the matching offsets, which become the decode kernels' `offset_filter` list; batches without a match are
skipped.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.records import RecordFault
from kafkalog_spark.kernels.primitives import helper, inlined, kernel, read_i32, read_i64, varint32
from kafkalog_spark.kernels.record_fields import record_fields
from kafkalog_spark.kernels.rows import BatchColumn, LegacyBatchColumn, Status

_KEY_LENGTH_AT_V0, _KEY_LENGTH_AT_V1 = layout.LEGACY_KEY_LENGTH_AT
_LENGTH_SIZE = 4  # bytes of the length before a key and before a value


class Condition(IntEnum):
    """Indices into `Patterns.enabled`. A record matches if all enabled conditions hold."""

    KEY = 0  # the key equals the pattern
    KEY_PREFIX = 1  # the key begins with the pattern
    VALUE_SUBSTRING = 2  # the value contains the pattern
    HEADER = 3  # a header has this name
    HEADER_VALUE = 4  # the header with that name has this value


class Patterns(NamedTuple):
    """Conditions of a search, as kernels take them. Patterns are uint8[], empty if their condition is not enabled."""

    enabled: np.ndarray  # int64[len(Condition)], 1 for each condition that is set
    key: np.ndarray
    key_prefix: np.ndarray
    value_substring: np.ndarray
    shifts: np.ndarray  # int64[256]: horspool_shifts(value_substring)
    header: np.ndarray
    header_value: np.ndarray


def horspool_shifts(pattern: bytes) -> np.ndarray:
    """Return the Horspool shift table of `pattern`, int64[256].

    Entry b is the number of bytes to advance the pattern when byte b is aligned with its last byte.
    """
    shifts = np.full(256, max(len(pattern), 1), np.int64)
    for position, byte in enumerate(pattern[:-1]):
        shifts[byte] = len(pattern) - 1 - position
    return shifts


@kernel
def search_v2(payload, starts, ends, batches, found, hits, patterns):  # type: ignore[no-untyped-def]
    """Match every record of the given v2 batches.

    Args:
        payload: uint8[], read-only; the uncompressed records of batch i are payload[starts[i]:ends[i]].
        starts: int64[n].
        ends: int64[n].
        batches: int64[n, len(BatchColumn)].
        found: int64[], filled with the matching offsets, in order, up to its size.
        hits: uint8[n], set to 1 for each batch with a match.
        patterns: Patterns.

    Returns:
        (number of matches, which may exceed the size of `found`; number of searched batches; a Status). The Status is
        DONE, or the fault of the batch at which the search stopped.
    """
    matches = 0
    checks_rest = patterns.enabled[Condition.VALUE_SUBSTRING] != 0 or patterns.enabled[Condition.HEADER] != 0
    for i in range(starts.size):
        at, end = starts[i], ends[i]
        base, last_delta = batches[i, BatchColumn.BASE_OFFSET], batches[i, BatchColumn.LAST_DELTA]
        before, previous = matches, np.int64(-1)
        for _ in range(batches[i, BatchColumn.COUNT]):
            fault, record_end, _, delta, key_at, key_size, _ = record_fields(payload, at, end)
            if fault != RecordFault.NONE:
                is_overrun = fault == RecordFault.TOO_FEW or fault == RecordFault.BAD_LENGTH
                return before, i, np.int64(Status.RECORD_OVERRUNS if is_overrun else Status.FIELD_OVERRUNS)
            if delta <= previous or delta > last_delta:
                return before, i, np.int64(Status.OFFSET_ORDER)
            previous = delta
            if _key_matches(payload, key_at, key_size, patterns) and (
                not checks_rest or _rest_matches(payload, key_at + max(key_size, 0), record_end, patterns)
            ):
                if matches < found.size:
                    found[matches] = base + delta
                matches += 1
            at = record_end
        if at != end:
            return before, i, np.int64(Status.TRAILING_BYTES)
        hits[i] = matches > before
    return matches, starts.size, np.int64(Status.DONE)


@kernel
def search_legacy(payload, starts, ends, batches, found, hits, patterns):  # type: ignore[no-untyped-def]
    """Match every message of the given message sets (v0, v1); a message has no headers, so none matches HEADER.

    Args:
        payload: uint8[], read-only; set i is payload[starts[i]:ends[i]], as in decode_legacy.
        starts: int64[n].
        ends: int64[n].
        batches: int64[n, len(LegacyBatchColumn)].
        found: int64[], filled with the matching offsets, in order, up to its size.
        hits: uint8[n], set to 1 for each set with a match.
        patterns: Patterns.

    Returns:
        As search_v2.
    """
    enabled, substring = patterns.enabled, patterns.value_substring
    matches = 0
    for i in range(starts.size):
        at, end = starts[i], ends[i]
        before = matches
        head = (_KEY_LENGTH_AT_V1 if batches[i, LegacyBatchColumn.MAGIC] == 1 else _KEY_LENGTH_AT_V0) + _LENGTH_SIZE
        while at < end:
            body_end = at + read_i32(payload, at + layout.LENGTH_AT) + layout.LOG_OVERHEAD
            key_at = at + head
            key_size = read_i32(payload, key_at - _LENGTH_SIZE)
            if key_size > body_end - key_at - _LENGTH_SIZE:
                return before, i, np.int64(Status.FIELD_OVERRUNS)
            value_at = key_at + max(key_size, 0) + _LENGTH_SIZE
            value_size = read_i32(payload, value_at - _LENGTH_SIZE)
            if value_size > body_end - value_at:
                return before, i, np.int64(Status.FIELD_OVERRUNS)
            matched = enabled[Condition.HEADER] == 0 and _key_matches(payload, key_at, key_size, patterns)
            if matched and enabled[Condition.VALUE_SUBSTRING] != 0:
                matched = value_size >= substring.size and _contains(
                    payload, value_at, value_size, substring, patterns.shifts
                )
            if matched:
                if matches < found.size:
                    found[matches] = (
                        read_i64(payload, at + layout.OFFSET_AT) + batches[i, LegacyBatchColumn.OFFSET_SHIFT]
                    )
                matches += 1
            at = body_end
        hits[i] = matches > before
    return matches, starts.size, np.int64(Status.DONE)


@inlined
def _key_matches(payload, at, size, patterns):  # type: ignore[no-untyped-def]
    """True if the key payload[at:at + size] meets the conditions on keys; a negative size means null."""
    enabled, key, prefix = patterns.enabled, patterns.key, patterns.key_prefix
    if enabled[Condition.KEY] != 0 and (size != key.size or not _starts_with(payload, at, key)):
        return False
    return enabled[Condition.KEY_PREFIX] == 0 or (size >= prefix.size and _starts_with(payload, at, prefix))


@inlined
def _rest_matches(payload, at, end, patterns):  # type: ignore[no-untyped-def]
    """True if value and headers match. payload[at:end] begins with the value's length, and is well-formed."""
    enabled, substring = patterns.enabled, patterns.value_substring
    size, value_at = varint32(payload, at, end)
    if enabled[Condition.VALUE_SUBSTRING] != 0 and (
        size < substring.size or not _contains(payload, value_at, size, substring, patterns.shifts)
    ):
        return False
    if enabled[Condition.HEADER] == 0:
        return True
    at = value_at + max(size, 0)
    return _header_matches(payload, at, end, patterns)


@inlined
def _header_matches(payload, at, end, patterns):  # type: ignore[no-untyped-def]
    """True if any header matches. payload[at:end] starts with the header count, and is well-formed."""
    name, value = patterns.header, patterns.header_value
    headers, at = varint32(payload, at, end)
    for _ in range(headers):
        name_size, name_at = varint32(payload, at, end)
        value_size, value_at = varint32(payload, name_at + name_size, end)
        if name_size == name.size and _starts_with(payload, name_at, name):
            if patterns.enabled[Condition.HEADER_VALUE] == 0:
                return True
            if value_size == value.size and _starts_with(payload, value_at, value):
                return True
        at = value_at + max(value_size, 0)
    return False


@helper
def _contains(payload, at, size, pattern, shifts):  # type: ignore[no-untyped-def]
    """True if payload[at:at + size] contains `pattern`, whose horspool_shifts are `shifts`."""
    if pattern.size == 0:
        return True
    last = pattern.size - 1
    i, end = at + last, at + size
    while i < end:
        byte = payload[i]
        if byte == pattern[last] and _starts_with(payload, i - last, pattern):
            return True
        i += shifts[byte]
    return False


@inlined
def _starts_with(payload, at, pattern):  # type: ignore[no-untyped-def]
    """True if payload[at:] starts with `pattern`; the caller has checked the bounds."""
    for i in range(pattern.size):  # noqa: SIM110 - Numba kernels cannot use generators
        if payload[at + i] != pattern[i]:
            return False
    return True
