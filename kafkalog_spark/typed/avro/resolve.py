"""Schema resolution: a writer schema, a reader schema and a projection become the program that decodes.

The rules are those of Avro 1.12's `Resolver` in Java, which `from_avro` reads with: fields by name, aliases of the
reader schema, promotions, defaults, the first branch of a union that matches. What cannot be resolved is refused when a
value comes to it, not before. Fields of the reader schema that are not projected are read all the same, since they can
make a value bad; those that only the writer has are skipped.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalog_spark.typed.avro.defaults import default_bytes, is_value
from kafkalog_spark.typed.avro.program import As, AvroProgram, Op
from kafkalog_spark.typed.avro.schema import AvroType
from kafkalog_spark.typed.avro.type_matching import equal_types, is_error, matching_branch
from kafkalog_spark.typed.avro.types import MILLIS, AvroMeaning, number_of_union
from kafkalog_spark.typed.columns.projection import NOT_PROJECTED, ColumnTree


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
            listed = [] if tree is None else tree.null_columns()
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
        """Read `w` as branch i of the union `r`: into its column, and nulls into those of the others."""
        if i < 0:
            self.program.put(Op.REFUSED, path)
            return
        branch = r.branches[i]
        if branch.kind == "null":
            if root:
                self.program.put(Op.REFUSED, path)
            else:
                self.nulls(tree, path)
            return
        others = r.without_null()
        number = number_of_union(others)
        if len(others) == 1 or number or tree is None:
            self.read(w, branch, tree, path, number or "", root)
            return
        self.program.put(Op.STRUCT, path, tree.number)
        member = self.meaning.member(others.index(branch), branch)
        for field, child in zip(tree.type, tree.children, strict=True):
            if field.name == member:
                self.read(w, branch, child, path, root=root)
            else:
                self.nulls(child, path)
        if _field(tree, member) is None:
            self.read(w, branch, None, path, root=root)

    def nulls(self, tree: ColumnTree | None, path: str) -> None:
        """Make the entry of a part null, if it is projected."""
        if tree is None:
            return
        listed = tree.null_columns()
        start = self.program.table(listed)
        self.program.put(Op.NULLS, path, start, start + len(listed))

    def _record(self, w: AvroType, r: AvroType, tree: ColumnTree | None, path: str) -> None:
        written = {field.name for field in w.fields}
        missing = [field for field in r.fields if field.name not in written]
        for field in missing:
            if not is_value(field.type, field.default):  # every value is bad, as in Java
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
        added = [(field, part) for field in missing if (part := _field(tree, field.name)) is not None]
        if added:  # read from their defaults, in bytes of their own: as Java does
            start = self.program.text(b"".join(default_bytes(field.type, field.default) for field, _ in added))
            self.program.put(Op.DEFAULT, path, start, len(self.program.texts))
            for field, part in added:
                self.read(field.type, field.type, part, f"{path}.{field.name}")
            self.program.put(Op.RESUME, path)

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
            table: list[int] = []
            reads = frozenset(r.symbols)
            for symbol in w.symbols:
                kept = symbol if symbol in reads else r.default_symbol
                text = b"" if kept is None else kept.encode()
                table += [-1 if kept is None else self.program.text(text), len(text)]
            self._enums[id(w), id(r)] = self.program.table(table)
        self.program.put(Op.ENUM, path, _number(tree), self._enums[id(w), id(r)], len(w.symbols))

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
