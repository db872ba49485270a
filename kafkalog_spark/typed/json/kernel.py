"""The kernel that decodes JSON: values that are as JSON has them and as the schema has them, and no others.

Whatever else there is (another type than the schema's, a long number, an escape that is not in JSON, invalid UTF-8,
a duplicate field) makes the value DEFERRED: it is undone, and the fallback decides (fallback.py). So the kernel knows
nothing of from_json's errors, and what it decodes is what from_json gives for sure.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kafkalog_spark.kernels.primitives import HIGH_BITS, copy_bytes, helper, inlined, is_utf8, kernel, load_u8, load_u64
from kafkalog_spark.typed.json.program import HASH, LENGTH_BITS, UNESCAPED, NameEntry, Node, NodeKind
from kafkalog_spark.typed.json.scalar_kernel import MAX_STRING, NO_ROOM, SKIPPED, Used, take_scalar
from kafkalog_spark.typed.json.string_kernel import DEFERRED, Char, is_ascii, skip_space, string_end

ROOT = 0
DEPTH = 64
_MAX_NAME = 40_000
EXPECTED_NAMES = 32  # names of an object that are expected where they were in the last one
_LONGEST_EXPECTED = 15


class FrameKind(IntEnum):
    """Kind of an open frame: an object of the schema, one that is skipped, or an array. The objects come first."""

    STRUCT = 0
    MAP = 1
    SKIPPED_OBJECT = 2
    ARRAY = 3
    SKIPPED_ARRAY = 4


class Frame(IntEnum):
    """Columns of `frames`, int64[DEPTH, len(Frame)]: what is open around a value."""

    KIND = 0
    NODE = 1
    ROW = 2
    ELEMENTS_BEFORE = 3  # of its list level, when it began
    NAMES_SEEN = 4


class Expected(IntEnum):
    """Columns of `expected`, int64[nodes * EXPECTED_NAMES * EXPECTED_WIDTH]: the name that was there in the last object
    and the quote after it, as two words with masks; and what is known of its node."""

    WORD_1 = 0
    MASK_1 = 1
    WORD_2 = 2
    MASK_2 = 3
    LENGTH = 4  # 0: no name
    NODE = 5
    KIND = 6
    FIRST_CELL = 7


EXPECTED_WIDTH = len(Expected)


class Next(IntEnum):
    """Token that comes next in an object or array."""

    MEMBER_OR_END = 0
    MEMBER = 1
    COMMA_OR_END = 2
    NOTHING = 3  # the value is complete


class Workspace(NamedTuple):
    """Memory that the kernel works in, through all calls for a batch."""

    frames: np.ndarray
    rows_before: np.ndarray  # int64 by list level: rows before the value
    expected: np.ndarray


@inlined
def _expected_row(node, names_seen):  # type: ignore[no-untyped-def]
    """Where the row of an expected name begins: a uint64, which Numba takes as an index without a check of its sign."""
    return np.uint64((node * EXPECTED_NAMES + names_seen) * EXPECTED_WIDTH)


@inlined
def _is_expected(data, at, end, expected, name):  # type: ignore[no-untyped-def]
    """True if data[at:end] is the expected name, the quote after it, and more. name: where its row begins."""
    length = expected[name + Expected.LENGTH]
    if length == 0 or at + length + 1 >= end or at + _LONGEST_EXPECTED + 1 > len(data):
        return False
    differs = load_u64(data, at) ^ np.uint64(expected[name + Expected.WORD_1])
    if differs & np.uint64(expected[name + Expected.MASK_1]) != 0:
        return False
    if length < 8:
        return True
    differs = load_u64(data, at + 8) ^ np.uint64(expected[name + Expected.WORD_2])
    return differs & np.uint64(expected[name + Expected.MASK_2]) == 0


@helper
def _byte_mask(count):  # type: ignore[no-untyped-def]
    if count <= 0:
        return np.int64(0)
    return np.int64(-1) if count >= 8 else (np.int64(1) << (8 * count)) - 1


@helper
def _expect(data, at, length, node, nodes, expected, name):  # type: ignore[no-untyped-def]
    """Expect this name next time, if it is short enough, and ASCII, so that nothing of it is checked again."""
    expected[name + Expected.LENGTH] = 0
    if length == 0 or length > _LONGEST_EXPECTED or at + _LONGEST_EXPECTED + 1 > len(data):
        return
    first, second = load_u64(data, at), load_u64(data, at + 8)
    mask_1, mask_2 = _byte_mask(length + 1), _byte_mask(length - 7)
    if (first & np.uint64(mask_1) & HIGH_BITS) != 0 or (second & np.uint64(mask_2) & HIGH_BITS) != 0:
        return
    expected[name + Expected.WORD_1], expected[name + Expected.MASK_1] = np.int64(first), mask_1
    expected[name + Expected.WORD_2], expected[name + Expected.MASK_2] = np.int64(second), mask_2
    expected[name + Expected.LENGTH], expected[name + Expected.NODE] = length, node
    expected[name + Expected.KIND] = nodes[node, Node.KIND]
    expected[name + Expected.FIRST_CELL] = nodes[node, Node.FIRST_CELL]


@helper
def _field_of(data, at, length, end, struct, tables):  # type: ignore[no-untyped-def]
    """The node of the field data[at:at + length] of a struct's node; SKIPPED for a name that the struct has not."""
    first, bits = tables.nodes[struct, Node.NAMES], tables.nodes[struct, Node.BITS]
    word = np.uint64(0)
    if at + 8 <= end:
        word = load_u64(data, at)
        if length < 8:
            word &= (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
    else:
        for i in range(min(length, 8)):
            word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    entry = np.int64(((word ^ (np.uint64(length) << np.uint64(56))) * HASH) >> np.uint64(64 - bits))
    while True:
        field = tables.fields[first + entry]
        node = field[NameEntry.NODE]
        if node == SKIPPED:
            return node
        if field[NameEntry.LENGTH] == length and np.uint64(field[NameEntry.WORD]) == word:
            same = np.int64(8)
            while same < length and tables.names[field[NameEntry.AT] + same] == data[at + same]:
                same += 1
            if same >= length:
                return node
        entry = (entry + 1) & ((np.int64(1) << bits) - 1)


@inlined
def _after_space(data, at, end):  # type: ignore[no-untyped-def]
    return at + 1 if at < end and load_u8(data, at) == Char.SPACE else at


@inlined
def _decode_expected_layout(data, at, end, row, nodes, columns, expected):  # type: ignore[no-untyped-def]
    """Members of the root as long as their names are those of the last object, with one space or none around them, and
    their values scalars -> (the position at which it ended, DEFERRED or NO_ROOM; how many names there were; Next)."""
    seen, todo = np.int64(0), np.int64(Next.MEMBER_OR_END)
    while seen < EXPECTED_NAMES and at < end and load_u8(data, at) == Char.QUOTE:
        name = _expected_row(np.int64(ROOT), seen)
        if not _is_expected(data, at + 1, end, expected, name):
            break
        colon = at + 2 + expected[name + Expected.LENGTH]
        value = _after_space(data, colon + 1, end)
        if value >= end or load_u8(data, colon) != Char.COLON:
            break
        node, kind = expected[name + Expected.NODE], expected[name + Expected.KIND]
        cell = np.uint64(expected[name + Expected.FIRST_CELL] + row)
        if node != SKIPPED and columns.valid[cell] != 0:
            return DEFERRED, seen, todo  # a duplicate field
        byte = load_u8(data, value)
        if byte == Char.OPEN_BRACE or byte == Char.OPEN_BRACKET:
            break
        value = take_scalar(data, value, end, node, kind, row, cell, nodes, columns)
        if value < 0 or value >= end:
            return min(value, DEFERRED), seen, todo
        seen += 1
        byte = load_u8(data, value)
        if byte == Char.CLOSE_BRACE:
            return value + 1, seen, np.int64(Next.NOTHING)
        if byte != Char.COMMA:
            return value, seen, np.int64(Next.COMMA_OR_END)
        at, todo = _after_space(data, value + 1, end), np.int64(Next.MEMBER)
    return at, seen, todo


@inlined
def _next_row(node, nodes, columns):  # type: ignore[no-untyped-def]
    """A new row of the list level that a node is of, or NO_ROOM."""
    level = nodes[node, Node.LIST_LEVEL]
    row = columns.counts[level]
    if row >= columns.capacity[level]:
        columns.used[Used.FULL_LEVEL] = level
        return NO_ROOM
    columns.counts[level] = row + 1
    return row


@inlined
def _struct_field(data, at, end, frame, tables, expected):  # type: ignore[no-untyped-def]
    """A name in a struct, from after its quote -> (position of the closing quote or DEFERRED, its node or SKIPPED)."""
    struct, seen = frame[Frame.NODE], frame[Frame.NAMES_SEEN]
    frame[Frame.NAMES_SEEN] = seen + 1
    name = _expected_row(struct, seen)
    if seen < EXPECTED_NAMES and _is_expected(data, at, end, expected, name):
        return at + expected[name + Expected.LENGTH], expected[name + Expected.NODE]
    close, escapes = string_end(data, at, end)
    if close < 0 or escapes or close - at > _MAX_NAME:
        return DEFERRED, np.int64(SKIPPED)
    node = _field_of(data, at, close - at, end, struct, tables)
    if seen < EXPECTED_NAMES:
        _expect(data, at, close - at, node, tables.nodes, expected, name)
    return close, node


@inlined
def _map_key(data, at, end, frame, nodes, columns):  # type: ignore[no-untyped-def]
    """A key of a map, from after its quote -> (closing quote, DEFERRED or NO_ROOM; node of the value; its row)."""
    node = nodes[frame[Frame.NODE], Node.CHILD]
    close, escapes = string_end(data, at, end)
    if close < 0 or escapes or close - at > _MAX_NAME:
        return DEFERRED, node, np.int64(0)
    row = _next_row(node, nodes, columns)
    if row < 0:
        return NO_ROOM, node, row
    key = nodes[nodes[frame[Frame.NODE], Node.KEY], Node.FIRST_CELL] + row
    columns.cells[key] = (at << LENGTH_BITS) | (close - at)
    columns.valid[key] = 1
    return close, node, row


@inlined
def _name(data, at, end, frame, tables, columns, expected):  # type: ignore[no-untyped-def]
    """A name and its colon -> (position of the value, DEFERRED or NO_ROOM; the node of the value; its row)."""
    node, row = np.int64(SKIPPED), frame[Frame.ROW]
    if load_u8(data, at) != Char.QUOTE:
        return DEFERRED, node, row
    at += 1
    if frame[Frame.KIND] == FrameKind.STRUCT:
        close, node = _struct_field(data, at, end, frame, tables, expected)
    elif frame[Frame.KIND] == FrameKind.MAP:
        close, node, row = _map_key(data, at, end, frame, tables.nodes, columns)
    else:
        close, _ = string_end(data, at, end)
        if close - at > _MAX_NAME:
            close = DEFERRED
    if close < 0:
        return close, node, row
    at = skip_space(data, close + 1, end)
    if at >= end or load_u8(data, at) != Char.COLON:
        return DEFERRED, node, row
    at = skip_space(data, at + 1, end)
    return (at if at < end else DEFERRED), node, row


@inlined
def _open(frame, byte, node, row, cell, nodes, columns):  # type: ignore[no-untyped-def]
    """Begin an object or array, whose first character is `byte`; returns whether the node is of that type."""
    kind = nodes[node, Node.KIND]
    if node == SKIPPED:
        frame[Frame.KIND] = FrameKind.SKIPPED_OBJECT if byte == Char.OPEN_BRACE else FrameKind.SKIPPED_ARRAY
        return True
    if byte == Char.OPEN_BRACKET:
        if kind != NodeKind.ARRAY:
            return False
        frame[Frame.KIND] = FrameKind.ARRAY
    elif kind == NodeKind.STRUCT:
        frame[Frame.KIND] = FrameKind.STRUCT
    elif kind == NodeKind.MAP:
        frame[Frame.KIND] = FrameKind.MAP
    else:
        return False
    frame[Frame.NODE], frame[Frame.ROW], frame[Frame.NAMES_SEEN] = node, row, 0
    if kind != NodeKind.STRUCT:
        frame[Frame.ELEMENTS_BEFORE] = columns.counts[nodes[nodes[node, Node.CHILD], Node.LIST_LEVEL]]
    columns.valid[cell] = 1
    return True


@inlined
def _close(frame, nodes, columns):  # type: ignore[no-untyped-def]
    """End an object or array: of a list, note how many elements it has."""
    if frame[Frame.KIND] == FrameKind.ARRAY or frame[Frame.KIND] == FrameKind.MAP:
        node = frame[Frame.NODE]
        elements = columns.counts[nodes[nodes[node, Node.CHILD], Node.LIST_LEVEL]]
        cell = nodes[node, Node.FIRST_CELL] + frame[Frame.ROW]
        columns.cells[cell] = elements - frame[Frame.ELEMENTS_BEFORE]


@helper
def _decode_general(data, at, end, row, seen, todo, tables, columns, work):  # type: ignore[no-untyped-def]
    """The rest of the root -> position after it, DEFERRED or NO_ROOM. seen: names of it so far; todo: what is Next."""
    nodes, frames = tables.nodes, work.frames
    depth = 0
    frame = frames[depth]
    frame[Frame.KIND], frame[Frame.NODE], frame[Frame.ROW] = FrameKind.STRUCT, ROOT, row
    frame[Frame.NAMES_SEEN] = seen
    while True:
        at = skip_space(data, at, end)
        if at >= end:
            return DEFERRED
        byte = load_u8(data, at)
        frame = frames[depth]
        in_object = frame[Frame.KIND] <= FrameKind.SKIPPED_OBJECT
        if todo != Next.MEMBER and byte == (Char.CLOSE_BRACE if in_object else Char.CLOSE_BRACKET):
            _close(frame, nodes, columns)
            at += 1
            depth -= 1
            if depth < 0:
                return at
            todo = np.int64(Next.COMMA_OR_END)
            continue
        if todo == Next.COMMA_OR_END:
            if byte != Char.COMMA:
                return DEFERRED
            at += 1
            todo = np.int64(Next.MEMBER)
            continue
        node, row = np.int64(SKIPPED), np.int64(0)
        if in_object:
            at, node, row = _name(data, at, end, frame, tables, columns, work.expected)
            if at < 0:
                return at
            byte = load_u8(data, at)
        elif frame[Frame.KIND] == FrameKind.ARRAY:
            node = nodes[frame[Frame.NODE], Node.CHILD]
            row = _next_row(node, nodes, columns)
            if row < 0:
                return NO_ROOM
        cell = np.uint64(nodes[node, Node.FIRST_CELL] + row)
        if node != SKIPPED and columns.valid[cell] != 0:
            return DEFERRED  # a duplicate field
        if byte == Char.OPEN_BRACE or byte == Char.OPEN_BRACKET:
            depth += 1
            if depth >= DEPTH or not _open(frames[depth], byte, node, row, cell, nodes, columns):
                return DEFERRED
            at += 1
            todo = np.int64(Next.MEMBER_OR_END)
            continue
        at = take_scalar(data, at, end, node, nodes[node, Node.KIND], row, cell, nodes, columns)
        if at < 0:
            return at
        todo = np.int64(Next.COMMA_OR_END)


@inlined
def _undo(nodes, columns, rows_before):  # type: ignore[no-untyped-def]
    """Drop what was decoded of a value."""
    counts = columns.counts
    for n in range(len(nodes)):
        if nodes[n, Node.KIND] == NodeKind.ENTRIES:
            continue
        level, first = nodes[n, Node.LIST_LEVEL], nodes[n, Node.FIRST_CELL]
        for i in range(rows_before[level], counts[level]):
            columns.valid[first + i], columns.cells[first + i] = 0, 0
    for level in range(len(counts)):
        counts[level] = rows_before[level]


@kernel
def decode_json(values, first, tables, columns, work, deferred):  # type: ignore[no-untyped-def]
    """Decode the values (buffer_pool.Values) from number `first` on; returns the one at which it stopped for want of
    room (see Used.FULL_LEVEL), or their count.

    tables: JsonTables. columns: JsonCells. work: Workspace. deferred: uint8[n], 1 for each value that the fallback has
    to decode; such a value is null in the columns.

    Fast path: the same field order as in the object before, and scalars. Anything else goes to the general decoder,
    which is a call, so that the fast path keeps a processor's registers to itself.
    """
    data, starts, ends, counts, used = values.data, values.starts, values.ends, columns.counts, columns.used
    nodes = tables.nodes
    for row in range(first, len(starts)):
        if ends[row] < 0:
            continue
        unescaped, numbers = used[Used.UNESCAPED], used[Used.NUMBERS]
        counts[ROOT] = row
        for level in range(len(counts)):
            work.rows_before[level] = counts[level]
        counts[ROOT] = row + 1
        end, at = ends[row], skip_space(data, starts[row], ends[row])
        if at < end and load_u8(data, at) == Char.OPEN_BRACE:
            columns.valid[np.uint64(nodes[ROOT, Node.FIRST_CELL] + row)] = 1
            at, seen, todo = _decode_expected_layout(data, at + 1, end, row, nodes, columns, work.expected)
            if at >= 0 and todo != Next.NOTHING:
                at = _decode_general(data, at, end, row, seen, todo, tables, columns, work)
            if at >= 0 and not is_ascii(data, starts[row], at) and not is_utf8(data, starts[row], at):
                at = DEFERRED
        else:
            at = DEFERRED
        if at < 0:
            _undo(nodes, columns, work.rows_before)
            used[Used.UNESCAPED], used[Used.NUMBERS] = unescaped, numbers
            if at == NO_ROOM:
                return row
            deferred[row] = 1
    return len(starts)


@kernel
def gather_strings(data, unescaped, cells, valid, offsets, out):  # type: ignore[no-untyped-def]
    """Copy the strings of a node's cells to `out`; offsets: int32, of one more than there are cells, where they go."""
    for i in range(len(cells)):
        if valid[i] == 0:
            continue
        cell = cells[i]
        length = cell & MAX_STRING
        if cell & UNESCAPED != 0:
            copy_bytes(out, offsets[i], unescaped, (cell ^ UNESCAPED) >> LENGTH_BITS, length)
        else:
            copy_bytes(out, offsets[i], data, cell >> LENGTH_BITS, length)
