"""Schema resolution: a writer schema, a reader schema and a projection become the program that decodes.

The rules are those of Avro 1.12's `Resolver` in Java, which `from_avro` reads with: fields by name, aliases of the
reader schema, promotions, defaults, the first branch of a union that matches. What cannot be resolved is refused when a
value comes to it, not before. Fields of the reader schema that are not projected are read all the same, since they can
make a value bad; those that only the writer has are skipped.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from ctypes import c_float
from typing import Any

from kafkalog_spark.typed.avro import schema
from kafkalog_spark.typed.avro.program import As, AvroProgram, Op
from kafkalog_spark.typed.avro.schema import NO_DEFAULT, AvroType, equal_types, is_error, matching_branch
from kafkalog_spark.typed.avro.types import MILLIS, VALUE, AvroMeaning, number_of_union, root_record
from kafkalog_spark.typed.columns.projection import NOT_PROJECTED, ColumnTree

_INT32, _INT64 = 2**31, 2**63


def _whole(value: float, limit: int) -> int:
    """A JSON number as an int or a long, as in Java: the low bits of a whole one, else the nearest towards 0."""
    if isinstance(value, int):
        return (value + limit) % (2 * limit) - limit
    return int(min(max(value, -limit), limit - 1))


def _bytes(r: AvroType, value: str) -> bytes:
    """A text of JSON as bytes; of a fixed cut, or with zeros after it, as Java has it."""
    data = value.encode("latin-1", "replace")
    return data[: r.size].ljust(r.size, b"\0") if r.kind == "fixed" else data


def _named(value: Any) -> dict[str, Any]:
    """The members of a default; what is no object has none, for Java as well."""
    return value if isinstance(value, dict) else {}


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


def add_reading(
    program: AvroProgram, writer: AvroType, reader: AvroType, tree: ColumnTree, meaning: AvroMeaning
) -> int:
    """Add what decodes values of `writer` as `reader` into `tree`, a struct of the projected fields of the reader's
    record, or of the column `value`; the row where it begins. Raises OptionError for too many steps."""
    compiler = _Compiler(program, meaning)
    begin = len(program.rows)
    writer = schema.applied(writer, reader)
    if root_record(reader) is not None:
        compiler.read(writer, reader, tree, VALUE, root=True)
    else:
        program.put(Op.STRUCT, VALUE, tree.number)
        compiler.read(writer, reader, _field(tree, VALUE), VALUE)
    program.put(Op.END, VALUE)
    compiler.routines()
    return begin


def _field(tree: ColumnTree | None, name: str) -> ColumnTree | None:
    if tree is None:
        return None
    at = tree.type.get_field_index(name)
    return tree.children[at] if at >= 0 else None


def _number(tree: ColumnTree | None) -> int:
    return NOT_PROJECTED if tree is None else tree.number


class _Compiler:
    def __init__(self, program: AvroProgram, meaning: AvroMeaning) -> None:
        self.program = program
        self.meaning = meaning
        self._enums: dict[tuple[int, int], int] = {}  # starts of their tables, by (writer, reader)
        self._routines: dict[tuple[int, int], tuple[AvroType, AvroType | None, list[int], str]] = {}
        """Records, perhaps recursive, that are read for no column or skipped: (writer, reader), and who calls them."""

    def routines(self) -> None:
        """Put what CALL rows call, and what that calls."""
        begins: dict[tuple[int, int], int] = {}
        while waiting := [key for key in self._routines if key not in begins]:
            for key in waiting:
                writer, reader, _, path = self._routines[key]
                begins[key] = len(self.program.rows)
                if reader is None:
                    for field in writer.fields:
                        self.skip(field.type, f"{path}.{field.name}")
                else:
                    self._record(writer, reader, None, path)
                self.program.put(Op.RETURN, path)
        for key, (_, _, callers, _) in self._routines.items():
            for row in callers:
                self.program.set(row, 1, begins[key])

    def _call(self, writer: AvroType, reader: AvroType | None, path: str) -> None:
        key = (id(writer), 0 if reader is None else id(reader))
        row = self.program.put(Op.CALL, path)
        self._routines.setdefault(key, (writer, reader, [], path))[2].append(row)

    def read(
        self, w: AvroType, r: AvroType, tree: ColumnTree | None, path: str, kept: str = "", root: bool = False
    ) -> None:
        """Read a value of `w` as `r`. kept: "long" or "double" for a union of numbers. root: null is refused."""
        if w.kind == "union":
            self._writer_union(w, r, tree, path, root)
        elif r.kind == "union":
            self._as_branch(w, r, matching_branch(w, r), tree, path, root)
        elif w.kind == "record" and r.kind == "record":
            if tree is None:
                self._call(w, r, path)
            else:
                self._record(w, r, tree, path)
        elif w.kind == r.kind and w.kind in ("array", "map"):
            self._container(w, r, tree, path)
        elif is_error(w, r):
            self.program.put(Op.REFUSED, path)
        elif w.kind == "enum":
            self._enum(w, r, tree, path)
        else:
            self._leaf(w, r, tree, path, kept)

    def _writer_union(self, w: AvroType, r: AvroType, tree: ColumnTree | None, path: str, root: bool) -> None:
        if r.kind == "union" and len(w.branches) == 2 and w.has_null() and r.has_null() and not root:
            null = 0 if w.branches[0].kind == "null" else 1
            listed = [] if tree is None else tree.under()
            start = self.program.table(listed)
            row = self.program.put(Op.NULLABLE, path, null, 0, start, start + len(listed))
            self._from_branch(w, 1 - null, r, tree, path, root)
            self.program.set(row, 2, len(self.program.rows))
            return
        self._branches(w, path, lambda i: self._from_branch(w, i, r, tree, path, root))

    def _branches(self, w: AvroType, path: str, put_branch: Callable[[int], None]) -> None:
        """A union: its index, then what `put_branch` puts for each branch."""
        start = self.program.table([0] * len(w.branches))
        self.program.put(Op.UNION, path, len(w.branches), start)
        jumps = []
        for i in range(len(w.branches)):
            self.program.tables[start + i] = len(self.program.rows)
            put_branch(i)
            jumps.append(self.program.put(Op.JUMP, path))
        for row in jumps:
            self.program.set(row, 1, len(self.program.rows))

    def _from_branch(self, w: AvroType, i: int, r: AvroType, tree: ColumnTree | None, path: str, root: bool) -> None:
        if r.kind == "union" and equal_types(w, r):
            self._as_branch(w.branches[i], r, i, tree, path, root)
        else:
            self.read(w.branches[i], r, tree, path, root=root)

    def _as_branch(self, w: AvroType, r: AvroType, i: int, tree: ColumnTree | None, path: str, root: bool) -> None:
        """Read `w` as branch i of the union `r`."""
        if i < 0:
            self.program.put(Op.REFUSED, path)
            return
        branch = r.branches[i]
        if branch.kind == "null":
            if root:
                self.program.put(Op.REFUSED, path)
            else:
                self.nulls(tree, path)
        else:
            self._put_branch(r, branch, tree, path, lambda part, kept: self.read(w, branch, part, path, kept, root))

    def _put_branch(
        self, r: AvroType, branch: AvroType, tree: ColumnTree | None, path: str,
        put: Callable[[ColumnTree | None, str], None],
    ) -> None:  # fmt: skip
        """Let `put` put a branch of the union `r`, which is not null, into its column, nulls into the others'."""
        others = r.without_null()
        number = number_of_union(others)
        if len(others) == 1 or number or tree is None:
            put(tree, number or "")
            return
        self.program.put(Op.STRUCT, path, tree.number)
        member = self.meaning.member(others.index(branch), branch)
        for field, child in zip(tree.type, tree.children, strict=True):
            if field.name == member:
                put(child, "")
            else:
                self.nulls(child, path)
        if _field(tree, member) is None:
            put(None, "")

    def nulls(self, tree: ColumnTree | None, path: str) -> None:
        """Make the entry of a part null, if it is projected."""
        if tree is None:
            return
        listed = tree.under()
        start = self.program.table(listed)
        self.program.put(Op.NULLS, path, start, start + len(listed))

    def _record(self, w: AvroType, r: AvroType, tree: ColumnTree | None, path: str) -> None:
        written = {field.name for field in w.fields}
        missing = [field for field in r.fields if field.name not in written]
        for field in missing:
            if field.default is NO_DEFAULT:
                self.program.put(Op.REFUSED, f"{path}.{field.name}")
                return
        if tree is not None:
            self.program.put(Op.STRUCT, path, tree.number)
        reads = {field.name: field for field in r.fields}
        for wrote in w.fields:
            below = f"{path}.{wrote.name}"
            if wrote.name in reads:
                self.read(wrote.type, reads[wrote.name].type, _field(tree, wrote.name), below)
            else:
                self.skip(wrote.type, below)
        for field in missing:
            self._default(field.type, field.default, _field(tree, field.name), f"{path}.{field.name}")

    def _default(self, r: AvroType, value: Any, tree: ColumnTree | None, path: str, kept: str = "") -> None:
        """Put the instructions that add `value`, the default of a type in the reader schema's JSON, to its column. A
        default that its type cannot have makes every value bad, as in Java."""
        put = self.program.put
        if not is_value(r, value):
            put(Op.REFUSED, path)
        elif tree is None:
            return
        elif r.kind == "null":
            self.nulls(tree, path)
        elif r.kind == "union":
            branch = default_branch(r, value)
            if branch.kind == "null":
                self.nulls(tree, path)
            else:
                self._put_branch(
                    r, branch, tree, path, lambda part, kept: self._default(branch, value, part, path, kept)
                )
        elif r.kind == "record":
            put(Op.STRUCT, path, tree.number)
            for field in r.fields:
                member = _named(value).get(field.name, field.default)
                self._default(field.type, member, _field(tree, field.name), f"{path}.{field.name}")
        elif r.kind == "array":
            for element in value:
                self._default(r.element, element, tree.children[0], path)
            put(Op.LIST, path, tree.number)
        elif r.kind == "map":
            entry = tree.children[0]
            for key, element in _named(value).items():
                put(Op.STRUCT, path, entry.number)
                self._text(key.encode("utf-8", "replace"), entry.children[0], path)
                self._default(r.element, element, entry.children[1], path)
            put(Op.LIST, path, tree.number)
        else:
            self._default_of_leaf(r, value, tree, path, kept)

    def _default_of_leaf(self, r: AvroType, value: Any, tree: ColumnTree, path: str, kept: str) -> None:
        put, c = self.program.put, tree.number
        if r.logical == "decimal":
            written = _bytes(r, value)
            unscaled = int.from_bytes(written, "big", signed=True)
            if not written or abs(unscaled) >= 10**r.precision:
                put(Op.REFUSED, path)
            else:
                low, high = struct.unpack("<qq", unscaled.to_bytes(16, "little", signed=True))
                put(Op.CONST_DECIMAL, path, c, low, high)
        elif r.kind in ("bytes", "fixed"):
            self._text(_bytes(r, value), tree, path)
        elif r.kind in ("string", "enum"):
            self._text(value.encode("utf-8", "replace"), tree, path)
        elif r.kind == "boolean":
            put(Op.CONST_BOOLEAN, path, c, int(value))
        elif r.kind in ("float", "double"):
            number = as_double(value)
            if r.kind == "float":
                number = c_float(number).value
            op = Op.CONST_F32 if r.kind == "float" and not kept else Op.CONST_F64
            put(op, path, c, self.program.text(struct.pack("<d", number)))
        elif r.kind == "int" and not kept:
            put(Op.CONST_I32, path, c, _whole(value, _INT32))
        elif r.logical in MILLIS and not kept:
            micros = _whole(value, _INT64) * 1000
            put(*((Op.CONST_I64, path, c, micros) if abs(micros) < _INT64 else (Op.REFUSED, path)))
        else:
            put(Op.CONST_I64, path, c, _whole(value, _INT32 if r.kind == "int" else _INT64))

    def _text(self, text: bytes, tree: ColumnTree, path: str) -> None:
        self.program.put(Op.CONST_BYTES, path, tree.number, self.program.text(text), len(text))

    def _container(self, w: AvroType, r: AvroType, tree: ColumnTree | None, path: str) -> None:
        is_map = w.kind == "map"
        part = None if tree is None else tree.children[0]
        begin = self.program.put(Op.ARRAY, path, _number(tree))
        values = part
        if is_map:
            key, values = (None, None) if part is None else (part.children[0], part.children[1])
            if part is not None:
                self.program.put(Op.STRUCT, path, part.number)
            self.program.put(Op.BYTES, f"{path}.key", _number(key))
            self._note_java_text(r, _number(key))
        self.read(w.element, r.element, values, f"{path}.{'value' if is_map else 'element'}")
        key_column = part.children[0].number if is_map and part is not None else -1
        row = self.program.put(Op.NEXT, path, _number(tree), begin + 1, key_column)
        self.program.set(begin, 2, row)

    def _enum(self, w: AvroType, r: AvroType, tree: ColumnTree | None, path: str) -> None:
        if (id(w), id(r)) not in self._enums:
            self._enums[id(w), id(r)] = self._symbols(w, r)
        self.program.put(Op.ENUM, path, _number(tree), self._enums[id(w), id(r)], len(w.symbols))

    def _symbols(self, w: AvroType, r: AvroType) -> int:
        table: list[int] = []
        reads = frozenset(r.symbols)
        for symbol in w.symbols:
            kept = symbol if symbol in reads else r.default_symbol
            if kept is None:
                table += [-1, 0]
            else:
                text = kept.encode()
                table += [self.program.text(text), len(text)]
        return self.program.table(table)

    def _leaf(self, w: AvroType, r: AvroType, tree: ColumnTree | None, path: str, kept: str) -> None:
        put, c = self.program.put, _number(tree)
        if r.logical == "decimal":
            put(Op.DECIMAL, path, c, r.precision, r.size if r.kind == "fixed" else -1)
        elif w.kind in ("bytes", "string"):
            put(Op.BYTES, path, c)
            if r.kind == "string":
                self._note_java_text(r, c)
        elif w.kind == "fixed":
            put(Op.FIXED, path, c, w.size)
        elif w.kind == "boolean":
            put(Op.BOOLEAN, path, c)
        elif w.kind == "null":
            self.nulls(tree, path)
        elif w.kind == "double":
            put(Op.DOUBLE, path, c)
        elif w.kind == "float":
            put(Op.FLOAT, path, c, As.F64 if r.kind == "double" or kept else As.F32)
        else:
            put(Op.INT if w.kind == "int" else Op.LONG, path, c, number_as(r, kept))

    def _note_java_text(self, r: AvroType, column: int) -> None:
        if r.properties.get("avro.java.string") == "String":
            self.program.java_texts.add(column)

    def skip(self, w: AvroType, path: str) -> None:
        """Pass over a value that the reader schema does not have."""
        put = self.program.put
        if w.kind in ("bytes", "string"):
            put(Op.BYTES, path, NOT_PROJECTED)
        elif w.kind in ("int", "enum"):
            put(Op.INT, path, NOT_PROJECTED, As.I32)
        elif w.kind == "long":
            put(Op.LONG, path, NOT_PROJECTED, As.I64)
        elif w.kind in ("boolean", "float", "double", "fixed"):
            put(Op.FIXED, path, NOT_PROJECTED, {"boolean": 1, "float": 4, "double": 8}.get(w.kind, w.size))
        elif w.kind in ("array", "map"):
            begin = put(Op.SKIP_ARRAY, path)
            if w.kind == "map":
                put(Op.BYTES, path, NOT_PROJECTED)
            self.skip(w.element, path)
            self.program.set(begin, 2, put(Op.SKIP_NEXT, path, 0, begin + 1))
        elif w.kind == "record":
            self._call(w, None, path)
        elif w.kind == "union":
            self._branches(w, path, lambda i: self.skip(w.branches[i], path))


def number_as(r: AvroType, kept: str) -> As:
    """How an int or a long is kept as the number `r`; the long of a union with int is a number, whatever it means."""
    if r.logical in MILLIS and not kept:
        return As.MILLIS
    if r.kind == "double":
        return As.F64
    if r.kind == "float":
        return As.F32_AS_F64 if kept else As.F32
    return As.I64 if r.kind == "long" or kept else As.I32
