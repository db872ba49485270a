"""The Avro schema that Spark's `to_avro` derives from columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError

PRIMITIVE_NAMES = {
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


def avro_schema_of(type_: pa.DataType, nullable: bool, name: str = "topLevelRecord", namespace: str = "") -> Any:
    """Return the Avro schema of an Arrow type as JSON, like Spark's `SchemaConverters.toAvroType`.

    Args:
        type_: The type.
        nullable: Whether the schema is a union with null.
        name: Name of the record or fixed.
        namespace: Namespace of the record or fixed.

    Raises:
        OptionError: If Avro has no such type.
    """
    avro = _schema_without_null(type_, name, namespace)
    return [avro, "null"] if nullable and avro != "null" else avro


def _schema_without_null(type_: pa.DataType, name: str, namespace: str) -> Any:
    if type_ in PRIMITIVE_NAMES:
        return PRIMITIVE_NAMES[type_]
    if pa.types.is_date32(type_):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_timestamp(type_):
        return {"type": "long", "logicalType": "timestamp-micros" if type_.tz else "local-timestamp-micros"}
    if pa.types.is_decimal(type_):
        size = next(n for n in range(1, 17) if 10**type_.precision <= 1 << (8 * n - 1))
        full_name = f"{namespace}.{name}.fixed" if namespace else f"{name}.fixed"
        decimal = {"logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
        return {"type": "fixed", "name": full_name, "size": size, **decimal}
    if pa.types.is_list(type_):
        return {"type": "array", "items": avro_schema_of(type_.value_type, type_.value_field.nullable, name, namespace)}
    if pa.types.is_map(type_) and type_.key_type == pa.string():
        return {"type": "map", "values": avro_schema_of(type_.item_type, type_.item_field.nullable, name, namespace)}
    if pa.types.is_struct(type_):
        field_namespace = f"{namespace}.{name}" if namespace else name
        fields = [{"name": f.name, "type": avro_schema_of(f.type, f.nullable, f.name, field_namespace)} for f in type_]
        return {"type": "record", "name": name, **({"namespace": namespace} if namespace else {}), "fields": fields}
    raise OptionError(f"a column of type {type_} cannot be written as Avro")
