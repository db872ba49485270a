"""Defaults of fields that a writer schema does not have: constants of the program, from the JSON of the reader
schema."""

from __future__ import annotations

import struct
from typing import Any, Protocol

from kafkalog_spark.typed.avro.program import Op, Program
from kafkalog_spark.typed.avro.schema import NO_DEFAULT, AvroType
from kafkalog_spark.typed.avro.types import AvroMeaning, number_of_union
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
            put_default(to, one.type, value.get(one.name, one.default), below, f"{path}.{one.name}")
    elif r.kind == "array":
        for element in value:
            put_default(to, r.element, element, tree.children[0], path)
        put(Op.LIST, path, tree.number)
    elif r.kind == "map":
        entry = tree.children[0]
        for key, element in value.items():
            put(Op.STRUCT, path, entry.number)
            _text(to.program, key.encode(), entry.children[0], path)
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
        unscaled = int.from_bytes(value.encode("latin-1"), "big", signed=True)
        if not value or abs(unscaled) >= 10**r.precision:
            put(Op.REFUSED, path)
        else:
            low, high = struct.unpack("<qq", unscaled.to_bytes(16, "little", signed=True))
            put(Op.CONST_DECIMAL, path, c, low, high)
    elif r.kind in ("bytes", "fixed"):
        _text(program, value.encode("latin-1"), tree, path)
    elif r.kind in ("string", "enum"):
        _text(program, value.encode("utf-8", "replace"), tree, path)
    elif r.kind == "boolean":
        put(Op.CONST_BOOLEAN, path, c, int(value))
    elif r.kind in ("float", "double"):
        number = struct.unpack("<f", struct.pack("<f", value))[0] if r.kind == "float" else float(value)
        op = Op.CONST_F32 if r.kind == "float" and not kept else Op.CONST_F64
        put(op, path, c, program.text(struct.pack("<d", number)))
    elif r.kind == "int" and not kept:
        put(Op.CONST_I32, path, c, int(value))
    elif r.logical in ("timestamp-millis", "local-timestamp-millis"):
        micros = int(value) * 1000
        put(*((Op.CONST_I64, path, c, micros) if abs(micros) < _INT64 else (Op.REFUSED, path)))
    else:
        put(Op.CONST_I64, path, c, int(value))


def _text(program: Program, text: bytes, tree: ColumnTree, path: str) -> None:
    program.put(Op.CONST_BYTES, path, tree.number, program.text(text), len(text))


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
        return isinstance(value, dict) and all(is_value(one.type, value.get(one.name, one.default)) for one in r.fields)
    if r.kind == "array":
        return isinstance(value, list) and all(is_value(r.element, one) for one in value)
    if r.kind == "map":
        return isinstance(value, dict) and all(is_value(r.element, one) for one in value.values())
    return _is_leaf(r, value)


def _is_leaf(r: AvroType, value: Any) -> bool:
    if r.kind == "null":
        return value is None
    if r.kind == "boolean":
        return isinstance(value, bool)
    if r.kind in ("int", "long"):
        limit = _INT32 if r.kind == "int" else _INT64
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return whole and not isinstance(value, bool) and -limit <= value < limit
    if r.kind in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if r.kind in ("bytes", "fixed"):
        sized = r.kind == "bytes" or (isinstance(value, str) and len(value) == r.size)
        return isinstance(value, str) and sized and all(ord(one) < 256 for one in value)
    return isinstance(value, str) and (r.kind == "string" or value in r.symbols)
