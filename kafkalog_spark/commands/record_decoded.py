"""Values and keys of a format as JSON: kafkalog-cat -f json -s value=avro."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.commands.record_json import Shown, json_text, json_values, without_controls
from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.typed.decoder import (
    FORMATS,
    SchemaSources,
    ValueDecoder,
    decoder_of,
    format_of,
    settled_options,
)

PARTS = ("value", "key")
_YEAR = re.compile(r"(-?)(\d+)(.*)")


def shown_parts(
    serialized: Sequence[str], options: Mapping[str, str], topics: tuple[str, ...], dirs: LogDirs
) -> dict[str, Shown]:
    """What makes JSON of a record's parts. serialized: texts PART=FORMAT; options: of formats, by their names with
    `value.` or `key.`. Raises OptionError, and what formats raise for their options."""
    found: dict[str, Shown] = {}
    formats = tuple(name for name in FORMATS if name != "string")
    for text in serialized:
        part, _, name = text.partition("=")
        if part not in PARTS or name not in formats:
            raise OptionError(
                f"-s takes value=FORMAT or key=FORMAT, got '{text}'", hint=f"the formats are {', '.join(formats)}"
            )
        given = _of_part(part, name, options)
        if name == "json" and not given:
            found[part] = _as_it_is(part)
            continue
        settled = settled_options(name, given, SchemaSources(part, topics, lambda topic: _records(dirs, topic)))
        decoder = decoder_of(name, settled, format_of(name).schema(settled))
        found[part] = _Decoded(part, decoder)
    for name in options:
        if name.partition(".")[0] not in found:
            raise OptionError(f"--option {name} is of a format, and -s names none", hint="-s value=avro names one")
    return found


def _of_part(part: str, format: str, options: Mapping[str, str]) -> dict[str, str]:
    """Those of a part, in small letters and without its name. Raises OptionError for one that the format has not."""
    known = [option.lower() for option in format_of(format).OPTIONS]
    found: dict[str, str] = {}
    for name, text in options.items():
        side, _, option = name.partition(".")
        if side != part:
            continue
        option = option.lower()
        begins = tuple(one.removesuffix("*") for one in known if one.endswith("*"))
        if option not in known and not (begins and option.startswith(begins)):
            raise OptionError(
                f"the format {format} has no option '{option}' (--option {name})", hint="docs/typed.md lists them"
            )
        found[option] = text
    return found


def _records(dirs: LogDirs, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    for batch in dirs.scan(topic, columns=("key", "value")):
        yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)


def _as_it_is(part: str) -> Callable[[pa.RecordBatch], pa.Array]:
    return lambda rows: json_values(rows.column(part))


class _Decoded:
    """Decodes a part and writes it as JSON; what cannot be decoded is a string."""

    def __init__(self, part: str, decoder: ValueDecoder) -> None:
        self._part, self._decoder = part, decoder

    def __call__(self, rows: pa.RecordBatch) -> pa.Array:
        column = rows.column(self._part)
        values = [column]
        if getattr(self._decoder, "headers_too", False):
            values.append(rows.column("headers"))
        found = self._decoder.decode(*values)
        good = found.columns.is_valid()
        if found.bad is not None:
            good = pc.and_(good, pa.array(~found.bad))
        kind = found.columns.type
        rows = found.columns.filter(good).cast(_countable(kind)).to_pylist()
        return pc.replace_with_mask(json_text(column), good, without_controls(_json(row, kind) for row in rows))


def _countable(kind: pa.DataType) -> pa.DataType:
    """The type with numbers in place of dates and timestamps, of which Python has the years 1 to 9999 only."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_countable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_countable(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_countable(kind.value_type)))
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
