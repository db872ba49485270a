"""Texts as fields of CSV, compiled: what is trimmed, what needs quotes, what is escaped inside of them."""

from __future__ import annotations

from enum import IntEnum

from numba import njit, types

from kafkalog_spark.log.kernels.primitives import copy_bytes, kernel_for
from kafkalog_spark.typed.pieces.pieces_kernel import BYTES, BYTES_OUT, INT64, INT64_OUT, MASK


class Sign(IntEnum):
    """Places in `signs`, int64[len(Sign)]: characters as numbers, NO_SIGN for none, and switches as 0 or 1."""

    SEPARATOR = 0
    QUOTE = 1
    ESCAPE = 2
    OF_ESCAPE = 3  # goes before an escape inside quotes
    COMMENT = 4  # a field that begins with it has quotes; NO_SIGN but in the first column
    QUOTE_ALL = 5
    ESCAPE_QUOTES = 6  # whether a quote anywhere in a field makes it a quoted one
    TRIM_BEFORE = 7
    TRIM_AFTER = 8


class Form(IntEnum):
    """What a field is."""

    PLAIN = 0
    QUOTED = 1
    NULL = 2
    EMPTY = 3


NO_SIGN = -1
_SEPARATOR, _QUOTE, _ESCAPE, _OF_ESCAPE, _COMMENT, _QUOTE_ALL, _ESCAPE_QUOTES, _TRIM_BEFORE, _TRIM_AFTER = map(
    int, Sign
)
_PLAIN, _QUOTED, _NULL, _EMPTY = map(int, Form)
_LINE_FEED, _CARRIAGE_RETURN, _SPACE = 10, 13, 32
_FORMS = types.Array(types.int8, 1, "C")
_FORMS_IN = types.Array(types.int8, 1, "C", readonly=True)


@njit
def _needs_quotes(data, first, end, begin, signs):  # type: ignore[no-untyped-def]
    """first, end: of the whole text; begin: after the white space before it. That after it counts, as in Spark."""
    if signs[_QUOTE_ALL]:
        return True
    if data[begin] == signs[_QUOTE] or data[first] == signs[_COMMENT]:
        return True
    for at in range(begin, end):
        byte = data[at]
        if byte == signs[_SEPARATOR] or byte == _LINE_FEED or byte == _CARRIAGE_RETURN:  # noqa: SIM109  Numba builds a tuple
            return True
        if byte == signs[_QUOTE] and signs[_ESCAPE_QUOTES]:
            return True
    return False


@kernel_for(types.void(BYTES, INT64, MASK, INT64, _FORMS, INT64_OUT, INT64_OUT, INT64_OUT))
def measure_fields(data, offsets, valid, signs, forms, begins, ends, sizes):  # type: ignore[no-untyped-def]
    """Of text i, which is there where valid[i] (an empty `valid`: everywhere): its form, where it begins and ends
    without white space, and its size as a field; that of null and empty fields is left."""
    for i in range(sizes.size):
        if valid.size > 0 and not valid[i]:
            forms[i] = _NULL
            continue
        begin, end = offsets[i], offsets[i + 1]
        while signs[_TRIM_BEFORE] and begin < end and data[begin] <= _SPACE:
            begin += 1
        while signs[_TRIM_AFTER] and begin < end and data[end - 1] <= _SPACE:
            end -= 1
        begins[i], ends[i] = begin, end
        if begin == end:
            forms[i] = _EMPTY
            continue
        size = end - begin
        forms[i] = _PLAIN
        if _needs_quotes(data, offsets[i], offsets[i + 1], begin, signs):
            forms[i] = _QUOTED
            size += 2
            for at in range(begin, end):
                if data[at] == signs[_QUOTE] or (data[at] == signs[_ESCAPE] and signs[_OF_ESCAPE] != NO_SIGN):
                    size += 1
        sizes[i] = size


@njit
def _put_quoted(out, to, data, begin, end, signs):  # type: ignore[no-untyped-def]
    out[to] = signs[_QUOTE]
    to += 1
    for at in range(begin, end):
        byte = data[at]
        if byte == signs[_QUOTE]:
            out[to] = signs[_ESCAPE]
            to += 1
        elif byte == signs[_ESCAPE] and signs[_OF_ESCAPE] != NO_SIGN:
            out[to] = signs[_OF_ESCAPE]
            to += 1
        out[to] = byte
        to += 1
    out[to] = signs[_QUOTE]


@kernel_for(types.void(BYTES, _FORMS_IN, INT64, INT64, INT64, BYTES, BYTES, BYTES_OUT, INT64))
def write_fields(data, forms, begins, ends, signs, null, empty, out, places):  # type: ignore[no-untyped-def]
    """Each field to out[places[i]:], as measure_fields has it. null, empty: what stands for those."""
    for i in range(forms.size):
        if forms[i] == _QUOTED:
            _put_quoted(out, places[i], data, begins[i], ends[i], signs)
        elif forms[i] == _PLAIN:
            copy_bytes(out, places[i], data, begins[i], ends[i] - begins[i])
        elif forms[i] == _NULL:
            copy_bytes(out, places[i], null, 0, null.size)
        else:
            copy_bytes(out, places[i], empty, 0, empty.size)
