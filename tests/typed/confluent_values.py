"""Recorded values of Confluent's serializers, with their registry and the results of its deserializers.

tests/golden/confluent_values.json.gz has some hundreds of each kind. tests/typed/record_confluent_values.py creates it.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa

from kafkalog_spark.typed.ddl import schema_of_ddl
from kafkalog_spark.typed.formats import ResolvedFormat, SchemaSources
from tests.golden_data import GOLDEN

RECORDED = GOLDEN / "confluent_values.json.gz"
TOPIC = "t"
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Json = Any


@dataclass
class Recording:
    """Values of one kind. Bytes are base64; expected: rows as `comparable` gives them."""

    kind: str
    format: str
    options: dict[str, str]
    ddl: str | None = None
    """The columns of JSON."""
    registry: list[list[str]] = field(default_factory=list)
    """Key and value of each record of `_schemas`."""
    values: list[str] = field(default_factory=list)
    ids_in_headers: list[str | None] = field(default_factory=list)
    expected: list[Json] = field(default_factory=list)

    def records(self) -> list[tuple[bytes, bytes]]:
        return [(key.encode(), value.encode()) for key, value in self.registry]


@cache
def recorded() -> dict[str, Recording]:
    """The recordings in tests/golden, by kind."""
    with gzip.open(RECORDED, "rt") as file:
        found = [Recording(**json.loads(line)) for line in file]
    return {recording.kind: recording for recording in found}


def columns_of(recording: Recording) -> pa.Schema:
    """The columns that kafkalog has for the values of a recording."""
    if recording.ddl is not None:
        return schema_of_ddl(recording.ddl)
    return resolved(recording, {}).schema()


def resolved(recording: Recording, options: Mapping[str, str]) -> ResolvedFormat:
    """The format of a recording. options: more of them, such as a registry's URL."""
    sources = SchemaSources("value", (TOPIC,), lambda topic: recording.records())
    return ResolvedFormat.of(recording.format, {**recording.options, **options}, sources)


def differences(recording: Recording, **options: str) -> list[tuple[int, Json, Json]]:
    """(place, what kafkalog reads, what Confluent's deserializer read) of values on which the two differ."""
    decoder: Any = resolved(recording, options).decoder(columns_of(recording))
    values = [base64.b64decode(one) for one in recording.values]
    headers = [
        [] if one is None else [{"key": "__value_schema_id", "value": base64.b64decode(one)}]
        for one in recording.ids_in_headers
    ]
    found: list[tuple[int, Json, Json]] = []
    for first in range(0, len(values), 1000):
        part = slice(first, first + 1000)
        decoded = decoder.decode(pa.array(values[part], pa.binary()), pa.array(headers[part], _HEADERS))
        rows = decoded.columns.to_pylist(maps_as_pydicts="strict")
        for i, row in enumerate(rows):
            bad = decoded.bad is not None and decoded.bad[i]
            ours = decoded.why(i) if bad else comparable(row, decoded.columns.type)
            if ours != recording.expected[first + i]:
                found.append((first + i, ours, recording.expected[first + i]))
    return found


def comparable(value: Any, type_: pa.DataType) -> Json:
    """A value of a column as JSON that is equal if and only if the value is."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {one.name: comparable(value[one.name], one.type) for one in type_}
    if pa.types.is_map(type_):
        entries = [[comparable(key, type_.key_type), comparable(one, type_.item_type)] for key, one in value.items()]
        return sorted(entries, key=json.dumps)
    if pa.types.is_list(type_):
        return [comparable(one, type_.value_type) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return value.hex() if not math.isnan(value) else "nan"
    if isinstance(value, datetime.datetime):
        since = value - datetime.datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds
    return value if isinstance(value, bool | int) else str(value)
