"""The default of a field in Avro's binary encoding: what is written where there is no column for the field."""

from __future__ import annotations

import struct
from ctypes import c_float
from typing import Any

from kafkalog_spark.log.format.records import write_varint
from kafkalog_spark.typed.avro.defaults import as_double, default_branch
from kafkalog_spark.typed.avro.schema import AvroType


def default_bytes(avro: AvroType, value: Any) -> bytes:
    """value: of JSON, which `is_value` holds for."""
    if avro.kind == "union":
        branch = default_branch(avro, value)
        return zigzag(avro.branches.index(branch)) + default_bytes(branch, value)
    if avro.kind == "record":
        return b"".join(default_bytes(one.type, value.get(one.name, one.default)) for one in avro.fields)
    if avro.kind == "array":
        return _block([default_bytes(avro.element, one) for one in value])
    if avro.kind == "map":
        return _block(
            [_sized(key.encode("utf-8", "replace")) + default_bytes(avro.element, one) for key, one in value.items()]
        )
    return _leaf(avro, value)


def _leaf(avro: AvroType, value: Any) -> bytes:
    match avro.kind:
        case "null":
            return b""
        case "boolean":
            return b"\1" if value else b"\0"
        case "int" | "long":
            return zigzag(int(value))
        case "float" | "double":
            number = as_double(value)
            return struct.pack("<d", number) if avro.kind == "double" else bytes(c_float(number))
        case "bytes":
            return _sized(value.encode("latin-1"))
        case "fixed":
            return bytes(value.encode("latin-1"))
        case "enum":
            return zigzag(avro.symbols.index(value))
    return _sized(value.encode("utf-8", "replace"))


def zigzag(number: int) -> bytes:
    """An int or long."""
    found = bytearray()
    write_varint(found, number)
    return bytes(found)


def _sized(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def _block(elements: list[bytes]) -> bytes:
    return (zigzag(len(elements)) + b"".join(elements) if elements else b"") + b"\0"
