"""kcat's format strings (`kafkalog-cat --help`) applied to columns: bytes without an object a record."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import OptionError

_LARGE = pa.large_binary()  # type of composed texts: they may be larger than 2 GB where their columns are not

_COLUMN_OF = {
    "s": "value", "S": "value", "R": "value", "k": "key", "K": "key", "t": "topic", "p": "partition", "o": "offset",
    "T": "timestamp", "h": "headers",
}  # fmt: skip
_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]+)|([0-9]+)|(.))", re.DOTALL)
_PLAIN_ESCAPES = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """parts: literal bytes, and single letters for tokens. null: what %s and %k print for null."""

    parts: tuple[bytes | str, ...]
    null: bytes = b""

    @classmethod
    def of(cls, text: str, null: bytes = b"") -> RecordFormat:
        """Raises OptionError for a token that there is not."""
        parts: list[bytes | str] = []
        pieces = re.split(r"%(.?)", text, flags=re.DOTALL)
        for literal, token in zip(pieces[::2], [*pieces[1::2], None], strict=True):
            if literal:
                parts.append(unescaped(literal))
            if token == "%":
                parts.append(b"%")
            elif token is not None:
                if token not in _COLUMN_OF:
                    raise OptionError(
                        f"a format has no token '%{token}'", hint="there are %s %S %R %k %K %t %p %o %T %h %%"
                    )
                parts.append(token)
        return cls(tuple(parts), null)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the format needs; `offset` where it needs none."""
        named = dict.fromkeys(_COLUMN_OF[part] for part in self.parts if isinstance(part, str))
        return tuple(named) or ("offset",)

    def text_of(self, rows: pa.RecordBatch) -> pa.Buffer | bytes:
        """rows: at least `columns`."""
        return joined([part if isinstance(part, bytes) else self._column(part, rows) for part in self.parts], rows)

    def _column(self, token: str, rows: pa.RecordBatch) -> pa.Array:
        column = rows.column(_COLUMN_OF[token])
        if token in "sk":
            return pc.fill_null(column.cast(_LARGE), pa.scalar(self.null, _LARGE))
        if token in "SK":
            return numbers(pc.fill_null(pc.binary_length(column), -1))
        if token == "R":
            sizes = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False).astype(">i4")
            return pa.Array.from_buffers(pa.binary(4), len(sizes), [None, pa.py_buffer(sizes.tobytes())]).cast(_LARGE)
        if token == "T":
            return numbers(milliseconds(column))
        if token == "h":
            return header_text(column, lambda name, value: [name, b"=", pc.fill_null(value, b"NULL")])
        return numbers(column) if token in "po" else column.cast(_LARGE)


def unescaped(text: str) -> bytes:
    """A literal of a format, or a delimiter, with its \\ sequences."""

    def character(match: re.Match[bytes]) -> bytes:
        hexadecimal, digits, other = match.groups()
        if other is not None:
            return _PLAIN_ESCAPES.get(other, other)
        if hexadecimal:
            code = int(hexadecimal, 16)
        else:  # as strtoul with base 0 reads it: octal after a 0, as far as there are octal digits
            octal = re.match(rb"0[0-7]*", digits)
            code = int(octal[0], 8) if octal else int(digits)
        return bytes([code & 0xFF])

    return _ESCAPE.sub(character, text.encode())


def joined(parts: Sequence[bytes | pa.Array], rows: pa.RecordBatch) -> pa.Buffer | bytes:
    """The parts of all rows, one after the other. Every column is of type _LARGE, without nulls."""
    if not rows.num_rows or not parts:
        return b""
    if not any(isinstance(part, pa.Array) for part in parts):
        return b"".join(part for part in parts if isinstance(part, bytes)) * rows.num_rows
    whole = _concatenated(*parts)
    _, offsets, data = whole.buffers()
    ends = np.frombuffer(offsets, np.int64)[[whole.offset, whole.offset + len(whole)]]
    return data.slice(int(ends[0]), int(ends[1] - ends[0])) if data is not None else b""


def _concatenated(*parts: bytes | pa.Array) -> pa.Array:
    """Row by row; of parts as `joined` takes them, at least one a column."""
    arrays = (part if isinstance(part, pa.Array) else pa.scalar(part, _LARGE) for part in parts)
    return pc.binary_join_element_wise(*arrays, pa.scalar(b"", _LARGE))


def numbers(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()).cast(_LARGE)


def milliseconds(column: pa.Array) -> pa.Array:
    """A timestamp column as int64 ms."""
    return pa.array(column.cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000)


def header_text(column: pa.Array, one: Callable[[pa.Array, pa.Array], Sequence[bytes | pa.Array]]) -> pa.Array:
    """Headers as text, empty without: `one` makes the parts of names and values (_LARGE, values with nulls)."""
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    flat = column.flatten()  # of a slice only its own, and nothing of nulls
    parts = one(flat.field(0).cast(_LARGE), flat.field(1).cast(_LARGE))
    text = _concatenated(*parts) if len(flat) else pa.array([], _LARGE)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), text), pa.scalar(b",", _LARGE))
