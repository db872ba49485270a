"""Arrow columns from the buffers of the JSON kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.columns.buffer_pool import SpareMemory
from kafkalog_spark.typed.columns.column_builder_kernel import Col
from kafkalog_spark.typed.java_text import us_of_locals
from kafkalog_spark.typed.json import text_kernel as fields
from kafkalog_spark.typed.json.kernel import decode_json, gather_strings
from kafkalog_spark.typed.json.program import WORD_LENGTH_BITS, JsonProgram, Kind, N, Node

_FIRST_NUMBERS = 1024
_ALL = -1
"""Instead of a node's number: memory that all of them share."""
_ELEMENTS_A_ROW = 2
"""Room for elements of arrays and maps that a batch begins with, for each row; doubled whenever it is too little."""
_MOST_TEXT = (1 << 31) - 1


class TooMuchText(Exception):
    """The strings of a column do not fit one Arrow array."""


class Decoding:
    """The values of one batch as the kernel decodes them. `left`: the rows that it did not decide."""

    def __init__(
        self, program: JsonProgram, spare: SpareMemory, data: np.ndarray, offsets: np.ndarray, present: np.ndarray
    ) -> None:
        self._program, self._spare = program, spare
        self._data, self._offsets, self._present = data, offsets, present
        rows = len(present)
        self._rows = rows
        self._arena = spare.take(_ALL, Col.BYTES, len(data), np.uint8)
        self._numbers = np.empty((_FIRST_NUMBERS, 3), np.int64)
        capacity = [rows] + [rows * _ELEMENTS_A_ROW + 16] * (program.domains - 1)
        while not self._run(capacity):
            pass
        self.left = np.flatnonzero(self._flags)

    def _run(self, capacity: list[int]) -> bool:
        """Decode all rows; False, and a larger capacity, where that was too small."""
        program = self._program
        self._nodes, total = program.placed(capacity)
        self._words = self._spare.take(_ALL, Col.DATA, total, np.int64)[:total]
        self._valid = self._spare.take(_ALL, Col.VALID, total, np.uint8)[:total]
        self._words.fill(0)
        self._valid.fill(0)
        self._counts = np.zeros(program.domains, np.int64)
        self._flags = np.zeros(self._rows, np.uint8)
        state = np.zeros(3, np.int64)
        frames = np.empty((fields.DEPTH + program.domains, fields.FRAME_WIDTH), np.int64)
        expected = np.zeros(len(program.nodes) * fields.EXPECTED_NAMES * fields.EXPECTED_WIDTH, np.int64)
        room = np.array(capacity, np.int64)
        row = 0
        while True:
            row = self._decode(row, room, state, frames, expected)
            if row == self._rows:
                break
            if state[fields.FULL_DOMAIN] != fields.BAD:
                capacity[state[fields.FULL_DOMAIN]] *= 2
                return False
            self._numbers = np.concatenate([self._numbers, np.empty_like(self._numbers)])
        self._counts[0] = self._rows
        self._parse_numbers(int(state[fields.NUMBERS_USED]))
        return True

    def _decode(self, row: int, room: np.ndarray, state: np.ndarray, frames: np.ndarray, expected: np.ndarray) -> int:
        """From `row` on; the row that the kernel ended before."""
        program = self._program
        ended: int = decode_json(
            self._data, self._offsets, self._present, row, self._nodes, program.fields, program.names, self._counts,
            room, self._words, self._valid, self._arena, self._numbers, state, self._flags, frames, expected,
        )  # fmt: skip
        return ended

    def _parse_numbers(self, used: int) -> None:
        """Numbers whose digits do not fit a double exactly: Arrow's parser rounds them as Java's does."""
        numbers = self._numbers[:used]
        for node in np.unique(numbers[:, 0]):
            of_node = numbers[numbers[:, 0] == node]
            places = of_node[:, 2] >> 12
            lengths = of_node[:, 2] & 0xFFF
            offsets = np.zeros(len(of_node) + 1, np.int32)
            np.cumsum(lengths, out=offsets[1:])
            words = (places << WORD_LENGTH_BITS) | lengths
            text = np.empty(int(offsets[-1]), np.uint8)
            gather_strings(self._data, self._arena, words, np.ones(len(words), np.uint8), offsets, text)
            strings = pa.StringArray.from_buffers(len(words), pa.py_buffer(offsets), pa.py_buffer(text))
            parsed = strings.cast(self._program.nodes[int(node)].type).to_numpy(zero_copy_only=False)
            at = self._nodes[node, N.BASE] + of_node[:, 1]
            self._words[at] = parsed.astype(np.float64).view(np.int64)

    # ---- columns

    def columns(self) -> pa.StructArray:
        """All rows; those that are left, and those without a value, are null. Raises TooMuchText."""
        return self._array(0)

    def _array(self, number: int) -> pa.Array:
        node = self._program.nodes[number]
        base, count = int(self._nodes[number, N.BASE]), int(self._counts[node.domain])
        words, valid = self._words[base : base + count], self._valid[base : base + count]
        nulls = count - int(np.count_nonzero(valid))
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
        if node.kind is Kind.STRUCT:
            children = [self._array(child) for child in node.children]
            if not children:
                return pa.Array.from_buffers(node.type, count, [bitmap], null_count=nulls)
            return pa.Array.from_buffers(node.type, count, [bitmap], null_count=nulls, children=children)
        if node.kind in (Kind.ARRAY, Kind.MAP):
            return self._list(node, words, valid, count, nulls, bitmap)
        if node.kind is Kind.STRING:
            return self._strings(number, words, valid, count, nulls, bitmap)
        if node.kind is Kind.LEFT_OUT:
            return pa.nulls(count, node.type)
        if node.kind is Kind.TIMESTAMP and (local := valid == fields.IN_ZONE).any():
            words[local] = us_of_locals(words[local], self._program.zone)
        data = _fixed(node, words)
        return pa.Array.from_buffers(node.type, count, [bitmap, pa.py_buffer(data)], null_count=nulls)

    def _list(
        self, node: Node, words: np.ndarray, valid: np.ndarray, count: int, nulls: int, bitmap: pa.Buffer | None
    ) -> pa.Array:
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(words * valid, out=offsets[1:])
        children = [self._array(child) for child in node.children]
        if node.kind is Kind.MAP:
            entries = pa.struct([node.type.key_field, node.type.item_field])
            key, value = children
            children = [pa.Array.from_buffers(entries, len(key), [None], null_count=0, children=[key, value])]
        return pa.Array.from_buffers(
            node.type, count, [bitmap, pa.py_buffer(offsets)], null_count=nulls, children=children
        )

    def _strings(
        self, number: int, words: np.ndarray, valid: np.ndarray, count: int, nulls: int, bitmap: pa.Buffer | None
    ) -> pa.Array:
        lengths = words & fields.MAX_STRING
        if nulls:
            lengths *= valid
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > _MOST_TEXT:
            raise TooMuchText
        short = offsets.astype(np.int32)
        text = self._spare.take(number, Col.DATA, int(offsets[-1]), np.uint8)
        gather_strings(self._data, self._arena, words, valid, short, text)
        return pa.Array.from_buffers(
            pa.string(), count, [bitmap, pa.py_buffer(short), pa.py_buffer(text)], null_count=nulls
        )


def _fixed(node: Node, words: np.ndarray) -> Any:
    """The data buffer of a type whose values are as long as each other."""
    kind = node.type
    if node.kind in (Kind.DOUBLE, Kind.FLOAT):
        return words.view(np.float64) if node.kind is Kind.DOUBLE else words.view(np.float64).astype(np.float32)
    if node.kind is Kind.BOOLEAN:
        return np.packbits(words.astype(np.uint8), bitorder="little")
    if node.kind is Kind.DECIMAL:
        wide = np.empty((len(words), 2), np.int64)
        wide[:, 0], wide[:, 1] = words, words >> 63
        return wide
    if kind.bit_width == 64:
        return words
    return words.astype({8: np.int8, 16: np.int16, 32: np.int32}[kind.bit_width])
