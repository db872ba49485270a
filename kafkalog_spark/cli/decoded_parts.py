"""Decodes values and keys to JSON, for kafkalog-cat -f json -s value=avro."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.cli.record_json import JsonColumn, escape_c1, json_text, json_values
from kafkalog_spark.cli.text_columns import LARGE
from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.typed.ddl import map_leaves
from kafkalog_spark.typed.decoder import ValueDecoder, decode_column
from kafkalog_spark.typed.formats import FORMATS, ResolvedFormat, SchemaSources, check_options

PARTS = ("value", "key")
_YEAR = re.compile(r"(-?)(\d+)(.*)")


def part_columns(
    serialized: Sequence[str], options: Mapping[str, str], topics: tuple[str, ...], dirs: LogDirs
) -> dict[str, JsonColumn]:
    """Return the functions that decode values and keys, by part.

    Args:
        serialized: Texts PART=FORMAT of -s.
        options: Options of the formats, named `value.X` or `key.X`.
        topics: Topics that are read.
        dirs: The log directories.

    Raises:
        OptionError: For an invalid text or option.
        KafkalogError: As `ResolvedFormat.of`.
    """
    functions: dict[str, JsonColumn] = {}
    formats = tuple(name for name in FORMATS if name != "string")
    for text in serialized:
        part, _, name = text.partition("=")
        if part not in PARTS or name not in formats:
            raise OptionError(
                f"-s takes value=FORMAT or key=FORMAT, got '{text}'", hint=f"the formats are {', '.join(formats)}"
            )
        given_names = {option.partition(".")[2].lower(): option for option in options if option.startswith(f"{part}.")}
        check_options(name, {option: f"--option {format_options}" for option, format_options in given_names.items()})
        format_options = {option: options[format_options] for option, format_options in given_names.items()}
        if name == "json" and not format_options:
            functions[part] = partial(json_values, part)
            continue
        format = ResolvedFormat.of(name, format_options, SchemaSources(part, topics, dirs.keys_and_values))
        functions[part] = partial(_decoded_values, part, format.decoder(format.schema()))
    for name in options:
        if name.partition(".")[0] not in functions:
            raise OptionError(
                f"--option {name} requires -s {name.partition('.')[0]}=FORMAT", hint="-s value=avro names one"
            )
    return functions


def _decoded_values(part: str, decoder: ValueDecoder, rows: pa.RecordBatch) -> pa.Array:
    """Return the JSON of a decoded part; a value that cannot be decoded is a string."""
    decoded = decode_column(decoder, rows, part)
    good = decoded.columns.is_valid()
    if decoded.bad is not None:
        good = pc.and_(good, pa.array(~decoded.bad))
    type_ = decoded.columns.type
    values = decoded.columns.filter(good).cast(map_leaves(type_, _as_number)).to_pylist()
    texts = pa.array([escape_c1(_json(value, type_)).encode() for value in values], LARGE)
    return pc.replace_with_mask(json_text(rows.column(part)), good, texts)


def _as_number(type_: pa.DataType) -> pa.DataType:
    """Return a number type for a date or timestamp, because Python's types have the years 1 to 9999 only."""
    return pa.int32() if pa.types.is_date32(type_) else pa.int64() if pa.types.is_timestamp(type_) else type_


def _json(value: Any, type_: pa.DataType) -> str:
    """Return a value as JSON: dates and timestamps, given as numbers, in ISO 8601; bytes in base64."""
    if value is None:
        return "null"
    if pa.types.is_struct(type_):
        return f"{{{','.join(f'{_key(f.name)}:{_json(value[f.name], f.type)}' for f in type_)}}}"
    if pa.types.is_map(type_):
        return f"{{{','.join(f'{_key(key)}:{_json(item, type_.item_type)}' for key, item in value)}}}"
    if pa.types.is_list(type_):
        return f"[{','.join(_json(element, type_.value_type) for element in value)}]"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        value = b64encode(value).decode()
    elif pa.types.is_date32(type_):
        value = _iso(np.datetime64(value, "D"))
    elif pa.types.is_timestamp(type_):
        value = _iso(np.datetime64(value, type_.unit)) + ("" if type_.tz is None else "Z")
    elif isinstance(value, float) and not math.isfinite(value):
        value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return json.dumps(value, ensure_ascii=False)


def _iso(moment: np.datetime64) -> str:
    """Return numpy's text in ISO 8601: years have at least four digits, and a sign if they have more."""
    sign, year, after_year = _YEAR.fullmatch(str(moment)).groups()  # type: ignore[union-attr]
    return f"{sign or '+' * (len(year) > 4)}{year.zfill(4)}{after_year}"


def _key(key: Any) -> str:
    return json.dumps(key if isinstance(key, str) else json.dumps(key), ensure_ascii=False)
