"""Records as JSON, one line each, with the field names of kcat -J.

    {"topic":"orders","partition":0,"offset":7,"tstype":"create","ts":1700000000000,"broker":1,
     "headers":["name","value"],"key":null,"payload":"..."}

tstype is `create` or `logappend`. tstype and ts are absent from messages without a timestamp (magic 0), headers from
records without headers. broker is the node ID of the log directory, or -1 if it is unknown. Bytes that are not UTF-8
become U+FFFD; %k and %s of a format print the original bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.cli.text_columns import LARGE, concatenated, header_text, joined, milliseconds, numbers

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "headers", "key", "value")
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"))
"""Replacements in a column of texts, in order; values with other control characters are escaped by the json module."""
_TO_ESCAPE = '["\\\\\n\t\r]'
_RARE_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}]"
_C1 = re.compile("[\x7f-\x9f]")
"""Control characters that JSON allows without an escape, but that a terminal executes."""
JsonColumn = Callable[[pa.RecordBatch], pa.Array]
"""Function from records to the JSON (large_binary) of one of their parts."""


def json_lines(
    rows: pa.RecordBatch, node_id: int, delimiter: bytes = b"\n", decoded: Mapping[str, JsonColumn] | None = None
) -> pa.Buffer | bytes:
    """Return one line of JSON per record.

    Args:
        rows: Batch with COLUMNS.
        node_id: Node ID of the broker, or -1.
        delimiter: Text after each record.
        decoded: Functions for "key" and "value", whose JSON is a string otherwise.
    """
    if not rows.num_rows:
        return b""
    columns = {name: rows.column(name) for name in COLUMNS}
    parts = {
        name: (decoded or {}).get(name, lambda rows, name=name: json_text(rows.column(name)))
        for name in ("key", "value")
    }
    return joined(
        [
            b'{"topic":', json_text(columns["topic"].cast(pa.binary())),
            b',"partition":', numbers(columns["partition"]),
            b',"offset":', numbers(columns["offset"]),
            _timestamps(columns["timestamp"], columns["timestampType"]),
            b',"broker":' + str(node_id).encode(),
            _headers(columns["headers"]),
            b',"key":', parts["key"](rows),
            b',"payload":', parts["value"](rows),
            b"}" + delimiter,
        ],
        rows,
    )  # fmt: skip


def json_text(column: pa.Array) -> pa.Array:
    """Return a binary column as JSON strings; `null` for null."""
    column = column.cast(pa.binary()) if column.type != pa.binary() else column
    try:
        text = column.cast(pa.string())
        plain = not pc.any(pc.match_substring_regex(text, _RARE_CONTROL)).as_py()
    except pa.ArrowInvalid:
        plain = False
    if plain:
        if pc.any(pc.match_substring_regex(text, _TO_ESCAPE)).as_py():
            for character, escaped in _ESCAPES:
                text = pc.replace_substring(text, character, escaped)
        return pc.fill_null(concatenated(b'"', text.cast(LARGE), b'"'), pa.scalar(b"null", LARGE))
    texts = [
        b"null" if value is None else _json_string(value.decode(errors="replace")).encode()
        for value in column.to_pylist()
    ]
    return pa.array(texts, LARGE)


def json_values(part: str, rows: pa.RecordBatch) -> pa.Array:
    """Return a column of values: valid JSON unchanged but on one line, any other value as a string."""
    return pa.array([_json_value(value) for value in rows.column(part).to_pylist()], LARGE)


def escape_c1(text: str) -> str:
    """Escape the control characters that the json module leaves."""
    return _C1.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


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
    return escape_c1(json.dumps(parsed, ensure_ascii=False, separators=(",", ":"))).encode()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _json_string(text: str) -> str:
    return escape_c1(json.dumps(text, ensure_ascii=False))


def _timestamps(times: pa.Array, types: pa.Array) -> pa.Array:
    type_names = pc.if_else(pc.equal(types, 1), pa.scalar(b"logappend", LARGE), pa.scalar(b"create", LARGE))
    text = concatenated(b',"tstype":"', type_names, b'","ts":', numbers(milliseconds(times)))
    return pc.if_else(pc.less(types, 0), pa.scalar(b"", LARGE), text)


def _headers(column: pa.Array) -> pa.Array:
    inner = header_text(column, lambda name, value: [json_text(name), b",", json_text(value)])
    text = concatenated(b',"headers":[', inner, b"]")
    return pc.if_else(pc.is_valid(column), text, pa.scalar(b"", LARGE))
