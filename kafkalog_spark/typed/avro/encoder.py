"""Rows to Avro, by fastavro: the schema that is given, or the one that Spark's `to_avro` makes of the columns."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord, OptionError
from kafkalog_spark.typed.schema_text import schema_text

_PLAIN = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.null(): "null",
}


def avro_schema_of(type_: pa.DataType, nullable: bool, name: str = "topLevelRecord", space: str = "") -> Any:
    """The Avro schema of an Arrow type, as JSON: Spark's `SchemaConverters.toAvroType`. Raises OptionError."""
    found = _not_null(type_, name, space)
    return [found, "null"] if nullable and found != "null" else found


def _not_null(type_: pa.DataType, name: str, space: str) -> Any:
    if type_ in _PLAIN:
        return _PLAIN[type_]
    if pa.types.is_date32(type_):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_timestamp(type_):
        return {"type": "long", "logicalType": "timestamp-micros" if type_.tz else "local-timestamp-micros"}
    if pa.types.is_decimal(type_):
        size = next(n for n in range(1, 17) if 10**type_.precision <= 1 << (8 * n - 1))
        full = f"{space}.{name}.fixed" if space else f"{name}.fixed"
        decimal = {"logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
        return {"type": "fixed", "name": full, "size": size, **decimal}
    if pa.types.is_list(type_):
        return {"type": "array", "items": avro_schema_of(type_.value_type, type_.value_field.nullable, name, space)}
    if pa.types.is_map(type_) and type_.key_type == pa.string():
        return {"type": "map", "values": avro_schema_of(type_.item_type, type_.item_field.nullable, name, space)}
    if pa.types.is_struct(type_):
        inside = f"{space}.{name}" if space else name
        fields = [{"name": f.name, "type": avro_schema_of(f.type, f.nullable, f.name, inside)} for f in type_]
        return {"type": "record", "name": name, **({"namespace": space} if space else {}), "fields": fields}
    raise OptionError(f"a column of type {type_} cannot be written as Avro")


class AvroEncoder:
    """Encodes rows as values of one schema. `schema_json`: the schema, as text."""

    def __init__(self, schema: str | None, given: pa.Schema, prefix: bytes = b"") -> None:
        """prefix: what begins each value. Raises OptionError for a schema that fastavro refuses, and where there is
        none."""
        try:
            import fastavro
        except ImportError as error:
            raise OptionError("writing Avro needs fastavro", hint="pip install 'kafkalog[avro]'") from error
        made = avro_schema_of(pa.struct(list(given)), nullable=False) if schema is None else None
        self.schema_json = json.dumps(made) if schema is None else schema_text("value.schema", schema)
        try:
            self._schema = fastavro.parse_schema(json.loads(self.schema_json))
        except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, ValueError) as error:
            raise OptionError(f"option 'value.schema' is no Avro schema: {error}") from error
        self._write = fastavro.schemaless_writer
        self._prefix = prefix
        # A schema that is no record is that of the one column.
        self._of_column = None if self._is_record() else given.names[0]

    def _is_record(self) -> bool:
        return isinstance(self._schema, dict) and self._schema.get("type") == "record"

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """As ValueEncoder.encode. Raises InvalidRecord for a row that the schema has no place for."""
        found: list[bytes | None] = []
        for i, row in enumerate(_rows(columns)):
            if row is None:
                found.append(None)
                continue
            out = io.BytesIO()
            out.write(self._prefix)
            try:
                self._write(out, self._schema, row if self._of_column is None else row[self._of_column], strict=True)
            except (ValueError, TypeError, KeyError, OverflowError, AttributeError, EOFError) as error:
                raise InvalidRecord(f"row {i} does not fit the Avro schema: {error}") from error
            found.append(out.getvalue())
        return pa.array(found, pa.binary())


def _rows(columns: pa.StructArray) -> list[Any]:
    return [_plain(row, columns.type) for row in columns.to_pylist()]


def _plain(value: Any, type_: pa.DataType) -> Any:
    """A value as fastavro wants it: maps as dict."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: _plain(value[field.name], field.type) for field in type_}
    if pa.types.is_map(type_):
        return {key: _plain(one, type_.item_type) for key, one in value}
    if pa.types.is_list(type_):
        return [_plain(one, type_.value_type) for one in value]
    return value
