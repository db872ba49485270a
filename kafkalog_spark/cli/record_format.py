"""Format strings of kcat (see `kafkalog-cat --help`), applied to columns of records."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.cli.text_columns import LARGE, header_text, joined, milliseconds, numbers
from kafkalog_spark.errors import OptionError

_COLUMN_OF = {
    "s": "value", "S": "value", "R": "value", "k": "key", "K": "key", "t": "topic", "p": "partition", "o": "offset",
    "T": "timestamp", "h": "headers",
}  # fmt: skip
_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]+)|([0-9]+)|(.))", re.DOTALL)
_PLAIN_ESCAPES = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """Parsed format string.

    Attributes:
        parts: Literal bytes, and single letters for tokens.
        null: Text that %s and %k print for null.
    """

    parts: tuple[bytes | str, ...]
    null: bytes = b""

    @classmethod
    def of(cls, text: str, null: bytes = b"") -> RecordFormat:
        """Parse a format string. Raises OptionError for an unknown token."""
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
                        f"a format has no token '%{token}'", hint="the tokens are %s %S %R %k %K %t %p %o %T %h %%"
                    )
                parts.append(token)
        return cls(tuple(parts), null)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the format needs; `offset` if it needs none."""
        named = dict.fromkeys(_COLUMN_OF[part] for part in self.parts if isinstance(part, str))
        return tuple(named) or ("offset",)

    def text_of(self, rows: pa.RecordBatch) -> pa.Buffer | bytes:
        """Return the text of a batch that has at least `columns`."""
        return joined([part if isinstance(part, bytes) else self._column(part, rows) for part in self.parts], rows)

    def _column(self, token: str, rows: pa.RecordBatch) -> pa.Array:
        column = rows.column(_COLUMN_OF[token])
        if token in "sk":
            return pc.fill_null(column.cast(LARGE), pa.scalar(self.null, LARGE))
        if token in "SK":
            return numbers(pc.fill_null(pc.binary_length(column), -1))
        if token == "R":
            sizes = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False).astype(">i4")
            return pa.Array.from_buffers(pa.binary(4), len(sizes), [None, pa.py_buffer(sizes.tobytes())]).cast(LARGE)
        if token == "T":
            return numbers(milliseconds(column))
        if token == "h":
            return header_text(column, lambda name, value: [name, b"=", pc.fill_null(value, b"NULL")])
        return numbers(column) if token in "po" else column.cast(LARGE)


def unescaped(text: str) -> bytes:
    """Return the bytes of a literal or delimiter with its \\ sequences replaced."""

    def character(match: re.Match[bytes]) -> bytes:
        hexadecimal, digits, other = match.groups()
        if other is not None:
            return _PLAIN_ESCAPES.get(other, other)
        if hexadecimal:
            code = int(hexadecimal, 16)
        else:  # like strtoul with base 0: octal after a leading 0, up to the first digit that is not octal
            octal = re.match(rb"0[0-7]*", digits)
            code = int(octal[0], 8) if octal else int(digits)
        return bytes([code & 0xFF])

    return _ESCAPE.sub(character, text.encode())
