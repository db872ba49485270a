"""The kernel that decodes Protobuf by a plan (`plan.py`): one look at a message finds its fields, then they are put
into the columns, slot by slot. What counts as malformed follows Java's CodedInputStream and DynamicMessage."""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_spark.kernels.primitives import kernel
from kafkalog_spark.typed.columns.column_builder_kernel import (
    ENTRIES,
    ROOM,
    back_to,
    mark,
    put_bytes,
    put_i64,
    put_list,
    put_nulls,
    put_struct,
)
from kafkalog_spark.typed.protobuf.plan import Absent, Fault, Kind, M, S
from kafkalog_spark.typed.protobuf.scalar_kernel import is_zero, micros, put_default, put_fixed, put_value, put_varint
from kafkalog_spark.typed.protobuf.wire import (
    AT,
    COUNT,
    END,
    FIRST,
    MOST_NESTED,
    look,
    pass_over,
    symbol_of,
    uvarint,
    wire_of,
)

_FLOAT, _STRING, _MESSAGE, _TIMESTAMP = int(Kind.FLOAT), int(Kind.STRING), int(Kind.MESSAGE), int(Kind.TIMESTAMP)
_ENUM_INT, _ENUM_NAME = int(Kind.ENUM_INT), int(Kind.ENUM_NAME)
_COLUMN, _ELEMENT, _SUB, _ABSENT = int(S.COLUMN), int(S.ELEMENT), int(S.MESSAGE), int(S.ABSENT)
_NUMBER, _KIND, _REPEATED, _IMPLICIT = int(S.NUMBER), int(S.KIND), int(S.REPEATED), int(S.IMPLICIT)
_NULLS, _NULLS_END, _CHECKED = int(S.NULLS), int(S.NULLS_END), int(S.CHECKED)
_M_START, _M_SLOTS, _M_COLUMN = int(M.START), int(M.SLOTS), int(M.COLUMN)
_BY_DEFAULT = int(Absent.DEFAULT)
_DEPTH, _FAR_TIME = int(Fault.DEPTH), int(Fault.TIMESTAMP)
LEVELS = MOST_NESTED + 1


@njit
def _put_elements(data, seen_row, end, columns, slots, s, tables, texts, room):  # type: ignore[no-untyped-def]
    """The elements of a repeated field that is no message, packed or not; 0, a fault, or -1 when the column is full."""
    kind, c, number = slots[s, _KIND], slots[s, _ELEMENT], slots[s, _NUMBER]
    if seen_row[COUNT] == 0:
        return np.int64(0)
    own = wire_of(kind)
    closed = (kind in (_ENUM_NAME, _ENUM_INT)) and slots[s, _CHECKED] == 1
    at, last = seen_row[FIRST], seen_row[END]
    while at < last:
        tag, at = uvarint(data, at, end)
        tag &= 0xFFFFFFFF
        wire = tag & 7
        after = pass_over(data, at, end, wire, tag >> 3)
        if tag >> 3 != number or (wire != own and wire != 2):
            at = after
            continue
        if wire == 2:
            _, at = uvarint(data, at, end)
        if kind == _TIMESTAMP:
            value, fault = micros(data, at, after)
            if fault != 0 and (fault != _FAR_TIME or slots[s, _CHECKED]):
                return fault
            if c >= 0 and not put_i64(columns, c, value):
                return np.int64(-1)
        elif kind >= _STRING:
            if c >= 0 and not put_bytes(columns, c, data, at, after - at):
                return np.int64(-1)
        else:
            while at < after and c >= 0:
                if kind <= _ENUM_NAME:
                    value, at = uvarint(data, at, after)
                    if closed and symbol_of(tables, slots, s, np.int64(np.int32(value))) < 0:
                        continue
                    if not put_varint(columns, c, kind, value, slots, s, tables, texts, room):
                        return np.int64(-1)
                else:
                    if not put_fixed(columns, c, kind, data, at):
                        return np.int64(-1)
                    at += 8 if kind > _FLOAT else 4
        at = after
    return np.int64(0)


@njit
def _put_field(data, seen_row, columns, slots, s, tables, texts, room):  # type: ignore[no-untyped-def]
    """A field that is neither repeated nor a message; 0, a fault, or -1 - column when that is full."""
    kind, c = slots[s, _KIND], slots[s, _COLUMN]
    there = seen_row[COUNT] > 0
    if there and slots[s, _IMPLICIT] and is_zero(data, seen_row[AT], seen_row[END], kind):
        there = False
    if kind == _TIMESTAMP and there:
        value, fault = micros(data, seen_row[AT], seen_row[END])
        if fault != 0 and (fault != _FAR_TIME or slots[s, _CHECKED]):
            return fault
        if c >= 0 and not put_i64(columns, c, value):
            return -1 - c
        return np.int64(0)
    if c < 0:
        return np.int64(0)
    if there:
        fits = put_value(columns, c, kind, data, seen_row[AT], seen_row[END], slots, s, tables, texts, room)
    elif slots[s, _ABSENT] == _BY_DEFAULT:
        fits = put_default(columns, c, kind, slots, s, texts)
    else:
        left = put_nulls(columns, tables, slots[s, _NULLS], slots[s, _NULLS_END])
        return np.int64(0) if left < 0 else -1 - left
    return np.int64(0) if fits else -1 - c


@kernel
def decode_protobuf(  # type: ignore[no-untyped-def]
    data, starts, ends, entries, first, slots, messages, tables, texts, root, columns, marks, seen, widest, levels,
    room, faults, places, full,
):  # fmt: skip
    """Decode the messages data[starts[i]:ends[i]] from value `first` on; the value at which it stopped, or their
    number.

    As decode_avro, with a plan in the place of the program. entries int64[n]: the message that a value is, -1: bad
    already. seen int64[LEVELS * widest, 4], levels int64[LEVELS, 5], room uint8[LONGEST_NAME]: room to work in; widest:
    the most slots of a message.
    """
    n = len(starts)
    full[0] = -1
    for i in range(first, n):
        if ends[i] < 0:
            put_nulls(columns, tables, root[0], root[1])
            continue
        mark(columns, marks)
        fault, at, depth = np.int64(0), starts[i], 0
        # A level: message, next slot, end; of a repeated field of messages: elements left (-1: not begun), position.
        if entries[i] < 0:
            fault, depth = np.int64(faults[i]), -1
        else:
            levels[0, 0], levels[0, 1], levels[0, 2], levels[0, 3] = entries[i], -1, ends[i], -1
            levels[0, 4] = starts[i]
        while depth >= 0:
            message, end, base = levels[depth, 0], levels[depth, 2], depth * widest
            start, count = messages[message, _M_START], messages[message, _M_SLOTS]
            if levels[depth, 1] < 0:
                found, at = look(data, levels[depth, 4], end, slots, tables, start, count, seen, base, depth == 0)
                fault = np.int64(found)
                if fault != 0:
                    break
                levels[depth, 1] = 0
                c = messages[message, _M_COLUMN]
                if c >= 0 and not put_struct(columns, c):
                    full[0] = c
                    break
            if levels[depth, 1] >= count:
                depth -= 1
                continue
            s, row = start + levels[depth, 1], base + levels[depth, 1]
            kind, c = slots[s, _KIND], slots[s, _COLUMN]
            if kind != _MESSAGE:
                if slots[s, _REPEATED]:
                    result = _put_elements(data, seen[row], end, columns, slots, s, tables, texts, room)
                    if result == -1:
                        full[0] = slots[s, _ELEMENT]
                        break
                    if result == 0 and c >= 0 and not put_list(columns, c):
                        full[0] = c
                        break
                else:
                    result = _put_field(data, seen[row], columns, slots, s, tables, texts, room)
                    if result < 0:
                        full[0] = -1 - result
                        break
                if result > 0:
                    fault, at = result, seen[row, AT]
                    break
                levels[depth, 1] += 1
                continue
            below, below_end = np.int64(-1), np.int64(0)
            if slots[s, _REPEATED]:
                if levels[depth, 3] < 0:
                    levels[depth, 3], levels[depth, 4] = seen[row, COUNT], seen[row, FIRST]
                if levels[depth, 3] == 0:
                    if c >= 0 and not put_list(columns, c):
                        full[0] = c
                        break
                    levels[depth, 3] = -1
                    levels[depth, 1] += 1
                    continue
                at = levels[depth, 4]
                while below < 0:
                    tag, at = uvarint(data, at, end)
                    tag &= 0xFFFFFFFF
                    after = pass_over(data, at, end, tag & 7, tag >> 3)
                    if tag >> 3 == slots[s, _NUMBER] and tag & 7 == 2:
                        _, below = uvarint(data, at, end)
                        below_end = after
                    at = after
                levels[depth, 4] = at
                levels[depth, 3] -= 1
            else:
                levels[depth, 1] += 1
                if seen[row, COUNT] > 0:
                    below, below_end = seen[row, AT], seen[row, END]
                elif slots[s, _ABSENT] == _BY_DEFAULT:
                    below, below_end = starts[i], starts[i]
                elif c >= 0:
                    left = put_nulls(columns, tables, slots[s, _NULLS], slots[s, _NULLS_END])
                    if left >= 0:
                        full[0] = left
                        break
            if below >= 0:
                depth += 1
                if depth >= LEVELS:
                    fault, at = np.int64(_DEPTH), below
                    break
                levels[depth, 0], levels[depth, 1], levels[depth, 2], levels[depth, 3] = (
                    slots[s, _SUB],
                    -1,
                    below_end,
                    -1,
                )
                levels[depth, 4] = below
        if full[0] >= 0:
            full[1] = columns[full[0], ENTRIES] >= columns[full[0], ROOM]
            back_to(columns, marks)
            return i
        if fault != 0:
            back_to(columns, marks)
            put_nulls(columns, tables, root[0], root[1])
            faults[i] = fault
            places[i] = min(at, ends[i]) - starts[i]
    return n
