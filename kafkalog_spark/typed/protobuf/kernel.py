"""The kernel that decodes Protobuf: it applies a plan (`plan.py`) to each value of a batch.

Each message is scanned for its fields, which are then appended to the columns slot by slot. A value is malformed if
Java's CodedInputStream or DynamicMessage refuses it.

The functions share these arguments: `data` uint8[:] with the value, `at` and `end` positions in it, `columns`
int64[n, len(Col)], `column` the number of a column or -1 to store nothing, `plan` PlanArrays, `slot` a row of the
plan's slots, `seen_row` int64[len(Seen)] with the occurrences of its field, `level` int64[len(Level)] of the current
message, and `name_buffer` of Workspace. A function that appends returns a result (see column_builder_kernel).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kafkalog_spark.kernels.primitives import helper, inlined, kernel
from kafkalog_spark.typed.columns import column_builder_kernel as builder
from kafkalog_spark.typed.protobuf.field_types import WireType
from kafkalog_spark.typed.protobuf.plan import Absent, Kind, MessageCell, ProtobufFault, SlotCell
from kafkalog_spark.typed.protobuf.scalar_kernel import is_zero, microseconds_of, put_fixed, put_varint
from kafkalog_spark.typed.protobuf.scan_kernel import Seen, scan_fields, symbol_of, wire_of
from kafkalog_spark.typed.protobuf.wire import MAX_DEPTH, skip_value, uvarint

LEVELS = MAX_DEPTH + 1


class Level(IntEnum):
    """Columns of `levels`, int64[LEVELS, len(Level)]: the stack of open messages."""

    MESSAGE = 0  # row of the plan's messages
    SLOT = 1  # next slot, counted within the message; -1 if the message was not scanned yet
    END = 2  # position after the message
    LEFT = 3  # elements left in a repeated field of messages; -1 if it has not begun
    POSITION = 4  # position of the message, and later of the next element


class Workspace(NamedTuple):
    """Working memory of the kernel."""

    seen: np.ndarray  # int64[LEVELS * maximum number of slots in a message, len(Seen)]
    levels: np.ndarray  # int64[LEVELS, len(Level)]
    name_buffer: np.ndarray  # uint8[MAX_ENUM_NAME]


@helper
def _put_timestamp(data, at, end, column, must_fit, columns):  # type: ignore[no-untyped-def]
    """Append the Timestamp or Duration data[at:end]; return the result.

    must_fit: whether a time out of the range of microseconds is a fault.
    """
    value, fault = microseconds_of(data, at, end)
    if fault != ProtobufFault.NONE and (fault != ProtobufFault.TIMESTAMP or must_fit):
        return fault
    if column >= 0 and not builder.put_i64(columns, column, value):
        return builder.full(column)
    return np.int64(ProtobufFault.NONE)


@helper
def _put_elements(data, seen_row, end, columns, plan, slot, name_buffer):  # type: ignore[no-untyped-def]
    """Append the elements of a repeated scalar field, packed or not; return the result."""
    slots = plan.slots
    kind, column, number = slots[slot, SlotCell.KIND], slots[slot, SlotCell.ELEMENT], slots[slot, SlotCell.NUMBER]
    if seen_row[Seen.COUNT] == 0:
        return np.int64(ProtobufFault.NONE)
    expected_wire = wire_of(kind)
    at, last = seen_row[Seen.FIRST_TAG], seen_row[Seen.VALUE_END]
    while at < last:
        tag, at = uvarint(data, at, end)
        tag &= 0xFFFFFFFF
        wire = tag & 7
        after = skip_value(data, at, end, wire, tag >> 3)
        if tag >> 3 != number or (wire != expected_wire and wire != WireType.LEN):
            at = after
            continue
        if wire == WireType.LEN:
            _, at = uvarint(data, at, end)
        if kind == Kind.TIMESTAMP:
            result = _put_timestamp(data, at, after, column, slots[slot, SlotCell.MUST_FIT], columns)
            if result != ProtobufFault.NONE:
                return result
        elif kind >= Kind.STRING:
            if column >= 0 and not builder.put_bytes(columns, column, data, at, after - at):
                return builder.full(column)
        elif column >= 0 and not _put_numbers(data, at, after, columns, plan, slot, name_buffer):
            return builder.full(column)
        at = after
    return np.int64(ProtobufFault.NONE)


@inlined
def _put_numbers(data, at, end, columns, plan, slot, name_buffer):  # type: ignore[no-untyped-def]
    """Append the numbers of one occurrence of a repeated field; return whether they fit."""
    slots = plan.slots
    kind, column = slots[slot, SlotCell.KIND], slots[slot, SlotCell.ELEMENT]
    closed = kind in (Kind.ENUM_NAME, Kind.ENUM_INT) and slots[slot, SlotCell.IS_CLOSED] == 1
    while at < end:
        if kind <= Kind.ENUM_NAME:
            value, at = uvarint(data, at, end)
            if closed and symbol_of(plan, slot, np.int64(np.int32(value))) < 0:
                continue
            if not put_varint(columns, column, kind, value, plan, slot, name_buffer):
                return False
        else:
            if not put_fixed(columns, column, kind, data, at):
                return False
            at += 8 if kind > Kind.FLOAT else 4
    return True


@inlined
def _put_field(data, seen_row, columns, plan, slot, name_buffer):  # type: ignore[no-untyped-def]
    """Append the value of a scalar field that is not repeated; return the result."""
    slots = plan.slots
    kind, column = slots[slot, SlotCell.KIND], slots[slot, SlotCell.COLUMN]
    present = seen_row[Seen.COUNT] > 0
    at, end = seen_row[Seen.VALUE], seen_row[Seen.VALUE_END]
    if present and slots[slot, SlotCell.HAS_NO_PRESENCE] and is_zero(data, at, end, kind):
        present = False
    if not present and slots[slot, SlotCell.ABSENT] == Absent.DEFAULT:
        present, data, at = True, plan.texts, slots[slot, SlotCell.DEFAULT]
        end = at + slots[slot, SlotCell.DEFAULT_SIZE]
    if kind == Kind.TIMESTAMP and present:
        return _put_timestamp(data, at, end, column, slots[slot, SlotCell.MUST_FIT], columns)
    if column < 0:
        return np.int64(ProtobufFault.NONE)
    if not present:
        return builder.put_nulls(
            columns, plan.tables, slots[slot, SlotCell.NULL_COLUMNS], slots[slot, SlotCell.NULL_COLUMNS_END]
        )
    if kind <= Kind.ENUM_NAME:
        value, _ = uvarint(data, at, end)
        fits = put_varint(columns, column, kind, value, plan, slot, name_buffer)
    elif kind <= Kind.DOUBLE:
        fits = put_fixed(columns, column, kind, data, at)
    else:
        fits = builder.put_bytes(columns, column, data, at, end - at)
    return np.int64(ProtobufFault.NONE) if fits else builder.full(column)


@inlined
def _put_scalars(data, seen_row, end, columns, plan, slot, name_buffer):  # type: ignore[no-untyped-def]
    """Append a scalar field, repeated or not; return the result."""
    if not plan.slots[slot, SlotCell.IS_REPEATED]:
        return _put_field(data, seen_row, columns, plan, slot, name_buffer)
    result = _put_elements(data, seen_row, end, columns, plan, slot, name_buffer)
    column = plan.slots[slot, SlotCell.COLUMN]
    if result == ProtobufFault.NONE and column >= 0 and not builder.put_list(columns, column):
        return builder.full(column)
    return result


@inlined
def _next_element(data, level, seen_row, slots, slot):  # type: ignore[no-untyped-def]
    """Find the next element of a repeated field of messages -> (its position or -1 after the last one, its end)."""
    if level[Level.LEFT] < 0:
        level[Level.LEFT], level[Level.POSITION] = seen_row[Seen.COUNT], seen_row[Seen.FIRST_TAG]
    if level[Level.LEFT] == 0:
        level[Level.LEFT] = -1
        level[Level.SLOT] += 1
        return np.int64(-1), np.int64(0)
    at, end = level[Level.POSITION], level[Level.END]
    child, after = np.int64(-1), at
    while child < 0:
        tag, at = uvarint(data, at, end)
        tag &= 0xFFFFFFFF
        after = skip_value(data, at, end, tag & 7, tag >> 3)
        if tag >> 3 == slots[slot, SlotCell.NUMBER] and tag & 7 == WireType.LEN:
            _, child = uvarint(data, at, end)
        at = after
    level[Level.POSITION] = at
    level[Level.LEFT] -= 1
    return child, after


@inlined
def _begin_message(levels, depth, message, at, end):  # type: ignore[no-untyped-def]
    level = levels[depth]
    level[Level.MESSAGE], level[Level.SLOT], level[Level.LEFT] = message, -1, -1
    level[Level.POSITION], level[Level.END] = at, end


@inlined
def _put_submessage(data, level, seen_row, columns, plan, slot, start):  # type: ignore[no-untyped-def]
    """Find the next message to decode in a field of messages -> (result, its position or -1 if there is none, its end).

    After the last element it appends the list, and for an absent message nulls. start: position of the value, where an
    empty message stands for the default.
    """
    slots = plan.slots
    column = slots[slot, SlotCell.COLUMN]
    if slots[slot, SlotCell.IS_REPEATED]:
        child, child_end = _next_element(data, level, seen_row, slots, slot)
        if child < 0 and column >= 0 and not builder.put_list(columns, column):
            return builder.full(column), child, child_end
        return np.int64(ProtobufFault.NONE), child, child_end
    level[Level.SLOT] += 1
    if seen_row[Seen.COUNT] > 0:
        return np.int64(ProtobufFault.NONE), seen_row[Seen.VALUE], seen_row[Seen.VALUE_END]
    if slots[slot, SlotCell.ABSENT] == Absent.DEFAULT:
        return np.int64(ProtobufFault.NONE), start, start
    result = np.int64(ProtobufFault.NONE)
    if column >= 0:
        result = builder.put_nulls(
            columns, plan.tables, slots[slot, SlotCell.NULL_COLUMNS], slots[slot, SlotCell.NULL_COLUMNS_END]
        )
    return result, np.int64(-1), np.int64(0)


@inlined
def _decode_message(data, start, end, entry, plan, columns, workspace):  # type: ignore[no-untyped-def]
    """Decode the message data[start:end] -> (result, position where it stopped).

    entry: row of the plan's messages.
    """
    seen, levels = workspace.seen, workspace.levels
    slots_per_level = len(seen) // LEVELS
    result, at, depth = np.int64(ProtobufFault.NONE), start, 0
    _begin_message(levels, 0, entry, start, end)
    while depth >= 0:
        level, base = levels[depth], depth * slots_per_level
        first = plan.messages[level[Level.MESSAGE], MessageCell.FIRST_SLOT]
        count = plan.messages[level[Level.MESSAGE], MessageCell.SLOT_COUNT]
        if level[Level.SLOT] < 0:
            result, at = scan_fields(
                data, level[Level.POSITION], level[Level.END], plan, first, count, seen, base, depth == 0
            )
            if result != ProtobufFault.NONE:
                break
            level[Level.SLOT] = 0
            column = plan.messages[level[Level.MESSAGE], MessageCell.COLUMN]
            if column >= 0 and not builder.put_struct(columns, column):
                return builder.full(column), at
        if level[Level.SLOT] >= count:
            depth -= 1
            continue
        slot, seen_row = first + level[Level.SLOT], seen[base + level[Level.SLOT]]
        if plan.slots[slot, SlotCell.KIND] != Kind.MESSAGE:
            result = _put_scalars(data, seen_row, level[Level.END], columns, plan, slot, workspace.name_buffer)
            if result != ProtobufFault.NONE:
                at = seen_row[Seen.VALUE]
                break
            level[Level.SLOT] += 1
            continue
        result, child, child_end = _put_submessage(data, level, seen_row, columns, plan, slot, start)
        if result != ProtobufFault.NONE:
            break
        if child >= 0:
            depth += 1
            if depth >= LEVELS:
                return np.int64(ProtobufFault.DEPTH), child
            _begin_message(levels, depth, plan.slots[slot, SlotCell.MESSAGE], child, child_end)
    return result, at


@kernel
def decode_protobuf(values, entries, first, plan, root, columns, marks, workspace, faults, full_column):  # type: ignore[no-untyped-def]
    """Decode values into columns, beginning with value `first`.

    values: Values. entries: int64[n], the row of the plan's messages for each value, or -1 for a value that
    faults.codes already marks as malformed. root: (start, end) in the plan's tables of the columns that get a null for
    a null or malformed value. columns: int64[m, len(Col)]. marks: int64[m, len(Mark)], working memory. workspace:
    Workspace. faults: DecodeFaults. full_column: int64[len(FullColumn)].

    Returns the number of values, or the index of the value for which `full_column` must grow before the next call.
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
            result, at = _decode_message(values.data, starts[i], ends[i], entries[i], plan, columns, workspace)
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
