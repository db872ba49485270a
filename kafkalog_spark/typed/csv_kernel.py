"""CSV values to columns, compiled: fields that are plain text or quoted as a whole, of the forms that are frequent.

What it does not know (escapes, quotes inside fields, another number of fields, a text that is not of its
type) makes the value LEFT: plain Python decides (csv_values.py). It fills the tables of the JSON kernel.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_spark.log.kernels.primitives import kernel
from kafkalog_spark.typed.json_fields import (
    DONE,
    FULL,
    K_BOOLEAN,
    K_DATE,
    K_DECIMAL,
    K_DOUBLE,
    K_FLOAT,
    K_INTEGER,
    K_LOCAL,
    K_STRING,
    K_TIMESTAMP,
    LEFT,
    MAX_STRING,
    N_BASE,
    N_KIND,
    N_LOW,
    NO_ROOM,
    NUMBERS_USED,
    ROOT,
)
from kafkalog_spark.typed.json_program import WORD_LENGTH_BITS
from kafkalog_spark.typed.json_scalar_kernel import take_number
from kafkalog_spark.typed.json_text_kernel import is_utf8
from kafkalog_spark.typed.json_time_kernel import days_of, microseconds_of, names_a_zone

NO_SIGN = -1
# places of `signs`: the separator, quote, escape and comment (NO_SIGN for none), whether floats are read here
SEPARATOR, QUOTE, ESCAPE, COMMENT, FLOATS = 0, 1, 2, 3, 4
SIGNS = 5


@kernel
def decode_csv(  # type: ignore[no-untyped-def]
    data, offsets, present, first, nodes, targets, signs, null, words, valid, numbers, state, flags
):
    """Decode the values data[offsets[i]:offsets[i + 1]] for which present[i] is not 0, from row `first` on.

    targets int64[fields]: the node of each field of a value, 0 where it is not wanted. signs int64[SIGNS]. null
    uint8[:]: the text that is null, as what is empty is. nodes, words, valid, numbers, state, flags: as of decode_json.

    Returns the row that it ended before: all of them, or the one for which `numbers` has no room.
    """
    rows = len(offsets) - 1
    for row in range(first, rows):
        if present[row] == 0:
            continue
        used = state[NUMBERS_USED]
        status = _decode_one(
            data, offsets[row], offsets[row + 1], row, nodes, targets, signs, null, words, valid, numbers, state
        )
        if status == DONE:
            valid[nodes[ROOT, N_BASE] + row] = 1
            continue
        state[NUMBERS_USED] = used
        for n in range(len(nodes)):
            valid[nodes[n, N_BASE] + row] = 0
        if status == FULL:
            return row
        flags[row] = LEFT
    return rows


@njit
def _decode_one(data, at, end, row, nodes, targets, signs, null, words, valid, numbers, state):  # type: ignore[no-untyped-def]
    """One value: DONE, LEFT or FULL."""
    if at == end or data[at] == signs[COMMENT]:
        return LEFT
    begin, field = at, 0
    separator, quote, escape = signs[SEPARATOR], signs[QUOTE], signs[ESCAPE]
    beyond = np.uint8(0)
    while True:
        if field >= len(targets):
            return LEFT
        if at < end and data[at] == quote:
            at += 1
            start = at
            while at < end and data[at] != quote:
                if data[at] == escape:
                    return LEFT
                beyond |= data[at]
                at += 1
            if at == end:
                return LEFT
            stop = at
            at += 1
            if at < end and data[at] != separator:
                return LEFT
            if start == stop:
                return LEFT
        else:
            start = at
            while at < end and data[at] != separator:
                beyond |= data[at]
                at += 1
            stop = at
        target = targets[field]
        field += 1
        if target != 0 and start != stop and not _is(data, start, stop, null):
            found = _take(data, start, stop, row, target, signs[FLOATS], nodes, words, valid, numbers, state)
            if found != DONE:
                return found
        if at == end:
            break
        at += 1
    if field != len(targets) or (
        beyond & np.uint8(0x80) and not (is_utf8(data, begin, end) and _one_line(data, begin, end))
    ):
        return LEFT
    return DONE


@njit
def _one_line(data, at, end):  # type: ignore[no-untyped-def]
    """Whether U+FFFF, which ends a line (csv_tokens.LINE), is not in data[at:end]."""
    found = False
    for i in range(at, end - 2):
        found |= data[i] == 0xEF and data[i + 1] == 0xBF and data[i + 2] == 0xBF
    return not found


@njit(inline="always")
def _is(data, start, stop, text):  # type: ignore[no-untyped-def]
    """Whether data[start:stop] is that text."""
    if stop - start != len(text):
        return False
    same = True
    for i in range(len(text)):
        same &= data[start + i] == text[i]
    return same


@njit
def _take(data, start, stop, row, target, floats, nodes, words, valid, numbers, state):  # type: ignore[no-untyped-def]
    """A field that is not null, into its slot: DONE, LEFT or FULL."""
    kind = nodes[target, N_KIND]
    place = nodes[target, N_BASE] + row
    if kind == K_STRING:
        if stop - start > MAX_STRING:
            return LEFT
        words[place] = (start << WORD_LENGTH_BITS) | (stop - start)
    elif kind in (K_INTEGER, K_DECIMAL, K_DOUBLE, K_FLOAT):
        minus_zero = data[start] == 45 and stop - start == 2 and data[start + 1] == 48  # which JSON has as 0
        if kind in (K_DOUBLE, K_FLOAT) and (floats == 0 or minus_zero):
            return LEFT
        at = take_number(data, start, stop, kind, target, row, place, nodes, words, valid, numbers, state)
        if at == NO_ROOM:
            return FULL
        if at != stop:
            return LEFT
        return DONE
    elif kind == K_BOOLEAN:
        size = stop - start
        if size == 4 and data[start] == 116 and data[start + 1] == 114 and data[start + 2] == 117:
            if data[start + 3] != 101:
                return LEFT
            words[place] = 1
        elif size == 5 and data[start] == 102 and data[start + 1] == 97 and data[start + 2] == 108:
            if data[start + 3] != 115 or data[start + 4] != 101:
                return LEFT
            words[place] = 0
        else:
            return LEFT
    elif kind in (K_TIMESTAMP, K_LOCAL):
        us, good = microseconds_of(data, start, stop, kind == K_TIMESTAMP)
        if not good or (nodes[target, N_LOW] != 0 and not names_a_zone(data, start, stop)):
            return LEFT
        words[place] = us
    elif kind == K_DATE:
        days, good = days_of(data, start, stop)
        if not good or stop - start != 10:
            return LEFT
        words[place] = days
    else:
        return LEFT
    valid[place] = 1
    return DONE
