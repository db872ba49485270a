"""Find records by key, value or header, before anything of them is copied: a kernel gives the offsets that match, which
the decode kernels get as the list wanted, with only the batches that have one. Reading without a search is
unchanged."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.records import RecordFault
from kafkalog_spark.kernels.primitives import helper, inlined, kernel, read_i32, read_i64, varint32
from kafkalog_spark.kernels.record_fields import record_fields
from kafkalog_spark.kernels.rows import LegacyUnitColumn, Status, UnitColumn

_KEY_AT_V0, _KEY_AT_V1 = layout.LEGACY_KEY_AT
_LENGTH_SIZE = 4  # bytes of the length before a key and before a value


class Condition(IntEnum):
    """Entries of `asked`, int64: 1 for each condition that there is. All of them must hold."""

    KEY = 0  # the key is these bytes
    PREFIX = 1  # the key begins with these
    PART = 2  # the value holds these
    HEADER = 3  # a header has this name
    HEADER_VALUE = 4  # and this value


class Patterns(NamedTuple):
    """The conditions of a search as kernels take them. Patterns are uint8, empty where nothing is asked for."""

    asked: np.ndarray  # int64[len(Condition)]
    key: np.ndarray
    prefix: np.ndarray
    part: np.ndarray
    steps: np.ndarray  # int64[256]: steps_of(part)
    header: np.ndarray
    header_value: np.ndarray


@inlined
def _same(payload, at, pattern):  # type: ignore[no-untyped-def]
    """True if payload[at:] begins with the pattern; the caller has made sure that so much is there."""
    for i in range(pattern.size):  # noqa: SIM110 - a generator is none of a kernel's
        if payload[at + i] != pattern[i]:
            return False
    return True


@helper
def _holds(payload, at, size, pattern, steps):  # type: ignore[no-untyped-def]
    """True if the pattern lies in payload[at:at + size]. steps: see `steps_of`."""
    if pattern.size == 0:
        return True
    last = pattern.size - 1
    i, end = at + last, at + size
    while i < end:
        byte = payload[i]
        if byte == pattern[last] and _same(payload, i - last, pattern):
            return True
        i += steps[byte]
    return False


def steps_of(pattern: bytes) -> np.ndarray:
    """int64[256]: how far a pattern can be moved on when this byte lies where its last one would (Horspool)."""
    steps = np.full(256, max(len(pattern), 1), np.int64)
    for place, byte in enumerate(pattern[:-1]):
        steps[byte] = len(pattern) - 1 - place
    return steps


@inlined
def _key_matches(payload, at, size, patterns):  # type: ignore[no-untyped-def]
    """True if the key payload[at:at + size] (a negative size: null) is what is asked for."""
    asked, key, prefix = patterns.asked, patterns.key, patterns.prefix
    if asked[Condition.KEY] != 0 and (size != key.size or not _same(payload, at, key)):
        return False
    return asked[Condition.PREFIX] == 0 or (size >= prefix.size and _same(payload, at, prefix))


@inlined
def _header_matches(payload, at, end, patterns):  # type: ignore[no-untyped-def]
    """True if one of the headers in payload[at:end], which begin with their number, matches. They are well-formed."""
    name, value = patterns.header, patterns.header_value
    headers, at = varint32(payload, at, end)
    for _ in range(headers):
        name_size, name_at = varint32(payload, at, end)
        value_size, value_at = varint32(payload, name_at + name_size, end)
        if name_size == name.size and _same(payload, name_at, name):
            if patterns.asked[Condition.HEADER_VALUE] == 0:
                return True
            if value_size == value.size and _same(payload, value_at, value):
                return True
        at = value_at + max(value_size, 0)
    return False


@inlined
def _rest_matches(payload, at, end, patterns):  # type: ignore[no-untyped-def]
    """True if value and headers match; payload[at:end] begins with the value's length, and is well-formed."""
    asked, part = patterns.asked, patterns.part
    size, value_at = varint32(payload, at, end)
    if asked[Condition.PART] != 0 and (size < part.size or not _holds(payload, value_at, size, part, patterns.steps)):
        return False
    if asked[Condition.HEADER] == 0:
        return True
    at = value_at + max(size, 0)
    return _header_matches(payload, at, end, patterns)


@kernel
def search_v2(payload, starts, ends, units, found, hits, patterns):  # type: ignore[no-untyped-def]
    """Look at every record of some v2 batches.

    payload, starts, ends, units: as of decode_v2. found: int64, gets the offsets that match, in order, as far as there
    is room. hits: uint8[n], gets 1 for each batch with a match. Returns (matches, batch where it stopped, Status): n
    and DONE, or a fault.
    """
    matches = 0
    with_rest = patterns.asked[Condition.PART] != 0 or patterns.asked[Condition.HEADER] != 0
    for i in range(starts.size):
        at, end = starts[i], ends[i]
        base, last_delta, count = (
            units[i, UnitColumn.BASE_OFFSET],
            units[i, UnitColumn.LAST_DELTA],
            units[i, UnitColumn.COUNT],
        )
        before, previous = matches, np.int64(-1)
        for _ in range(count):
            fault, record_end, _, delta, key_at, key_size, _ = record_fields(payload, at, end)
            if fault != RecordFault.NONE:
                too_long = fault == RecordFault.TOO_FEW or fault == RecordFault.BAD_LENGTH
                return before, i, np.int64(Status.RECORD_OVERRUNS if too_long else Status.FIELD_OVERRUNS)
            if delta <= previous or delta > last_delta:
                return before, i, np.int64(Status.OFFSET_ORDER)
            previous = delta
            if _key_matches(payload, key_at, key_size, patterns) and (
                not with_rest or _rest_matches(payload, key_at + max(key_size, 0), record_end, patterns)
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
def search_legacy(payload, starts, ends, units, found, hits, patterns):  # type: ignore[no-untyped-def]
    """As search_v2, for sets of messages v0 and v1, which have no headers; payload and units as of decode_legacy."""
    asked, part = patterns.asked, patterns.part
    matches = 0
    for i in range(starts.size):
        at, end = starts[i], ends[i]
        before = matches
        head = (_KEY_AT_V1 if units[i, LegacyUnitColumn.MAGIC] == 1 else _KEY_AT_V0) + _LENGTH_SIZE
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
            matched = asked[Condition.HEADER] == 0 and _key_matches(payload, key_at, key_size, patterns)
            if matched and asked[Condition.PART] != 0:
                matched = value_size >= part.size and _holds(payload, value_at, value_size, part, patterns.steps)
            if matched:
                if matches < found.size:
                    found[matches] = read_i64(payload, at + layout.OFFSET_AT) + units[i, LegacyUnitColumn.ADD]
                matches += 1
            at = body_end
        hits[i] = matches > before
    return matches, starts.size, np.int64(Status.DONE)
