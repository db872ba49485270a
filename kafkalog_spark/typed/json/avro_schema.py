"""Avro schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.avro.to_avro_schema import AVRO_NAMES


def avro_of_schema(columns: Iterable[pa.Field], name: str) -> dict[str, Any]:
    """Avro schema of those columns, a record whose fields may be null. Raises OptionError for a name Avro refuses."""
    fields = []
    for field in columns:
        if not field.name.isascii() or not field.name.isidentifier():
            raise OptionError(f"Avro has no field '{field.name}'", hint="names there are of A-Z a-z 0-9 _")
        fields.append(
            {"name": field.name, "type": ["null", _avro(field.type, f"{name}_{field.name}")], "default": None}
        )
    return {"type": "record", "name": name, "fields": fields}


def _avro(kind: pa.DataType, name: str) -> Any:
    if pa.types.is_struct(kind):
        return avro_of_schema(kind, name)
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _avro(kind.value_type, f"{name}_element")]}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return AVRO_NAMES[kind]
