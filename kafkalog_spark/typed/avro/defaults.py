"""Defaults of Avro fields: which JSON values are valid, and how they are encoded."""

from __future__ import annotations

import math
import struct
from ctypes import c_float
from typing import Any

from kafkalog_spark.format.varints import write_varint
from kafkalog_spark.typed.avro.schema import NO_DEFAULT, AvroType

_INT32, _INT64 = 2**31, 2**63
END = b"\0"  # block count that ends an array or map


def zigzag(number: int) -> bytes:
    """Return the Avro encoding of an int or long."""
    varint = bytearray()
    write_varint(varint, number)
    return bytes(varint)


def default_bytes(type_: AvroType, value: Any) -> bytes:
    """Return the binary encoding of a default, like Java's `ResolvingGrammarGenerator.encode`.

    Integers that are too large keep their low bits, and other numbers become the nearest one. A fixed is truncated or
    padded with zeros.

    Args:
        type_: Type of the field.
        value: JSON value for which `is_value` is true.
    """
    match type_.kind:
        case "union":
            branch = default_branch(type_, value)
            return zigzag(type_.branches.index(branch)) + default_bytes(branch, value)
        case "record":
            members = _members(value)
            return b"".join(default_bytes(field.type, members.get(field.name, field.default)) for field in type_.fields)
        case "array" | "map":
            if type_.kind == "array":
                parts = [default_bytes(type_.element, element) for element in value]
            else:
                parts = [
                    _sized(key.encode("utf-8", "replace")) + default_bytes(type_.element, item)
                    for key, item in _members(value).items()
                ]
            return (zigzag(len(parts)) + b"".join(parts) if parts else b"") + END
        case "null":
            return b""
        case "boolean":
            return b"\1" if value else b"\0"
        case "int" | "long":
            limit = _INT32 if type_.kind == "int" else _INT64
            whole = (
                (value + limit) % (2 * limit) - limit if isinstance(value, int) else min(max(value, -limit), limit - 1)
            )
            return zigzag(int(whole))
        case "float" | "double":
            try:
                number = float(value)
            except OverflowError:  # an integer out of the range of double becomes infinite
                number = math.inf if value > 0 else -math.inf
            return struct.pack("<d", number) if type_.kind == "double" else bytes(c_float(number))
        case "bytes":
            return _sized(value.encode("latin-1", "replace"))
        case "fixed":
            return bytes(value.encode("latin-1", "replace")[: type_.size].ljust(type_.size, b"\0"))
        case "enum":
            return zigzag(type_.symbols.index(value))
    return _sized(value.encode("utf-8", "replace"))


def default_branch(type_: AvroType, value: Any) -> AvroType:
    """Return the branch of a union that a default is encoded as: like Java 1.12, the first one that may match.

    Every JSON value may match an enum, record, array or map. So null is not a default of a union in which the branch
    null comes after one of these.
    """
    for branch in type_.branches:
        if branch.kind in ("record", "enum", "array", "map"):
            return branch
        textual = branch.kind in ("string", "bytes", "fixed") and isinstance(value, str)
        if textual or (branch.kind not in ("string", "bytes", "fixed") and _is_leaf(branch, value)):
            return branch
    return type_.branches[0]


def is_value(type_: AvroType, value: Any) -> bool:
    """Return whether a JSON value is a valid default of a type (Java's `Schema.isValidDefault`)."""
    if value is NO_DEFAULT:
        return False
    if type_.kind == "union":
        return is_value(default_branch(type_, value), value)
    if type_.kind == "record":
        return all(is_value(field.type, _members(value).get(field.name, field.default)) for field in type_.fields)
    if type_.kind == "array":
        return isinstance(value, list) and all(is_value(type_.element, element) for element in value)
    if type_.kind == "map":
        return all(is_value(type_.element, element) for element in _members(value).values())
    return _is_leaf(type_, value)


def _is_leaf(type_: AvroType, value: Any) -> bool:
    if type_.kind == "null":
        return value is None
    if type_.kind == "boolean":
        return isinstance(value, bool)
    if type_.kind in ("int", "long", "float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str) and (type_.kind != "enum" or value in type_.symbols)


def _members(value: Any) -> dict[str, Any]:
    """Return the members of a JSON object. Any other JSON value has no members, as in Java."""
    return value if isinstance(value, dict) else {}


def _sized(data: bytes) -> bytes:
    return zigzag(len(data)) + data
