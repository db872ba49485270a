r"""Tables of a schema for the JSON kernel: a node for each column, and a hash table for the field names of each struct.

Nodes are numbered like the columns of the `ColumnTree`. The value of node n in row i is in cell
nodes[n, Node.FIRST_CELL] + i of the arrays `cells` (int64) and `valid` (uint8). Rows are counted per list level: level
0 has a row for each JSON value, and each array or map has a level of its own with a row for each element. The content
of a cell depends on the kind of the node:

| kind | cell |
|---|---|
| INTEGER, BOOLEAN, DATE, TIMESTAMP, LOCAL_TIMESTAMP | the number, in days or microseconds for dates and times |
| DOUBLE, FLOAT | the bits of a float64 |
| DECIMAL | the unscaled value |
| STRING | (position << LENGTH_BITS) + length, and possibly the flag UNESCAPED |
| ARRAY, MAP | number of elements |
"""

from __future__ import annotations

from datetime import UTC
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.columns.projection import ColumnTree, tree_of
from kafkalog_spark.typed.json.options import JsonOptions

HASH = np.uint64(0x9E3779B97F4A7C15)  # multiplier of the hash of a name
LENGTH_BITS = 24  # bits of the length in the cell of a string
UNESCAPED = 1 << 62
"""Flag in the cell of a string whose bytes are in the buffer of unescaped strings, not in the value."""


class NodeKind(IntEnum):
    """How the kernel decodes the values of a node."""

    DEFERRED = 0  # every value that is not null is left to the fallback
    INTEGER = 1
    BOOLEAN = 2
    DOUBLE = 3
    FLOAT = 4
    STRING = 5
    TIMESTAMP = 6
    LOCAL_TIMESTAMP = 7
    DATE = 8
    DECIMAL = 9
    STRUCT = 10
    ARRAY = 11
    MAP = 12
    ENTRIES = 13  # the entries of a map; the node has no cells


class Node(IntEnum):
    """Columns of `nodes`, int64[n, len(Node)]."""

    KIND = 0
    LIST_LEVEL = 1
    FIRST_CELL = 2
    LOW = 3  # INTEGER: minimum; DECIMAL: scale; TIMESTAMP: 1 if a text without a zone is not in UTC
    HIGH = 4  # INTEGER: maximum; DECIMAL: number of digits that fit
    NAMES = 5  # STRUCT: first row of its hash table
    BITS = 6  # STRUCT: binary logarithm of the size of its hash table
    CHILD = 7  # ARRAY: node of the elements; MAP: node of the values
    KEY = 8  # MAP: node of the keys


class NameEntry(IntEnum):
    """Columns of `fields`, int64[m, len(NameEntry)], the hash tables of field names."""

    NODE = 0  # 0 if the entry is empty
    AT = 1  # position of the name in `names`
    LENGTH = 2
    WORD = 3  # the first eight bytes as a little-endian number


class JsonTables(NamedTuple):
    """The tables of a schema for the kernel."""

    nodes: np.ndarray  # int64[n, len(Node)]
    fields: np.ndarray  # int64[m, len(NameEntry)]
    names: np.ndarray  # uint8[:], the bytes of all field names


_KERNEL_RANGES = {
    pa.int8(): (-128, 127),
    pa.int16(): (-(1 << 15), (1 << 15) - 1),
    pa.int32(): (-(1 << 31), (1 << 31) - 1),
    pa.int64(): (-(10**18) + 1, 10**18 - 1),
}
"""Minimum and maximum of the integers that the kernel decodes; the fallback decodes others."""
_KINDS = dict.fromkeys(_KERNEL_RANGES, NodeKind.INTEGER) | {
    pa.bool_(): NodeKind.BOOLEAN,
    pa.float64(): NodeKind.DOUBLE,
    pa.float32(): NodeKind.FLOAT,
    pa.string(): NodeKind.STRING,
}
_MAX_DIGITS = 18  # digits that always fit an int64


class JsonProgram:
    """The compiled schema of a decoder. Node 0 is the root struct, whose rows are the JSON values.

    Attributes:
        zone: Time zone of timestamps that do not name one.
        tree: The columns.
        types: Arrow type of each node.
        list_levels: Number of list levels.
        tables: The tables for the kernel. `place_cells` modifies them.
    """

    def __init__(self, schema: pa.Schema, options: JsonOptions) -> None:
        self.zone = options.zone
        self.tree = tree_of(pa.struct(list(schema)))
        self.types = [column.type for column in self.tree.preorder()]
        self.list_levels = 1
        self._nodes = np.zeros((len(self.types), len(Node)), np.int64)
        self._names = bytearray()
        self._fields: list[np.ndarray] = []
        self._add(self.tree, 0, options)
        self.tables = JsonTables(
            self._nodes, np.concatenate(self._fields), np.frombuffer(bytes(self._names) or b"\0", np.uint8)
        )

    def kind(self, column: ColumnTree) -> NodeKind:
        return NodeKind(self._nodes[column.number, Node.KIND])

    def place_cells(self, capacity: np.ndarray) -> int:
        """Assign capacity[level] cells to every node, where capacity is int64[list levels]; return their total."""
        sizes = np.where(self._nodes[:, Node.KIND] == NodeKind.ENTRIES, 0, capacity[self._nodes[:, Node.LIST_LEVEL]])
        ends = np.cumsum(sizes)
        self._nodes[:, Node.FIRST_CELL] = ends - sizes
        return int(ends[-1])

    def _add(self, column: ColumnTree, level: int, options: JsonOptions) -> None:
        type_ = column.type
        kind = _kind_of(type_, options)
        row = self._nodes[column.number]
        row[Node.KIND], row[Node.LIST_LEVEL] = kind, level
        if kind is NodeKind.INTEGER:
            row[Node.LOW], row[Node.HIGH] = _KERNEL_RANGES[type_]
        elif kind is NodeKind.TIMESTAMP:
            row[Node.LOW] = self.zone is not UTC
        elif kind is NodeKind.DECIMAL:
            row[Node.LOW], row[Node.HIGH] = type_.scale, min(type_.precision, _MAX_DIGITS)
        elif kind is NodeKind.STRUCT:
            self._add_names(row, column)
        elif kind in (NodeKind.ARRAY, NodeKind.MAP):
            level = self.list_levels
            self.list_levels += 1
            row[Node.CHILD] = column.children[0].number
        for child in column.children:
            self._add(child, level, options)
        if kind is NodeKind.MAP:
            (entries,) = column.children
            self._nodes[entries.number, Node.KIND] = NodeKind.ENTRIES
            row[Node.KEY], row[Node.CHILD] = (child.number for child in entries.children)

    def _add_names(self, row: np.ndarray, column: ColumnTree) -> None:
        bits = max(1, (2 * len(column.children)).bit_length())
        row[Node.NAMES], row[Node.BITS] = sum(map(len, self._fields)), bits
        table = np.zeros((1 << bits, len(NameEntry)), np.int64)
        for child, field in zip(column.children, column.type, strict=True):
            name = field.name.encode("utf-8", "surrogatepass")
            word = int.from_bytes(name[:8], "little")
            hash_ = ((word ^ (len(name) << 56)) * int(HASH)) & ((1 << 64) - 1)  # as in _look_up_field of the kernel
            entry = hash_ >> (64 - bits)
            while table[entry, NameEntry.NODE]:
                entry = (entry + 1) & ((1 << bits) - 1)
            signed = word - (1 << 64) if word >> 63 else word
            table[entry] = (child.number, len(self._names), len(name), signed)
            self._names += name
        self._fields.append(table)


def _kind_of(type_: pa.DataType, options: JsonOptions) -> NodeKind:
    if pa.types.is_struct(type_):
        return NodeKind.STRUCT
    if pa.types.is_map(type_):
        return NodeKind.MAP
    if pa.types.is_list(type_):
        return NodeKind.ARRAY
    if pa.types.is_decimal(type_):
        return NodeKind.DECIMAL
    if pa.types.is_timestamp(type_):
        kind, reader = (
            (NodeKind.LOCAL_TIMESTAMP, options.read_local)
            if type_.tz is None
            else (NodeKind.TIMESTAMP, options.read_timestamp)
        )
        return kind if reader is None else NodeKind.DEFERRED
    if type_ == pa.date32() and options.read_date is None:
        return NodeKind.DATE
    return _KINDS.get(type_, NodeKind.DEFERRED)
