"""Scan of a Protobuf message: where each of its fields is."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog_spark.kernels.primitives import helper, is_utf8
from kafkalog_spark.typed.protobuf.plan import Kind, ProtobufFault, Slot
from kafkalog_spark.typed.protobuf.wire import pass_over, uvarint


class Seen(IntEnum):
    """Columns of `seen`, int64[n, len(Seen)]: the occurrences of a slot's field in the message."""

    COUNT = 0
    FIRST = 1  # position of the first one's tag
    AT = 2  # begin of the last one's value
    END = 3


@helper
def wire_of(kind):  # type: ignore[no-untyped-def]
    """The wire type of a field that is not packed."""
    if kind <= Kind.ENUM_NAME:
        return 0
    if kind <= Kind.FLOAT:
        return 5
    return 1 if kind <= Kind.DOUBLE else 2


@helper
def symbol_of(plan, s, number):  # type: ignore[no-untyped-def]
    """Where in the tables the enum of slot s has that number; -1: nowhere."""
    slots, tables = plan.slots, plan.tables
    low, high = np.int64(0), slots[s, Slot.SYMBOLS]
    start = slots[s, Slot.ENUM]
    while low < high:
        middle = (low + high) // 2
        if tables[start + 3 * middle] < number:
            low = middle + 1
        else:
            high = middle
    if low < slots[s, Slot.SYMBOLS] and tables[start + 3 * low] == number:
        return start + 3 * low
    return np.int64(-1)


@helper
def slot_of(slots, start, count, number, likely):  # type: ignore[no-untyped-def]
    """The slot of a field's number among those of a message, or -1. likely: where it is when fields are in order."""
    if likely < start + count and slots[likely, Slot.NUMBER] == number:
        return likely
    low, high = start, start + count
    while low < high:
        middle = (low + high) // 2
        if slots[middle, Slot.NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < start + count and slots[low, Slot.NUMBER] == number else np.int64(-1)


@helper
def look(data, at, end, plan, start, count, seen, base, root):  # type: ignore[no-untyped-def]
    """Find the fields of the message data[at:end] -> (0 or a fault, position).

    seen int64[:, len(Seen)] from `base` on, a row for each of the `count` slots from `start` on. root: a field with a
    wire type that is not its own makes the value bad, as in Spark; elsewhere it is an unknown field.
    """
    slots, tables = plan.slots, plan.tables
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
        s = slot_of(slots, start, count, number, likely)
        if s < 0:
            after = pass_over(data, at, end, wire, number)
            if after < 0:
                return -after, begin
            at = after
            continue
        kind = slots[s, Slot.KIND]
        likely = s if slots[s, Slot.REPEATED] else s + 1
        own = wire_of(kind)
        packed = wire == 2 and own != 2 and slots[s, Slot.REPEATED] == 1
        if wire != own and not packed:
            if root:
                return np.int64(ProtobufFault.MISMATCH), begin
            after = pass_over(data, at, end, wire, number)
            if after < 0:
                return -after, begin
            at = after
            continue
        value = at
        after = pass_over(data, at, end, wire, number)
        if after < 0:
            return -after, begin
        if wire == 2:
            _, value = uvarint(data, at, end)
        at = after
        occurrences = np.int64(1)
        if packed:
            fault, occurrences = _look_into_packed(data, value, at, plan, s, kind)
            if fault != 0:
                return fault, begin
            if root and occurrences < 0:
                return np.int64(ProtobufFault.MISMATCH), begin
            if occurrences < 0:
                occurrences = -1 - occurrences
        elif kind == Kind.STRING:
            if slots[s, Slot.CHECKED] and not is_utf8(data, value, at):
                return np.int64(ProtobufFault.UTF8), begin
        elif (kind in (Kind.ENUM_NAME, Kind.ENUM_INT)) and slots[s, Slot.CHECKED]:
            number, _ = uvarint(data, value, at)
            if symbol_of(plan, s, np.int64(np.int32(number))) < 0:
                if root:
                    return np.int64(ProtobufFault.MISMATCH), begin
                continue
        row = base + s - start
        if (kind in (Kind.MESSAGE, Kind.TIMESTAMP)) and slots[s, Slot.REPEATED] == 0 and seen[row, Seen.COUNT] > 0:
            return np.int64(ProtobufFault.JOIN), begin
        if slots[s, Slot.ONEOF] >= 0:
            others = slots[s, Slot.ONEOF]
            for i in range(tables[others]):
                other = base + tables[others + 1 + i]
                if other != row:
                    cleared = slots[s - row + other, Slot.KIND]
                    if seen[other, Seen.COUNT] > 0 and (cleared in (Kind.MESSAGE, Kind.TIMESTAMP)):
                        return np.int64(ProtobufFault.JOIN), begin  # it does not count, and must be whole all the same
                    seen[other, Seen.COUNT] = 0
        if seen[row, Seen.COUNT] == 0:
            seen[row, Seen.FIRST] = begin
        seen[row, Seen.COUNT] += occurrences
        seen[row, Seen.AT] = value
        seen[row, Seen.END] = at
    for i in range(count):
        if slots[start + i, Slot.REQUIRED] and seen[base + i, Seen.COUNT] == 0:
            return np.int64(ProtobufFault.REQUIRED), at
    return np.int64(ProtobufFault.NONE), at


@helper
def _look_into_packed(data, at, end, plan, s, kind):  # type: ignore[no-untyped-def]
    """(0 or a fault, how many elements a packed field has; -1 minus that when there is one more that its closed enum
    lacks)"""
    if kind > Kind.ENUM_NAME:
        size = 8 if kind > Kind.FLOAT else 4
        if (end - at) % size:
            return np.int64(ProtobufFault.TRUNCATED), np.int64(0)
        return 0, (end - at) // size
    elements, lost = np.int64(0), False
    closed = kind in (Kind.ENUM_NAME, Kind.ENUM_INT) and plan.slots[s, Slot.CHECKED] == 1
    while at < end:
        number, at = uvarint(data, at, end)
        if at > end:
            return np.int64(ProtobufFault.TRUNCATED), np.int64(0)
        if closed and symbol_of(plan, s, np.int64(np.int32(number))) < 0:
            lost = True
        else:
            elements += 1
    return 0, (-1 - elements if lost else elements)
