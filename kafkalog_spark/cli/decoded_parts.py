"""Decoded values and keys as JSON: kafkalog-cat -f json -s value=avro."""

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

from kafkalog_spark.cli.record_json import Shown, _escaped, _json_values, json_text
from kafkalog_spark.cli.record_output import _LARGE
from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.typed.ddl import map_leaves
from kafkalog_spark.typed.decoder import ValueDecoder, decode_column
from kafkalog_spark.typed.formats import FORMATS, ResolvedFormat, SchemaSources, check_options

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
    values = found.columns.filter(good).cast(map_leaves(kind, _countable)).to_pylist()
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
