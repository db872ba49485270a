"""Defaults of fields that a writer schema does not have: constants of the program, from the JSON of the reader
schema."""

from __future__ import annotations

import math
import struct
from ctypes import c_float
from typing import Any, Protocol

from kafkalog_spark.typed.avro.program import Op, Program
from kafkalog_spark.typed.avro.schema import NO_DEFAULT, AvroType
from kafkalog_spark.typed.avro.types import MILLIS, AvroMeaning, number_of_union
from kafkalog_spark.typed.columns.tree import ColumnTree

_INT32, _INT64 = 2**31, 2**63


class Puts(Protocol):
    """What the compiler of programs offers."""

    program: Program
    meaning: AvroMeaning

    def nulls(self, tree: ColumnTree, path: str) -> None: ...


def put_default(to: Puts, r: AvroType, value: Any, tree: ColumnTree | None, path: str, kept: str = "") -> None:
    """Put the instructions that add `value`, the default of a type, to its column. A default that its type cannot have
    makes every value bad, as in Java."""
    if not is_value(r, value):
        to.program.put(Op.REFUSED, path)
        return
    if tree is None:
        return
    put = to.program.put
    if r.kind == "null":
        to.nulls(tree, path)
    elif r.kind == "union":
        _union(to, r, value, tree, path)
    elif r.kind == "record":
        put(Op.STRUCT, path, tree.number)
        for one in r.fields:
            at = tree.type.get_field_index(one.name)
            below = tree.children[at] if at >= 0 else None
            put_default(to, one.type, _named(value).get(one.name, one.default), below, f"{path}.{one.name}")
    elif r.kind == "array":
        for element in value:
            put_default(to, r.element, element, tree.children[0], path)
        put(Op.LIST, path, tree.number)
    elif r.kind == "map":
        entry = tree.children[0]
        for key, element in _named(value).items():
            put(Op.STRUCT, path, entry.number)
            _text(to.program, key.encode("utf-8", "replace"), entry.children[0], path)
            put_default(to, r.element, element, entry.children[1], path)
        put(Op.LIST, path, tree.number)
    else:
        _leaf(to.program, r, value, tree, path, kept)


def _union(to: Puts, r: AvroType, value: Any, tree: ColumnTree, path: str) -> None:
    branch = default_branch(r, value)
    others = r.without_null()
    if branch.kind == "null":
        to.nulls(tree, path)
    elif len(others) == 1 or number_of_union(others):
        put_default(to, branch, value, tree, path, "" if len(others) == 1 else number_of_union(others) or "")
    else:
        to.program.put(Op.STRUCT, path, tree.number)
        i = others.index(branch)
        wanted = f"{to.meaning.prefix}{branch.short_name}" if to.meaning.stable_ids else f"member{i}"
        for j, child in enumerate(tree.children):
            if tree.type.field(j).name == wanted:
                put_default(to, branch, value, child, path)
            else:
                to.nulls(child, path)


def _leaf(program: Program, r: AvroType, value: Any, tree: ColumnTree, path: str, kept: str) -> None:
    put, c = program.put, tree.number
    if r.logical == "decimal":
        written = _bytes(r, value)
        unscaled = int.from_bytes(written, "big", signed=True)
        if not written or abs(unscaled) >= 10**r.precision:
            put(Op.REFUSED, path)
        else:
            low, high = struct.unpack("<qq", unscaled.to_bytes(16, "little", signed=True))
            put(Op.CONST_DECIMAL, path, c, low, high)
    elif r.kind in ("bytes", "fixed"):
        _text(program, _bytes(r, value), tree, path)
    elif r.kind in ("string", "enum"):
        _text(program, value.encode("utf-8", "replace"), tree, path)
    elif r.kind == "boolean":
        put(Op.CONST_BOOLEAN, path, c, int(value))
    elif r.kind in ("float", "double"):
        number = as_double(value)
        if r.kind == "float":
            number = c_float(number).value
        op = Op.CONST_F32 if r.kind == "float" and not kept else Op.CONST_F64
        put(op, path, c, program.text(struct.pack("<d", number)))
    elif r.kind == "int" and not kept:
        put(Op.CONST_I32, path, c, _whole(value, _INT32))
    elif r.logical in MILLIS and not kept:
        micros = _whole(value, _INT64) * 1000
        put(*((Op.CONST_I64, path, c, micros) if abs(micros) < _INT64 else (Op.REFUSED, path)))
    else:
        put(Op.CONST_I64, path, c, _whole(value, _INT32 if r.kind == "int" else _INT64))


def _whole(value: float, limit: int) -> int:
    """A number of JSON as an int or a long, as Java has it: the low bits of a whole one, of others the nearest that
    there is towards 0."""
    if isinstance(value, int):
        return (value + limit) % (2 * limit) - limit
    return int(min(max(value, -limit), limit - 1))


def _bytes(r: AvroType, value: str) -> bytes:
    """A text of JSON as bytes; of a fixed cut, or with zeros after it, as Java has it."""
    found = value.encode("latin-1", "replace")
    return found[: r.size].ljust(r.size, b"\0") if r.kind == "fixed" else found


def _named(value: Any) -> dict[str, Any]:
    """The members of a default; what is no object has none, for Java as well."""
    return value if isinstance(value, dict) else {}


def _text(program: Program, text: bytes, tree: ColumnTree, path: str) -> None:
    program.put(Op.CONST_BYTES, path, tree.number, program.text(text), len(text))


def as_double(value: float) -> float:
    """A number of JSON as a double: infinite where it is beyond all of them, as in Java."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


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
    """Whether a value of JSON can be a default of that type (Java's `Schema.isValidDefault`)."""
    if value is NO_DEFAULT:
        return False
    if r.kind == "union":
        return is_value(default_branch(r, value), value)
    if r.kind == "record":
        return all(is_value(one.type, _named(value).get(one.name, one.default)) for one in r.fields)
    if r.kind == "array":
        return isinstance(value, list) and all(is_value(r.element, one) for one in value)
    if r.kind == "map":
        return all(is_value(r.element, one) for one in _named(value).values())
    return _is_leaf(r, value)


def _is_leaf(r: AvroType, value: Any) -> bool:
    if r.kind == "null":
        return value is None
    if r.kind == "boolean":
        return isinstance(value, bool)
    if r.kind in ("int", "long", "float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str) and (r.kind != "enum" or value in r.symbols)
