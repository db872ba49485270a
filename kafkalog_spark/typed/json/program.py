"""A schema as the tables that the JSON kernel runs: a node for each type in it, a hash table for the names of a struct.

Every node has slots: node.base + i is the place of its i-th value in the arrays `words` (int64) and `valid` (uint8).
Nodes that have as many values as each other share a domain, which counts them: domain 0 has one a row, each array or
map begins another. What a word is depends on the kind:

| kind | word |
|---|---|
| INTEGER, BOOLEAN, DATE, TIMESTAMP, LOCAL | the number: days, microseconds |
| DOUBLE, FLOAT | the bits of a float64 |
| DECIMAL | the unscaled number |
| STRING | where its bytes lie, see WORD_* |
| ARRAY, MAP | how many elements it has |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC
from enum import IntEnum

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.json.options import JsonOptions


class Kind(IntEnum):
    """Action of the kernel on a value."""

    LEFT_OUT = 0  # the value is of a kind that the kernel leaves to plain Python
    INTEGER = 1
    BOOLEAN = 2
    DOUBLE = 3
    FLOAT = 4
    STRING = 5
    TIMESTAMP = 6
    LOCAL = 7
    DATE = 8
    DECIMAL = 9
    STRUCT = 10
    ARRAY = 11
    MAP = 12


class N(IntEnum):
    """Columns of the table of nodes."""

    KIND = 0
    DOMAIN = 1
    BASE = 2
    LOW = 3  # of INTEGER; of DECIMAL the scale; of TIMESTAMP 1 where texts that name no zone are IN_ZONE
    HIGH = 4  # of INTEGER; of DECIMAL the digits that fit
    NAMES = 5  # of STRUCT: where its hash table begins
    BITS = 6  # of STRUCT: its size as a power of two
    CHILD = 7  # of ARRAY the element, of MAP the value
    KEY = 8  # of MAP


class F(IntEnum):
    """Columns of the hash tables of names."""

    NODE = 0  # 0: nothing is here
    AT = 1  # of the name in `names`
    LENGTH = 2
    WORD = 3  # the first eight bytes, the first one lowest


HASH = np.uint64(0x9E3779B97F4A7C15)
WORD_LENGTH_BITS = 24
WORD_ARENA = 1 << 62
"""A string's word: its length in the low bits, above them where it begins: in the values, or where this bit is set in
the arena, to which strings with escapes are written."""
_LEFT = {pa.int8(): (-128, 127), pa.int16(): (-(1 << 15), (1 << 15) - 1), pa.int32(): (-(1 << 31), (1 << 31) - 1),
         pa.int64(): (-(10**18) + 1, 10**18 - 1)}  # fmt: skip
_MOST_DIGITS = 18


@dataclass
class Node:
    """A type of the schema. `children`: of a struct its fields, of an array its element, of a map key and value."""

    kind: Kind
    type: pa.DataType
    domain: int
    children: list[int] = field(default_factory=list)


class JsonProgram:
    """The tables of a schema. Node 0 is the root struct, whose slot is the row."""

    def __init__(self, schema: pa.Schema, options: JsonOptions) -> None:
        self._options = options
        self.zone = options.zone
        self.nodes: list[Node] = []
        self.domains = 1
        self._names = bytearray()
        self._hashed: list[np.ndarray] = []
        self._add(pa.struct(list(schema)), 0)
        self.table = np.zeros((len(self.nodes), len(N)), np.int64)
        self._fill()
        self.names = np.frombuffer(bytes(self._names) or b"\0", np.uint8)
        self.fields = np.concatenate(self._hashed) if self._hashed else np.zeros((1, len(F)), np.int64)

    def placed(self, capacity: list[int]) -> tuple[np.ndarray, int]:
        """(The table with the bases of the nodes when domain d has capacity[d] slots, how many slots there are)."""
        table = self.table.copy()
        at = 0
        for i, node in enumerate(self.nodes):
            table[i, N.BASE] = at
            at += capacity[node.domain]
        return table, at

    def _add(self, kind: pa.DataType, domain: int) -> int:
        number = len(self.nodes)
        node = Node(self._kind(kind), kind, domain)
        self.nodes.append(node)
        if node.kind is Kind.STRUCT:
            node.children = [self._add(one.type, domain) for one in kind]
        elif node.kind in (Kind.ARRAY, Kind.MAP):
            inner = self.domains
            self.domains += 1
            types = [kind.value_type] if node.kind is Kind.ARRAY else [kind.key_type, kind.item_type]
            node.children = [self._add(one, inner) for one in types]
        return number

    def _kind(self, kind: pa.DataType) -> Kind:
        options = self._options
        if pa.types.is_struct(kind):
            return Kind.STRUCT
        if pa.types.is_map(kind):
            return Kind.MAP
        if pa.types.is_list(kind):
            return Kind.ARRAY
        if kind in _LEFT:
            return Kind.INTEGER
        if pa.types.is_decimal(kind):
            return Kind.DECIMAL
        if pa.types.is_timestamp(kind):
            if kind.tz is None:
                return Kind.LOCAL if options.read_local is None else Kind.LEFT_OUT
            return Kind.TIMESTAMP if options.read_timestamp is None else Kind.LEFT_OUT
        simple = {pa.bool_(): Kind.BOOLEAN, pa.float64(): Kind.DOUBLE, pa.float32(): Kind.FLOAT,
                  pa.string(): Kind.STRING}  # fmt: skip
        if kind == pa.date32() and options.read_date is None:
            return Kind.DATE
        return simple.get(kind, Kind.LEFT_OUT)

    def _fill(self) -> None:
        begin = 0
        for i, node in enumerate(self.nodes):
            row = self.table[i]
            row[N.KIND], row[N.DOMAIN] = node.kind, node.domain
            if node.kind is Kind.INTEGER:
                row[N.LOW], row[N.HIGH] = _LEFT[node.type]
            elif node.kind is Kind.TIMESTAMP:
                row[N.LOW] = self._options.zone is not UTC
            elif node.kind is Kind.DECIMAL:
                row[N.LOW], row[N.HIGH] = node.type.scale, min(node.type.precision, _MOST_DIGITS)
            elif node.kind is Kind.STRUCT:
                hashed, bits = self._hash(node)
                row[N.NAMES], row[N.BITS] = begin, bits
                begin += len(hashed)
                self._hashed.append(hashed)
            elif node.kind is Kind.ARRAY:
                row[N.CHILD] = node.children[0]
            elif node.kind is Kind.MAP:
                row[N.KEY], row[N.CHILD] = node.children

    def _hash(self, node: Node) -> tuple[np.ndarray, int]:
        bits = max(1, (2 * len(node.children)).bit_length())
        table = np.zeros((1 << bits, len(F)), np.int64)
        for child, one in zip(node.children, node.type, strict=True):
            name = one.name.encode("utf-8", "surrogatepass")
            word = int.from_bytes(name[:8], "little")
            place = hash_of(word, len(name), bits)
            while table[place, F.NODE]:
                place = (place + 1) & ((1 << bits) - 1)
            signed = word - (1 << 64) if word >> 63 else word
            table[place] = (child, len(self._names), len(name), signed)
            self._names += name
        return table, bits


def hash_of(word: int, length: int, bits: int) -> int:
    """The place of a name in a table of 2**bits; the kernel has the same."""
    return (((word ^ (length << 56)) * int(HASH)) & ((1 << 64) - 1)) >> (64 - bits)
