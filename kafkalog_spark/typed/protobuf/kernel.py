"""The kernel that decodes Protobuf by a plan (`plan.py`): one look at a message finds its fields, then they are put
into the columns, slot by slot. What counts as malformed follows Java's CodedInputStream and DynamicMessage."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kafkalog_spark.kernels.primitives import helper, inlined, kernel, load_f32, load_f64, load_i32, load_i64
from kafkalog_spark.typed.columns import column_builder_kernel as builder
from kafkalog_spark.typed.protobuf.plan import Absent, Kind, Message, ProtobufFault, Slot
from kafkalog_spark.typed.protobuf.scan_kernel import Seen, look, symbol_of, wire_of
from kafkalog_spark.typed.protobuf.wire import LENGTH_DELIMITED, MOST_NESTED, pass_over, uvarint

_MOST_MILLIS = (2**63 - 1) // 1000
_MINUS, _ZERO = ord("-"), ord("0")


@helper
def put_varint(columns, c, kind, value, plan, s, name):  # type: ignore[no-untyped-def]
    """Put a number that was a varint; returns whether it fitted. name: room for an unknown enum's name."""
    if kind == Kind.INT64:
        return builder.put_i64(columns, c, value)
    if kind in (Kind.INT32, Kind.ENUM_INT):
        return builder.put_i32(columns, c, np.int64(np.int32(value)))
    if kind == Kind.UINT32_WIDE:
        return builder.put_i64(columns, c, value & 0xFFFFFFFF)
    if kind == Kind.UINT64_WIDE:
        return builder.put_i128(columns, c, value, 0)
    if kind == Kind.SINT64:
        raw = np.uint64(value)
        return builder.put_i64(columns, c, np.int64((raw >> np.uint64(1)) ^ (~(raw & np.uint64(1)) + np.uint64(1))))
    if kind == Kind.SINT32:
        raw32 = value & 0xFFFFFFFF
        return builder.put_i32(columns, c, np.int64(np.int32((raw32 >> 1) ^ -(raw32 & 1))))
    if kind == Kind.BOOL:
        return builder.put_bool(columns, c, value != 0)
    number = np.int64(np.int32(value))
    slots, tables, texts = plan.slots, plan.tables, plan.texts
    symbol = symbol_of(plan, s, number)
    if symbol >= 0:
        return builder.put_bytes(columns, c, texts, tables[symbol + 1], tables[symbol + 2])
    size = slots[s, Slot.UNKNOWN_SIZE]
    for i in range(size):
        name[i] = texts[slots[s, Slot.UNKNOWN] + i]
    if number < 0:
        name[size] = _MINUS
        size += 1
        number = -number
    digits, rest = 1, number
    while rest >= 10:
        digits += 1
        rest //= 10
    for i in range(digits):
        name[size + digits - 1 - i] = _ZERO + number % 10
        number //= 10
    return builder.put_bytes(columns, c, name, 0, size + digits)


@helper
def put_fixed(columns, c, kind, data, at):  # type: ignore[no-untyped-def]
    """Put a number of four or eight bytes; returns whether it fitted."""
    if kind == Kind.DOUBLE:
        return builder.put_f64(columns, c, load_f64(data, at))
    if kind == Kind.FLOAT:
        return builder.put_f32(columns, c, load_f32(data, at))
    if kind == Kind.FIXED64:
        return builder.put_i64(columns, c, load_i64(data, at))
    return builder.put_i32(columns, c, load_i32(data, at))


@helper
def is_zero(data, at, end, kind):  # type: ignore[no-untyped-def]
    """True if a value is its type's zero, which a field without presence may as well leave out."""
    if kind <= Kind.ENUM_NAME:
        value, _ = uvarint(data, at, end)
        wide = kind in (Kind.INT64, Kind.UINT64_WIDE, Kind.SINT64, Kind.BOOL)
        return value == 0 if wide else value & 0xFFFFFFFF == 0
    if kind >= Kind.STRING:
        return at == end
    while at < end and data[at] == 0:
        at += 1
    return at == end


@helper
def micros(data, at, end):  # type: ignore[no-untyped-def]
    """Seconds (int64, field 1) and nanos (int32, field 2) -> (microseconds, 0 or a fault), as Spark adds them up."""
    seconds, nanos = np.int64(0), np.int64(0)
    while at < end:
        tag, at = uvarint(data, at, end)
        if at > end:
            return np.int64(0), np.int64(ProtobufFault.TRUNCATED)
        tag &= 0xFFFFFFFF
        if tag >> 3 == 0:
            return np.int64(0), np.int64(ProtobufFault.TAG)
        if tag == 8 or tag == 16:
            value, at = uvarint(data, at, end)
            if at > end:
                return np.int64(0), np.int64(ProtobufFault.TRUNCATED)
            if tag == 8:
                seconds = value
            else:
                nanos = np.int64(np.int32(value))
            continue
        after = pass_over(data, at, end, tag & 7, tag >> 3)
        if after < 0:
            return np.int64(0), -after
        at = after
    # in unsigned numbers, which wrap as Java's do: of signed ones the compiler believes that they do not
    millis = np.int64(np.uint64(seconds) * np.uint64(1000))
    if millis > _MOST_MILLIS or millis < -_MOST_MILLIS:
        return np.int64(0), np.int64(ProtobufFault.TIMESTAMP)
    micros = nanos // 1000
    if nanos < 0 and micros * 1000 != nanos:
        micros += 1
    return np.int64(np.uint64(millis) * np.uint64(1000) + np.uint64(micros)), np.int64(0)


LEVELS = MOST_NESTED + 1


class Level(IntEnum):
    """Columns of `levels`, int64[LEVELS, len(Level)]: a message while it is decoded."""

    MESSAGE = 0
    SLOT = 1  # the next one; -1: the message was not looked at
    END = 2
    LEFT = 3  # elements left of a repeated field of messages; -1: not begun
    AT = 4  # position: of the message, then of the next element


class Workspace(NamedTuple):
    """Memory that the kernel works in."""

    seen: np.ndarray  # int64[LEVELS * most slots of a message, len(Seen)]
    levels: np.ndarray  # int64[LEVELS, len(Level)]
    name: np.ndarray  # uint8[LONGEST_NAME]


@helper
def _put_timestamp(data, at, end, c, far_is_bad, columns):  # type: ignore[no-untyped-def]
    """A message of seconds and nanos into column c; returns the result."""
    value, fault = micros(data, at, end)
    if fault != ProtobufFault.NONE and (fault != ProtobufFault.TIMESTAMP or far_is_bad):
        return fault
    if c >= 0 and not builder.put_i64(columns, c, value):
        return builder.full(c)
    return np.int64(ProtobufFault.NONE)


@helper
def _put_elements(data, seen_row, end, columns, plan, s, name):  # type: ignore[no-untyped-def]
    """The elements of a repeated field that is no message, packed or not; returns the result."""
    slots = plan.slots
    kind, c, number = slots[s, Slot.KIND], slots[s, Slot.ELEMENT], slots[s, Slot.NUMBER]
    if seen_row[Seen.COUNT] == 0:
        return np.int64(ProtobufFault.NONE)
    own = wire_of(kind)
    at, last = seen_row[Seen.FIRST], seen_row[Seen.END]
    while at < last:
        tag, at = uvarint(data, at, end)
        tag &= 0xFFFFFFFF
        wire = tag & 7
        after = pass_over(data, at, end, wire, tag >> 3)
        if tag >> 3 != number or (wire != own and wire != LENGTH_DELIMITED):
            at = after
            continue
        if wire == LENGTH_DELIMITED:
            _, at = uvarint(data, at, end)
        if kind == Kind.TIMESTAMP:
            result = _put_timestamp(data, at, after, c, slots[s, Slot.CHECKED], columns)
            if result != ProtobufFault.NONE:
                return result
        elif kind >= Kind.STRING:
            if c >= 0 and not builder.put_bytes(columns, c, data, at, after - at):
                return builder.full(c)
        elif c >= 0 and not _put_numbers(data, at, after, columns, plan, s, name):
            return builder.full(c)
        at = after
    return np.int64(ProtobufFault.NONE)


@inlined
def _put_numbers(data, at, end, columns, plan, s, name):  # type: ignore[no-untyped-def]
    """The numbers of one occurrence of a repeated field; returns whether they fitted."""
    slots = plan.slots
    kind, c = slots[s, Slot.KIND], slots[s, Slot.ELEMENT]
    closed = kind in (Kind.ENUM_NAME, Kind.ENUM_INT) and slots[s, Slot.CHECKED] == 1
    while at < end:
        if kind <= Kind.ENUM_NAME:
            value, at = uvarint(data, at, end)
            if closed and symbol_of(plan, s, np.int64(np.int32(value))) < 0:
                continue
            if not put_varint(columns, c, kind, value, plan, s, name):
                return False
        else:
            if not put_fixed(columns, c, kind, data, at):
                return False
            at += 8 if kind > Kind.FLOAT else 4
    return True


@inlined
def _put_field(data, seen_row, columns, plan, s, name):  # type: ignore[no-untyped-def]
    """A field that is neither repeated nor a message; returns the result."""
    slots = plan.slots
    kind, c = slots[s, Slot.KIND], slots[s, Slot.COLUMN]
    there = seen_row[Seen.COUNT] > 0
    at, end = seen_row[Seen.AT], seen_row[Seen.END]
    if there and slots[s, Slot.IMPLICIT] and is_zero(data, at, end, kind):
        there = False
    if not there and slots[s, Slot.ABSENT] == Absent.DEFAULT:
        there, data, at = True, plan.texts, slots[s, Slot.DEFAULT]
        end = at + slots[s, Slot.DEFAULT_SIZE]
    if kind == Kind.TIMESTAMP and there:
        return _put_timestamp(data, at, end, c, slots[s, Slot.CHECKED], columns)
    if c < 0:
        return np.int64(ProtobufFault.NONE)
    if not there:
        return builder.put_nulls(columns, plan.tables, slots[s, Slot.NULLS], slots[s, Slot.NULLS_END])
    if kind <= Kind.ENUM_NAME:
        value, _ = uvarint(data, at, end)
        fits = put_varint(columns, c, kind, value, plan, s, name)
    elif kind <= Kind.DOUBLE:
        fits = put_fixed(columns, c, kind, data, at)
    else:
        fits = builder.put_bytes(columns, c, data, at, end - at)
    return np.int64(ProtobufFault.NONE) if fits else builder.full(c)


@inlined
def _put_scalars(data, seen_row, end, columns, plan, s, name):  # type: ignore[no-untyped-def]
    """A field that is no message, repeated or not; returns the result."""
    if not plan.slots[s, Slot.REPEATED]:
        return _put_field(data, seen_row, columns, plan, s, name)
    result = _put_elements(data, seen_row, end, columns, plan, s, name)
    c = plan.slots[s, Slot.COLUMN]
    if result == ProtobufFault.NONE and c >= 0 and not builder.put_list(columns, c):
        return builder.full(c)
    return result


@inlined
def _next_element(data, level, seen_row, slots, s):  # type: ignore[no-untyped-def]
    """The next element of a repeated field of messages -> (its position or -1 when there is none, its end)."""
    if level[Level.LEFT] < 0:
        level[Level.LEFT], level[Level.AT] = seen_row[Seen.COUNT], seen_row[Seen.FIRST]
    if level[Level.LEFT] == 0:
        level[Level.LEFT] = -1
        level[Level.SLOT] += 1
        return np.int64(-1), np.int64(0)
    at, end = level[Level.AT], level[Level.END]
    below, after = np.int64(-1), at
    while below < 0:
        tag, at = uvarint(data, at, end)
        tag &= 0xFFFFFFFF
        after = pass_over(data, at, end, tag & 7, tag >> 3)
        if tag >> 3 == slots[s, Slot.NUMBER] and tag & 7 == LENGTH_DELIMITED:
            _, below = uvarint(data, at, end)
        at = after
    level[Level.AT] = at
    level[Level.LEFT] -= 1
    return below, after


@inlined
def _begin_message(levels, depth, message, at, end):  # type: ignore[no-untyped-def]
    level = levels[depth]
    level[Level.MESSAGE], level[Level.SLOT], level[Level.LEFT] = message, -1, -1
    level[Level.AT], level[Level.END] = at, end


@inlined
def _put_submessage(data, level, seen_row, columns, plan, s, start):  # type: ignore[no-untyped-def]
    """A field of messages -> (result, position of the next message to decode or -1, its end)."""
    slots = plan.slots
    c = slots[s, Slot.COLUMN]
    if slots[s, Slot.REPEATED]:
        below, below_end = _next_element(data, level, seen_row, slots, s)
        if below < 0 and c >= 0 and not builder.put_list(columns, c):
            return builder.full(c), below, below_end
        return np.int64(ProtobufFault.NONE), below, below_end
    level[Level.SLOT] += 1
    if seen_row[Seen.COUNT] > 0:
        return np.int64(ProtobufFault.NONE), seen_row[Seen.AT], seen_row[Seen.END]
    if slots[s, Slot.ABSENT] == Absent.DEFAULT:
        return np.int64(ProtobufFault.NONE), start, start
    result = np.int64(ProtobufFault.NONE)
    if c >= 0:
        result = builder.put_nulls(columns, plan.tables, slots[s, Slot.NULLS], slots[s, Slot.NULLS_END])
    return result, np.int64(-1), np.int64(0)


@inlined
def _decode_one(data, start, end, entry, plan, columns, space):  # type: ignore[no-untyped-def]
    """Decode the message data[start:end] -> (result, position where it stopped)."""
    seen, levels = space.seen, space.levels
    widest = len(seen) // LEVELS
    result, at, depth = np.int64(ProtobufFault.NONE), start, 0
    _begin_message(levels, 0, entry, start, end)
    while depth >= 0:
        level, base = levels[depth], depth * widest
        first = plan.messages[level[Level.MESSAGE], Message.START]
        count = plan.messages[level[Level.MESSAGE], Message.SLOTS]
        if level[Level.SLOT] < 0:
            result, at = look(data, level[Level.AT], level[Level.END], plan, first, count, seen, base, depth == 0)
            if result != ProtobufFault.NONE:
                break
            level[Level.SLOT] = 0
            c = plan.messages[level[Level.MESSAGE], Message.COLUMN]
            if c >= 0 and not builder.put_struct(columns, c):
                return builder.full(c), at
        if level[Level.SLOT] >= count:
            depth -= 1
            continue
        s, seen_row = first + level[Level.SLOT], seen[base + level[Level.SLOT]]
        if plan.slots[s, Slot.KIND] != Kind.MESSAGE:
            result = _put_scalars(data, seen_row, level[Level.END], columns, plan, s, space.name)
            if result != ProtobufFault.NONE:
                at = seen_row[Seen.AT]
                break
            level[Level.SLOT] += 1
            continue
        result, below, below_end = _put_submessage(data, level, seen_row, columns, plan, s, start)
        if result != ProtobufFault.NONE:
            break
        if below >= 0:
            depth += 1
            if depth >= LEVELS:
                return np.int64(ProtobufFault.DEPTH), below
            _begin_message(levels, depth, plan.slots[s, Slot.MESSAGE], below, below_end)
    return result, at


@kernel
def decode_protobuf(values, entries, first, plan, root, columns, marks, space, faults, full_column):  # type: ignore[no-untyped-def]
    """Decode the messages `values` (buffer_pool.Values) from number `first` on; returns the one at which it stopped, or
    their count.

    As decode_avro, with a plan (PlanArrays) in the place of the program. entries int64[n]: the message that a value is;
    -1: malformed by what faults.codes has already. space: a Workspace.
    """
    starts, ends = values.starts, values.ends
    root_start, root_end = root
    n = len(starts)
    full_column[builder.FullColumn.COLUMN] = -1
    for i in range(first, n):
        if ends[i] < 0:
            builder.put_nulls(columns, plan.tables, root_start, root_end)
            continue
        builder.mark(columns, marks)
        if entries[i] < 0:
            result, at = np.int64(faults.codes[i]), starts[i]
        else:
            result, at = _decode_one(values.data, starts[i], ends[i], entries[i], plan, columns, space)
        if result < 0:
            builder.note_full(columns, result, full_column)
            builder.restore(columns, marks)
            return i
        if result != ProtobufFault.NONE:
            builder.restore(columns, marks)
            builder.put_nulls(columns, plan.tables, root_start, root_end)
            faults.codes[i] = result
            faults.positions[i] = min(at, ends[i]) - starts[i]
    return n
