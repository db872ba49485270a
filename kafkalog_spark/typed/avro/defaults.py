"""Defaults of Avro fields."""

from __future__ import annotations

import math
import struct
from ctypes import c_float
from typing import Any

from kafkalog_spark.format.varints import write_varint
from kafkalog_spark.typed.avro.schema import NO_DEFAULT, AvroType

_INT32, _INT64 = 2**31, 2**63
END = b"\0"  # end of the blocks of an array or a map


def zigzag(number: int) -> bytes:
    """An int or a long as Avro has it."""
    varint = bytearray()
    write_varint(varint, number)
    return bytes(varint)


def _sized(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def _named(value: Any) -> dict[str, Any]:
    """The members of a default; what is no object has none, for Java as well."""
    return value if isinstance(value, dict) else {}


def default_bytes(r: AvroType, value: Any) -> bytes:
    """The default of a field in Avro's binary encoding, as Java has it (`ResolvingGrammarGenerator.encode`): numbers
    keep their low bits, or are the nearest there is; a fixed is cut, or has zeros after it. value: of JSON, which
    `is_value` holds for."""
    match r.kind:
        case "union":
            branch = default_branch(r, value)
            return zigzag(r.branches.index(branch)) + default_bytes(branch, value)
        case "record":
            members = _named(value)
            return b"".join(default_bytes(field.type, members.get(field.name, field.default)) for field in r.fields)
        case "array" | "map":
            held = [default_bytes(r.element, one) for one in (value if r.kind == "array" else _named(value).values())]
            if r.kind == "map":
                held = [
                    _sized(key.encode("utf-8", "replace")) + one for key, one in zip(_named(value), held, strict=True)
                ]
            return (zigzag(len(held)) + b"".join(held) if held else b"") + END
        case "null":
            return b""
        case "boolean":
            return b"\1" if value else b"\0"
        case "int" | "long":
            limit = _INT32 if r.kind == "int" else _INT64
            whole = (
                (value + limit) % (2 * limit) - limit if isinstance(value, int) else min(max(value, -limit), limit - 1)
            )
            return zigzag(int(whole))
        case "float" | "double":
            try:
                number = float(value)
            except OverflowError:  # infinite where it is beyond all of them
                number = math.inf if value > 0 else -math.inf
            return struct.pack("<d", number) if r.kind == "double" else bytes(c_float(number))
        case "bytes":
            return _sized(value.encode("latin-1", "replace"))
        case "fixed":
            return bytes(value.encode("latin-1", "replace")[: r.size].ljust(r.size, b"\0"))
        case "enum":
            return zigzag(r.symbols.index(value))
    return _sized(value.encode("utf-8", "replace"))


def default_branch(r: AvroType, value: Any) -> AvroType:
    """The branch of a union that a default is taken for: the first that might be it, as Java 1.12 looks at them. Enums,
    records, arrays and maps might be anything, so a null that comes after one of them is no default of the union."""
    for branch in r.branches:
        if branch.kind in ("record", "enum", "array", "map"):
            return branch
        textual = branch.kind in ("string", "bytes", "fixed") and isinstance(value, str)
        if textual or (branch.kind not in ("string", "bytes", "fixed") and _is_leaf(branch, value)):
            return branch
    return r.branches[0]


def is_value(r: AvroType, value: Any) -> bool:
    """True if a value of JSON can be a default of that type (Java's `Schema.isValidDefault`)."""
    if value is NO_DEFAULT:
        return False
    if r.kind == "union":
        return is_value(default_branch(r, value), value)
    if r.kind == "record":
        return all(is_value(field.type, _named(value).get(field.name, field.default)) for field in r.fields)
    if r.kind == "array":
        return isinstance(value, list) and all(is_value(r.element, element) for element in value)
    if r.kind == "map":
        return all(is_value(r.element, element) for element in _named(value).values())
    return _is_leaf(r, value)


def _is_leaf(r: AvroType, value: Any) -> bool:
    if r.kind == "null":
        return value is None
    if r.kind == "boolean":
        return isinstance(value, bool)
    if r.kind in ("int", "long", "float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str) and (r.kind != "enum" or value in r.symbols)
