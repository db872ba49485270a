"""kcat's format strings (`kafkalog-cat --help`) applied to columns: bytes without an object a record."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.typed.ddl import with_leaves
from kafkalog_spark.typed.decoder import (
    FORMATS,
    ResolvedFormat,
    SchemaSources,
    ValueDecoder,
    check_options,
    decode_column,
)

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


# Records as JSON, a line each, with the names that kcat -J gives its fields.
#
#     {"topic":"orders","partition":0,"offset":7,"tstype":"create","ts":1700000000000,"broker":1,
#      "headers":["name","value"],"key":null,"payload":"..."}
#
# tstype is `create` or `logappend`; it and ts are left out of messages that have no timestamp (magic 0), headers of
# those that have none. broker is the id of the node whose directory it is, -1 where nothing says it. Bytes that are
# not UTF-8 become U+FFFD: %k and %s of a format give them as they are.

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "headers", "key", "value")
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"))
"""Replacements in a column of texts, in order; other control characters are left to the json module, one by one."""
_TO_ESCAPE = '["\\\\\n\t\r]'
_RARE = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}]"
_C1 = re.compile("[\x7f-\x9f]")  # control characters that JSON allows as they are, and that a terminal obeys


Shown = Callable[[pa.RecordBatch], pa.Array]
"""Function from records to the JSON (large_binary) of one of their parts."""


def json_lines(
    rows: pa.RecordBatch, node_id: int, delimiter: bytes = b"\n", shown: Mapping[str, Shown] | None = None
) -> pa.Buffer | bytes:
    """rows: with COLUMNS. shown: what makes JSON of `key` and `value`; without it strings."""
    if not rows.num_rows:
        return b""
    of = {name: rows.column(name) for name in COLUMNS}
    parts = {
        name: (shown or {}).get(name, lambda rows, name=name: json_text(rows.column(name))) for name in ("key", "value")
    }
    return joined(
        [
            b'{"topic":', json_text(of["topic"].cast(pa.binary())),
            b',"partition":', numbers(of["partition"]),
            b',"offset":', numbers(of["offset"]),
            _timestamps(of["timestamp"], of["timestampType"]),
            b',"broker":' + str(node_id).encode(),
            _headers(of["headers"]),
            b',"key":', parts["key"](rows),
            b',"payload":', parts["value"](rows),
            b"}" + delimiter,
        ],
        rows,
    )  # fmt: skip


def json_text(column: pa.Array) -> pa.Array:
    """binary to JSON strings; `null` for null."""
    column = column.cast(pa.binary()) if column.type != pa.binary() else column
    try:
        text = column.cast(pa.string())
        plain = not pc.any(pc.match_substring_regex(text, _RARE)).as_py()
    except pa.ArrowInvalid:
        plain = False
    if plain:
        if pc.any(pc.match_substring_regex(text, _TO_ESCAPE)).as_py():
            for character, escaped in _ESCAPES:
                text = pc.replace_substring(text, character, escaped)
        return pc.fill_null(_concatenated(b'"', text.cast(_LARGE), b'"'), pa.scalar(b"null", _LARGE))
    found = [
        b"null" if value is None else _json_string(value.decode(errors="replace")).encode()
        for value in column.to_pylist()
    ]
    return pa.array(found, _LARGE)


def _json_values(part: str, rows: pa.RecordBatch) -> pa.Array:
    """Values that are JSON as they are, on one line; the others as strings."""
    return pa.array([_json_value(value) for value in rows.column(part).to_pylist()], _LARGE)


def _escaped(text: str) -> str:
    return _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _json_value(value: bytes | None) -> bytes:
    if value is None:
        return b"null"
    text = value.decode(errors="replace")
    try:
        parsed = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _json_string(text).encode()
    if text.isprintable() and value.isascii():
        return text.strip().encode()
    return _escaped(json.dumps(parsed, ensure_ascii=False, separators=(",", ":"))).encode()


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not of JSON")


def _json_string(text: str) -> str:
    return _escaped(json.dumps(text, ensure_ascii=False))


def _timestamps(times: pa.Array, types: pa.Array) -> pa.Array:
    kind = pc.if_else(pc.equal(types, 1), pa.scalar(b"logappend", _LARGE), pa.scalar(b"create", _LARGE))
    said = _concatenated(b',"tstype":"', kind, b'","ts":', numbers(milliseconds(times)))
    return pc.if_else(pc.less(types, 0), pa.scalar(b"", _LARGE), said)


def _headers(column: pa.Array) -> pa.Array:
    inner = header_text(column, lambda name, value: [json_text(name), b",", json_text(value)])
    said = _concatenated(b',"headers":[', inner, b"]")
    return pc.if_else(pc.is_valid(column), said, pa.scalar(b"", _LARGE))


# Values and keys of a format as JSON: kafkalog-cat -f json -s value=avro.

PARTS = ("value", "key")
_YEAR = re.compile(r"(-?)(\d+)(.*)")


def shown_parts(
    serialized: Sequence[str], options: Mapping[str, str], topics: tuple[str, ...], dirs: LogDirs
) -> dict[str, Shown]:
    """serialized: texts PART=FORMAT; options: of formats, `value.X`, `key.X`. Raises OptionError, and as formats do."""
    found: dict[str, Shown] = {}
    formats = tuple(name for name in FORMATS if name != "string")
    for text in serialized:
        part, _, name = text.partition("=")
        if part not in PARTS or name not in formats:
            raise OptionError(
                f"-s takes value=FORMAT or key=FORMAT, got '{text}'", hint=f"the formats are {', '.join(formats)}"
            )
        written = {option.partition(".")[2].lower(): option for option in options if option.startswith(f"{part}.")}
        check_options(name, {option: f"--option {given}" for option, given in written.items()})
        given = {option: options[given] for option, given in written.items()}
        if name == "json" and not given:
            found[part] = partial(_json_values, part)
            continue
        format = ResolvedFormat.of(name, given, SchemaSources(part, topics, dirs.keys_and_values))
        found[part] = partial(_decoded_values, part, format.decoder(format.schema()))
    for name in options:
        if name.partition(".")[0] not in found:
            raise OptionError(f"--option {name} is of a format, and -s names none", hint="-s value=avro names one")
    return found


def _decoded_values(part: str, decoder: ValueDecoder, rows: pa.RecordBatch) -> pa.Array:
    """A part, decoded and written as JSON; what cannot be decoded is a string."""
    found = decode_column(decoder, rows, part)
    good = found.columns.is_valid()
    if found.bad is not None:
        good = pc.and_(good, pa.array(~found.bad))
    kind = found.columns.type
    values = found.columns.filter(good).cast(with_leaves(kind, _countable)).to_pylist()
    texts = pa.array([_escaped(_json(value, kind)).encode() for value in values], _LARGE)
    return pc.replace_with_mask(json_text(rows.column(part)), good, texts)


def _countable(kind: pa.DataType) -> pa.DataType:
    """A number in the place of a date or timestamp, of which Python has the years 1 to 9999 only."""
    return pa.int32() if pa.types.is_date32(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind


def _json(value: Any, kind: pa.DataType) -> str:
    """JSON of a value; dates and timestamps are numbers that become ISO 8601, bytes base64."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        return f"{{{','.join(f'{_key(f.name)}:{_json(value[f.name], f.type)}' for f in kind)}}}"
    if pa.types.is_map(kind):
        return f"{{{','.join(f'{_key(key)}:{_json(item, kind.item_type)}' for key, item in value)}}}"
    if pa.types.is_list(kind):
        return f"[{','.join(_json(one, kind.value_type) for one in value)}]"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        value = b64encode(value).decode()
    elif pa.types.is_date32(kind):
        value = _iso(np.datetime64(value, "D"))
    elif pa.types.is_timestamp(kind):
        value = _iso(np.datetime64(value, kind.unit)) + ("" if kind.tz is None else "Z")
    elif isinstance(value, float) and not math.isfinite(value):
        value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return json.dumps(value, ensure_ascii=False)


def _iso(moment: np.datetime64) -> str:
    """numpy's text with four digits of a year at least, and a sign before more of them, as ISO 8601 has it."""
    sign, year, rest = _YEAR.fullmatch(str(moment)).groups()  # type: ignore[union-attr]
    return f"{sign or '+' * (len(year) > 4)}{year.zfill(4)}{rest}"


def _key(key: Any) -> str:
    return json.dumps(key if isinstance(key, str) else json.dumps(key), ensure_ascii=False)
