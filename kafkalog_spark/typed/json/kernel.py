"""The kernel that decodes JSON values that are valid and match the schema.

Any other value is DEFERRED, such as one with a type that differs from the schema, a long number, an invalid escape,
invalid UTF-8 or a duplicate field. The kernel undoes its row, and the fallback decodes it (fallback.py). So the kernel
needs no rules for from_json's errors, and its results are always equal to those of from_json.

`decode_json` is the entry. It has two paths for a value. The fast path (`_decode_remembered_layout`) decodes members
of the root while each is a scalar and has the same name as the member in the same place of the previous object.
`_decode_rest` decodes all other members. It is not inlined, so that its variables do not take registers from the fast
path.

The functions share these arguments: `data` uint8[:] with the JSON text, `at` and `end` positions in it, `nodes`
int64[n, len(Node)], `tables` JsonTables, `columns` JsonCells, `remembered` int64[:] (see `RememberedName`),
`remembered_at` the start of a name's row in it, and `frame`, a row of Workspace.frames. A negative result instead of a
position is DEFERRED (the fallback must decode the value) or NO_ROOM (a list level or columns.numbers is full).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kafkalog_spark.kernels.primitives import HIGH_BITS, copy_bytes, helper, inlined, is_utf8, kernel, load_u8, load_u64
from kafkalog_spark.typed.json.program import HASH, LENGTH_BITS, UNESCAPED, NameEntry, Node, NodeKind
from kafkalog_spark.typed.json.scalar_kernel import MAX_STRING, NO_ROOM, SKIPPED, Used, store_scalar
from kafkalog_spark.typed.json.string_kernel import DEFERRED, Char, is_ascii, skip_space, string_end

ROOT = 0  # node of the whole value; also its list level
MAX_DEPTH = 64  # nested objects and arrays; a deeper value is DEFERRED
_MAX_NAME = 40_000  # bytes of a name; a value with a longer one is DEFERRED (Jackson's limit is 50,000 characters)
REMEMBERED_NAMES = 32  # names that are remembered for each struct: those of its first members
_MAX_REMEMBERED_BYTES = 15  # bytes of a remembered name, which fills two words with the quote after it


class FrameKind(IntEnum):
    """Kind of an open object or array. The objects come first."""

    STRUCT = 0
    MAP = 1
    SKIPPED_OBJECT = 2
    ARRAY = 3
    SKIPPED_ARRAY = 4


class Frame(IntEnum):
    """Columns of `frames`, int64[MAX_DEPTH, len(Frame)]: the stack of open objects and arrays."""

    KIND = 0  # FrameKind
    NODE = 1
    ROW = 2
    FIRST_ELEMENT = 3  # row of the first element of an array or map in its list level
    MEMBERS_SEEN = 4  # members of a struct so far


class RememberedName(IntEnum):
    """Columns of `remembered`, a flat int64[nodes * REMEMBERED_NAMES * REMEMBERED_WIDTH].

    Each REMEMBERED_WIDTH words are the row of a struct and an index of a member. The row contains the name that this
    member had in the previous object and the quote after it, as two words with masks, and properties of the member's
    node.
    """

    WORD_1 = 0
    MASK_1 = 1
    WORD_2 = 2
    MASK_2 = 3
    LENGTH = 4  # bytes of the name; 0 if none is remembered
    NODE = 5
    KIND = 6
    FIRST_CELL = 7


REMEMBERED_WIDTH = len(RememberedName)


class Expected(IntEnum):
    """Tokens that may follow in an object or array."""

    MEMBER_OR_END = 0
    MEMBER = 1
    COMMA_OR_END = 2
    NOTHING = 3  # the value is complete


class Workspace(NamedTuple):
    """Working memory of the kernel for one batch, which all calls for the batch share."""

    frames: np.ndarray  # int64[MAX_DEPTH, len(Frame)]
    rows_before: np.ndarray  # int64[list levels], rows before the current value
    remembered: np.ndarray  # see RememberedName


@inlined
def _remembered_row(node, members_seen):  # type: ignore[no-untyped-def]
    """Return the start of the row of `remembered` for member number `members_seen` of a struct.

    It is a uint64, because Numba checks the sign of other indexes.
    """
    return np.uint64((node * REMEMBERED_NAMES + members_seen) * REMEMBERED_WIDTH)


@inlined
def _is_remembered(data, at, end, remembered, remembered_at):  # type: ignore[no-untyped-def]
    """Return True if data[at:end] begins with the remembered name and its closing quote."""
    length = remembered[remembered_at + RememberedName.LENGTH]
    if length == 0 or at + length + 1 >= end or at + _MAX_REMEMBERED_BYTES + 1 > len(data):
        return False
    differs = load_u64(data, at) ^ np.uint64(remembered[remembered_at + RememberedName.WORD_1])
    if differs & np.uint64(remembered[remembered_at + RememberedName.MASK_1]) != 0:
        return False
    if length < 8:
        return True
    differs = load_u64(data, at + 8) ^ np.uint64(remembered[remembered_at + RememberedName.WORD_2])
    return differs & np.uint64(remembered[remembered_at + RememberedName.MASK_2]) == 0


@helper
def _byte_mask(count):  # type: ignore[no-untyped-def]
    """Return the mask of the first `count` bytes of a word."""
    if count <= 0:
        return np.int64(0)
    return np.int64(-1) if count >= 8 else (np.int64(1) << (8 * count)) - 1


@helper
def _remember_name(data, at, length, node, nodes, remembered, remembered_at):  # type: ignore[no-untyped-def]
    """Remember the name data[at:at + length] and its node, if it is short and ASCII.

    Only such names are remembered, so a match needs no check of escapes or UTF-8.
    """
    remembered[remembered_at + RememberedName.LENGTH] = 0
    if length == 0 or length > _MAX_REMEMBERED_BYTES or at + _MAX_REMEMBERED_BYTES + 1 > len(data):
        return
    first, second = load_u64(data, at), load_u64(data, at + 8)
    mask_1, mask_2 = _byte_mask(length + 1), _byte_mask(length - 7)
    if (first & np.uint64(mask_1) & HIGH_BITS) != 0 or (second & np.uint64(mask_2) & HIGH_BITS) != 0:
        return
    remembered[remembered_at + RememberedName.WORD_1], remembered[remembered_at + RememberedName.MASK_1] = (
        np.int64(first),
        mask_1,
    )
    remembered[remembered_at + RememberedName.WORD_2], remembered[remembered_at + RememberedName.MASK_2] = (
        np.int64(second),
        mask_2,
    )
    remembered[remembered_at + RememberedName.LENGTH], remembered[remembered_at + RememberedName.NODE] = length, node
    remembered[remembered_at + RememberedName.KIND] = nodes[node, Node.KIND]
    remembered[remembered_at + RememberedName.FIRST_CELL] = nodes[node, Node.FIRST_CELL]


@helper
def _look_up_field(data, at, length, end, struct_node, tables):  # type: ignore[no-untyped-def]
    """Return the node of the field named data[at:at + length] of a struct; SKIPPED if there is no such field."""
    first, bits = tables.nodes[struct_node, Node.NAMES], tables.nodes[struct_node, Node.BITS]
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
            compared = np.int64(8)
            while compared < length and tables.names[field[NameEntry.AT] + compared] == data[at + compared]:
                compared += 1
            if compared >= length:
                return node
        entry = (entry + 1) & ((np.int64(1) << bits) - 1)


@inlined
def _skip_one_space(data, at, end):  # type: ignore[no-untyped-def]
    """Return the position after data[at] if it is a space, otherwise `at`."""
    return at + 1 if at < end and load_u8(data, at) == Char.SPACE else at


@inlined
def _decode_remembered_layout(data, at, end, row, nodes, columns, remembered):  # type: ignore[no-untyped-def]
    """Decode members of the root as long as they are scalars and have the remembered names.

    It stops at white space other than a single space after a colon or comma. row: row of the value.

    Returns (position where it stopped, DEFERRED or NO_ROOM; number of decoded members; Expected).
    """
    seen, next_token = np.int64(0), np.int64(Expected.MEMBER_OR_END)
    while seen < REMEMBERED_NAMES and at < end and load_u8(data, at) == Char.QUOTE:
        remembered_at = _remembered_row(np.int64(ROOT), seen)
        if not _is_remembered(data, at + 1, end, remembered, remembered_at):
            break
        colon = at + 2 + remembered[remembered_at + RememberedName.LENGTH]
        value = _skip_one_space(data, colon + 1, end)
        if value >= end or load_u8(data, colon) != Char.COLON:
            break
        node, kind = remembered[remembered_at + RememberedName.NODE], remembered[remembered_at + RememberedName.KIND]
        cell = np.uint64(remembered[remembered_at + RememberedName.FIRST_CELL] + row)
        if node != SKIPPED and columns.valid[cell] != 0:
            return DEFERRED, seen, next_token  # a duplicate field
        byte = load_u8(data, value)
        if byte == Char.OPEN_BRACE or byte == Char.OPEN_BRACKET:
            break
        value = store_scalar(data, value, end, node, kind, row, cell, nodes, columns)
        if value < 0 or value >= end:
            return min(value, DEFERRED), seen, next_token  # a position past the end becomes DEFERRED
        seen += 1
        byte = load_u8(data, value)
        if byte == Char.CLOSE_BRACE:
            return value + 1, seen, np.int64(Expected.NOTHING)
        if byte != Char.COMMA:
            return value, seen, np.int64(Expected.COMMA_OR_END)
        at, next_token = _skip_one_space(data, value + 1, end), np.int64(Expected.MEMBER)
    return at, seen, next_token


@inlined
def _next_row(node, nodes, columns):  # type: ignore[no-untyped-def]
    """Return a new row of the node's list level, or NO_ROOM."""
    level = nodes[node, Node.LIST_LEVEL]
    row = columns.counts[level]
    if row >= columns.capacity[level]:
        columns.used[Used.FULL_LEVEL] = level
        return NO_ROOM
    columns.counts[level] = row + 1
    return row


@inlined
def _read_field_name(data, at, end, frame, tables, remembered):  # type: ignore[no-untyped-def]
    """Read a name in a struct after its opening quote.

    Returns (position of the closing quote or DEFERRED, node of the field or SKIPPED).
    """
    struct_node, seen = frame[Frame.NODE], frame[Frame.MEMBERS_SEEN]
    frame[Frame.MEMBERS_SEEN] = seen + 1
    remembered_at = _remembered_row(struct_node, seen)
    if seen < REMEMBERED_NAMES and _is_remembered(data, at, end, remembered, remembered_at):
        return at + remembered[remembered_at + RememberedName.LENGTH], remembered[remembered_at + RememberedName.NODE]
    close, escapes = string_end(data, at, end)
    if close < 0 or escapes or close - at > _MAX_NAME:
        return DEFERRED, np.int64(SKIPPED)
    node = _look_up_field(data, at, close - at, end, struct_node, tables)
    if seen < REMEMBERED_NAMES:
        _remember_name(data, at, close - at, node, tables.nodes, remembered, remembered_at)
    return close, node


@inlined
def _store_map_key(data, at, end, frame, nodes, columns):  # type: ignore[no-untyped-def]
    """Store a key of a map after its opening quote.

    Returns (position of the closing quote, DEFERRED or NO_ROOM; node of the map's value; its row).
    """
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
def _read_name(data, at, end, frame, tables, columns, remembered):  # type: ignore[no-untyped-def]
    """Read a name and its colon.

    Returns (position of the value, DEFERRED or NO_ROOM; node of the value; its row).
    """
    node, row = np.int64(SKIPPED), frame[Frame.ROW]
    if load_u8(data, at) != Char.QUOTE:
        return DEFERRED, node, row
    at += 1
    if frame[Frame.KIND] == FrameKind.STRUCT:
        close, node = _read_field_name(data, at, end, frame, tables, remembered)
    elif frame[Frame.KIND] == FrameKind.MAP:
        close, node, row = _store_map_key(data, at, end, frame, tables.nodes, columns)
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
def _begin_container(frame, byte, node, row, cell, nodes, columns):  # type: ignore[no-untyped-def]
    """Begin the object or array whose first character is `byte`; return whether the node has a matching type."""
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
    frame[Frame.NODE], frame[Frame.ROW], frame[Frame.MEMBERS_SEEN] = node, row, 0
    if kind != NodeKind.STRUCT:
        frame[Frame.FIRST_ELEMENT] = columns.counts[nodes[nodes[node, Node.CHILD], Node.LIST_LEVEL]]
    columns.valid[cell] = 1
    return True


@inlined
def _end_container(frame, nodes, columns):  # type: ignore[no-untyped-def]
    """End an object or array. For an array or map, store the number of its elements."""
    if frame[Frame.KIND] == FrameKind.ARRAY or frame[Frame.KIND] == FrameKind.MAP:
        node = frame[Frame.NODE]
        elements = columns.counts[nodes[nodes[node, Node.CHILD], Node.LIST_LEVEL]]
        cell = nodes[node, Node.FIRST_CELL] + frame[Frame.ROW]
        columns.cells[cell] = elements - frame[Frame.FIRST_ELEMENT]


@helper
def _decode_rest(data, at, end, row, seen, next_token, tables, columns, workspace):  # type: ignore[no-untyped-def]
    """Decode the rest of the root; return the position after it, DEFERRED or NO_ROOM.

    row: row of the value. seen: members decoded so far. next_token: Expected.
    """
    nodes, frames = tables.nodes, workspace.frames
    depth = 0
    frame = frames[depth]
    frame[Frame.KIND], frame[Frame.NODE], frame[Frame.ROW] = FrameKind.STRUCT, ROOT, row
    frame[Frame.MEMBERS_SEEN] = seen
    while True:
        at = skip_space(data, at, end)
        if at >= end:
            return DEFERRED
        byte = load_u8(data, at)
        frame = frames[depth]
        in_object = frame[Frame.KIND] <= FrameKind.SKIPPED_OBJECT
        if next_token != Expected.MEMBER and byte == (Char.CLOSE_BRACE if in_object else Char.CLOSE_BRACKET):
            _end_container(frame, nodes, columns)
            at += 1
            depth -= 1
            if depth < 0:
                return at
            next_token = np.int64(Expected.COMMA_OR_END)
            continue
        if next_token == Expected.COMMA_OR_END:
            if byte != Char.COMMA:
                return DEFERRED
            at += 1
            next_token = np.int64(Expected.MEMBER)
            continue
        node, row = np.int64(SKIPPED), np.int64(0)
        if in_object:
            at, node, row = _read_name(data, at, end, frame, tables, columns, workspace.remembered)
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
            if depth >= MAX_DEPTH or not _begin_container(frames[depth], byte, node, row, cell, nodes, columns):
                return DEFERRED
            at += 1
            next_token = np.int64(Expected.MEMBER_OR_END)
            continue
        at = store_scalar(data, at, end, node, nodes[node, Node.KIND], row, cell, nodes, columns)
        if at < 0:
            return at
        next_token = np.int64(Expected.COMMA_OR_END)


@inlined
def _undo(nodes, columns, rows_before):  # type: ignore[no-untyped-def]
    """Remove the rows of the current value from all nodes. rows_before: see Workspace."""
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
def decode_json(values, first, tables, columns, workspace, deferred):  # type: ignore[no-untyped-def]
    """Decode values into columns, beginning with value `first`.

    values: Values. tables: JsonTables. columns: JsonCells. workspace: Workspace. deferred: uint8[n], set to 1 for each
    value that the fallback has to decode; its row is null in the columns.

    Returns the number of values, or the index of the value for which there was no room (see Used.FULL_LEVEL).
    """
    data, starts, ends, counts, used = values.data, values.starts, values.ends, columns.counts, columns.used
    nodes = tables.nodes
    for row in range(first, len(starts)):
        if ends[row] < 0:
            continue
        unescaped, numbers = used[Used.UNESCAPED], used[Used.NUMBERS]
        counts[ROOT] = row
        for level in range(len(counts)):
            workspace.rows_before[level] = counts[level]
        counts[ROOT] = row + 1
        end, at = ends[row], skip_space(data, starts[row], ends[row])
        if at < end and load_u8(data, at) == Char.OPEN_BRACE:
            columns.valid[np.uint64(nodes[ROOT, Node.FIRST_CELL] + row)] = 1
            at, seen, next_token = _decode_remembered_layout(
                data, at + 1, end, row, nodes, columns, workspace.remembered
            )
            if at >= 0 and next_token != Expected.NOTHING:
                at = _decode_rest(data, at, end, row, seen, next_token, tables, columns, workspace)
            if at >= 0 and not is_ascii(data, starts[row], at) and not is_utf8(data, starts[row], at):
                at = DEFERRED
        else:
            at = DEFERRED
        if at < 0:
            _undo(nodes, columns, workspace.rows_before)
            used[Used.UNESCAPED], used[Used.NUMBERS] = unescaped, numbers
            if at == NO_ROOM:
                return row
            deferred[row] = 1
    return len(starts)


@kernel
def gather_strings(data, unescaped, cells, valid, offsets, out):  # type: ignore[no-untyped-def]
    """Copy the strings of a node to `out`, uint8[:].

    data: uint8[:], the values. unescaped: uint8[:], contents of strings with escapes. cells: int64[n]. valid: uint8[n].
    offsets: int32[n + 1], positions of the strings in `out`.
    """
    for i in range(len(cells)):
        if valid[i] == 0:
            continue
        cell = cells[i]
        length = cell & MAX_STRING
        if cell & UNESCAPED != 0:
            copy_bytes(out, offsets[i], unescaped, (cell ^ UNESCAPED) >> LENGTH_BITS, length)
        else:
            copy_bytes(out, offsets[i], data, cell >> LENGTH_BITS, length)
