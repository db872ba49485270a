"""Scans a Protobuf message in compiled code: validates it, and finds the position of each of its fields.

The functions share these arguments: `data` uint8[:] with the message in data[at:end], `plan` PlanArrays, `slot` a row
of the plan's slots.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog_spark.kernels.primitives import helper, is_utf8
from kafkalog_spark.typed.protobuf.field_types import WireType
from kafkalog_spark.typed.protobuf.plan import Kind, ProtobufFault, SlotCell
from kafkalog_spark.typed.protobuf.wire import skip_value, uvarint


class Seen(IntEnum):
    """Columns of `seen`, int64[n, len(Seen)]: the occurrences of a slot's field in the current message."""

    COUNT = 0  # number of values
    FIRST_TAG = 1  # position of the first occurrence's tag
    VALUE = 2  # beginning of the last occurrence's value, after its length
    VALUE_END = 3


@helper
def wire_of(kind):  # type: ignore[no-untyped-def]
    """Return the wire type of values of a kind that are not packed."""
    if kind <= Kind.ENUM_NAME:
        return WireType.VARINT
    if kind <= Kind.FLOAT:
        return WireType.I32
    return WireType.I64 if kind <= Kind.DOUBLE else WireType.LEN


@helper
def symbol_of(plan, slot, number):  # type: ignore[no-untyped-def]
    """Return the index in plan.tables of the symbol with a number in the slot's enum, or -1 if it has none."""
    slots, tables = plan.slots, plan.tables
    low, high = np.int64(0), slots[slot, SlotCell.SYMBOL_COUNT]
    start = slots[slot, SlotCell.SYMBOL_TABLE]
    while low < high:
        middle = (low + high) // 2
        if tables[start + 3 * middle] < number:
            low = middle + 1
        else:
            high = middle
    if low < slots[slot, SlotCell.SYMBOL_COUNT] and tables[start + 3 * low] == number:
        return start + 3 * low
    return np.int64(-1)


@helper
def slot_of(slots, start, count, number, likely):  # type: ignore[no-untyped-def]
    """Return which of slots[start:start + count], int64[n, len(SlotCell)], has a field number, or -1 if none does.

    likely: slot to try first.
    """
    if likely < start + count and slots[likely, SlotCell.NUMBER] == number:
        return likely
    low, high = start, start + count
    while low < high:
        middle = (low + high) // 2
        if slots[middle, SlotCell.NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < start + count and slots[low, SlotCell.NUMBER] == number else np.int64(-1)


@helper
def scan_fields(data, at, end, plan, start, count, seen, base, root):  # type: ignore[no-untyped-def]
    """Find the fields of a message -> (0 or a fault, position).

    start, count: the slots of the message. seen: int64[:, len(Seen)]; row base + i gets the occurrences of slot
    start + i. root: whether this is the whole value. There a field with a wrong wire type is a fault, as in Spark;
    in other messages it is an unknown field.
    """
    slots = plan.slots
    for i in range(base, base + count):
        seen[i, Seen.COUNT] = 0
    likely = start
    while at < end:
        begin = at
        tag, at = uvarint(data, at, end)
        if at > end:
            return np.int64(ProtobufFault.TRUNCATED), begin
        tag &= 0xFFFFFFFF
        wire, number = tag & 7, tag >> 3
        if number == 0:
            return np.int64(ProtobufFault.TAG), begin
        slot = slot_of(slots, start, count, number, likely)
        value = at
        after = skip_value(data, at, end, wire, number)
        if slot < 0:
            if after < 0:
                return -after, begin
            at = after
            continue
        kind = slots[slot, SlotCell.KIND]
        likely = slot if slots[slot, SlotCell.IS_REPEATED] else slot + 1
        expected_wire = wire_of(kind)
        packed = wire == WireType.LEN and expected_wire != WireType.LEN and slots[slot, SlotCell.IS_REPEATED] == 1
        if wire != expected_wire and not packed:
            if root:
                return np.int64(ProtobufFault.MISMATCH), begin
            if after < 0:
                return -after, begin
            at = after
            continue
        if after < 0:
            return -after, begin
        if wire == WireType.LEN:
            _, value = uvarint(data, value, end)
        at = after
        occurrences = np.int64(1)
        if packed:
            fault, occurrences, has_unknown = _count_packed(data, value, at, plan, slot, kind)
            if fault != ProtobufFault.NONE:
                return fault, begin
            if root and has_unknown:
                return np.int64(ProtobufFault.MISMATCH), begin
        elif kind == Kind.STRING:
            if slots[slot, SlotCell.MUST_BE_UTF8] and not is_utf8(data, value, at):
                return np.int64(ProtobufFault.UTF8), begin
        elif (kind in (Kind.ENUM_NAME, Kind.ENUM_INT)) and slots[slot, SlotCell.IS_CLOSED]:
            symbol, _ = uvarint(data, value, at)
            if symbol_of(plan, slot, np.int64(np.int32(symbol))) < 0:
                if root:
                    return np.int64(ProtobufFault.MISMATCH), begin
                continue
        row = base + slot - start
        if (
            (kind in (Kind.MESSAGE, Kind.TIMESTAMP))
            and slots[slot, SlotCell.IS_REPEATED] == 0
            and seen[row, Seen.COUNT] > 0
        ):
            return np.int64(ProtobufFault.NEEDS_MERGE), begin
        if slots[slot, SlotCell.ONEOF] >= 0 and not _clear_oneof(plan, slot, start, base, seen):
            return np.int64(ProtobufFault.NEEDS_MERGE), begin
        if seen[row, Seen.COUNT] == 0:
            seen[row, Seen.FIRST_TAG] = begin
        seen[row, Seen.COUNT] += occurrences
        seen[row, Seen.VALUE] = value
        seen[row, Seen.VALUE_END] = at
    for i in range(count):
        if slots[start + i, SlotCell.IS_REQUIRED] and seen[base + i, Seen.COUNT] == 0:
            return np.int64(ProtobufFault.REQUIRED), at
    return np.int64(ProtobufFault.NONE), at


@helper
def _count_packed(data, at, end, plan, slot, kind):  # type: ignore[no-untyped-def]
    """Count the elements of a packed field -> (0 or a fault, number of elements, whether unknown numbers were ignored).

    Unknown numbers of a closed enum are not counted.
    """
    if kind > Kind.ENUM_NAME:
        size = 8 if kind > Kind.FLOAT else 4
        if (end - at) % size:
            return np.int64(ProtobufFault.TRUNCATED), np.int64(0), False
        return np.int64(ProtobufFault.NONE), (end - at) // size, False
    elements, has_unknown = np.int64(0), False
    closed = kind in (Kind.ENUM_NAME, Kind.ENUM_INT) and plan.slots[slot, SlotCell.IS_CLOSED] == 1
    while at < end:
        number, at = uvarint(data, at, end)
        if at > end:
            return np.int64(ProtobufFault.TRUNCATED), np.int64(0), False
        if closed and symbol_of(plan, slot, np.int64(np.int32(number))) < 0:
            has_unknown = True
        else:
            elements += 1
    return np.int64(ProtobufFault.NONE), elements, has_unknown


@helper
def _clear_oneof(plan, slot, start, base, seen):  # type: ignore[no-untyped-def]
    """Remove the occurrences of the other members of a slot's oneof.

    Returns False if one of them is a message: it must be validated although it is overridden, which merging does.
    start, base, seen: as in `scan_fields`.
    """
    slots, tables = plan.slots, plan.tables
    oneof = slots[slot, SlotCell.ONEOF]
    for i in range(tables[oneof]):
        member = tables[oneof + 1 + i]
        if start + member == slot:
            continue
        kind = slots[start + member, SlotCell.KIND]
        if seen[base + member, Seen.COUNT] > 0 and (kind in (Kind.MESSAGE, Kind.TIMESTAMP)):
            return False
        seen[base + member, Seen.COUNT] = 0
    return True
