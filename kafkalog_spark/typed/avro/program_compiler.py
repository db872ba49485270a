"""Schema resolution: a writer schema, a reader schema and a projection are compiled into a program.

The rules are those of Avro 1.12's `Resolver` in Java, which `from_avro` uses: fields by name, aliases of the reader
schema, promotions, defaults, the first matching branch of a union. If a part cannot be resolved, only values that
contain it are malformed; the schema as a whole remains usable. Fields of the reader schema that are not projected are
validated, because they can make a value malformed; fields that only the writer has are skipped.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalog_spark.typed.avro.defaults import default_bytes, is_value
from kafkalog_spark.typed.avro.program import AvroProgram, Op, StoredAs
from kafkalog_spark.typed.avro.read_options import AvroReadOptions
from kafkalog_spark.typed.avro.schema import AvroType
from kafkalog_spark.typed.avro.type_matching import equal_types, is_error, matching_branch
from kafkalog_spark.typed.avro.types import MILLIS, merged_number_type
from kafkalog_spark.typed.columns.projection import NOT_PROJECTED, ColumnTree


def field_of(tree: ColumnTree | None, name: str) -> ColumnTree | None:
    """Return the column of a struct's field; None if the struct or the field is not projected."""
    if tree is None:
        return None
    i = tree.type.get_field_index(name)
    return tree.children[i] if i >= 0 else None


class Compiler:
    """Compiler of one writer schema. It appends instructions to a program.

    A column tree of None means that the part is not projected: it is validated, but not stored. Records that are not
    projected are compiled once, as routines, because they may be recursive.
    """

    def __init__(self, program: AvroProgram, read_options: AvroReadOptions) -> None:
        self.program = program
        self.read_options = read_options
        self._enums: dict[tuple[int, int], int] = {}
        """Where the table of symbols of each enum begins, by the id() of its writer and reader types."""
        self._routines: dict[tuple[int, int], tuple[AvroType, AvroType | None, list[int], str]] = {}
        """Writer, reader, rows of the CALLs, and path of each routine. The reader is None for records to skip."""

    def read(
        self,
        writer: AvroType,
        reader: AvroType,
        tree: ColumnTree | None,
        path: str,
        merged_type: str = "",
        root: bool = False,
    ) -> None:
        """Append instructions that read a value written as `writer` and return it as `reader`.

        Args:
            writer: Type that the value was written with.
            reader: Type that it is read as.
            tree: Its column.
            path: Path of the field, for errors.
            merged_type: "long" or "double" if a union of two number types is stored in one column, otherwise "".
            root: Whether this is the whole value, for which null is refused.
        """
        if writer.kind == "union":
            self._writer_union(writer, reader, tree, path, root)
        elif reader.kind == "union":
            self._as_branch(writer, reader, matching_branch(writer, reader), tree, path, root)
        elif writer.kind == "record" and reader.kind == "record":
            if tree is None:
                self._call(writer, reader, path)
            else:
                self._record(writer, reader, tree, path)
        elif writer.kind == reader.kind and writer.kind in ("array", "map"):
            self._container(writer, reader, tree, path)
        elif is_error(writer, reader):
            self.program.put(Op.REFUSED, path)
        elif writer.kind == "enum":
            self._enum(writer, reader, tree, path)
        else:
            self._leaf(writer, reader, tree, path, merged_type)

    def skip(self, writer: AvroType, path: str) -> None:
        """Append instructions that skip a value that the reader schema does not have."""
        put = self.program.put
        if writer.kind in ("bytes", "string"):
            put(Op.BYTES, path, NOT_PROJECTED)
        elif writer.kind in ("int", "enum"):
            put(Op.INT, path, NOT_PROJECTED, StoredAs.I32)
        elif writer.kind == "long":
            put(Op.LONG, path, NOT_PROJECTED, StoredAs.I64)
        elif writer.kind in ("boolean", "float", "double", "fixed"):
            size = {"boolean": 1, "float": 4, "double": 8}.get(writer.kind, writer.size)
            put(Op.FIXED, path, NOT_PROJECTED, size)
        elif writer.kind in ("array", "map"):
            begin = put(Op.SKIP_ARRAY, path)
            if writer.kind == "map":
                put(Op.BYTES, path, NOT_PROJECTED)
            self.skip(writer.element, path)
            self.program.set(begin, 2, put(Op.SKIP_NEXT, path, 0, begin + 1))
        elif writer.kind == "record":
            self._call(writer, None, path)
        elif writer.kind == "union":
            self._branches(writer, path, lambda i: self.skip(writer.branches[i], path))

    def put_routines(self) -> None:
        """Append all routines and link their calls. Call it once, after the END of the program."""
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

    def _writer_union(self, writer: AvroType, reader: AvroType, tree: ColumnTree | None, path: str, root: bool) -> None:
        nullable = len(writer.branches) == 2 and writer.has_null()
        if reader.kind == "union" and nullable and reader.has_null() and not root:
            null_index = 0 if writer.branches[0].kind == "null" else 1
            null_columns = [] if tree is None else tree.null_columns()
            start = self.program.table(null_columns)
            row = self.program.put(Op.NULLABLE, path, null_index, 0, start, start + len(null_columns))
            self._from_branch(writer, 1 - null_index, reader, tree, path, root)
            self.program.set(row, 2, len(self.program.rows))
            return
        self._branches(writer, path, lambda i: self._from_branch(writer, i, reader, tree, path, root))

    def _branches(self, writer: AvroType, path: str, put_branch: Callable[[int], None]) -> None:
        """Append an instruction that reads the index of a branch, then the branches, each by `put_branch`."""
        start = self.program.table([0] * len(writer.branches))
        self.program.put(Op.UNION, path, len(writer.branches), start)
        jumps = []
        for i in range(len(writer.branches)):
            self.program.tables[start + i] = len(self.program.rows)
            put_branch(i)
            jumps.append(self.program.put(Op.JUMP, path))
        for row in jumps:
            self.program.set(row, 1, len(self.program.rows))

    def _from_branch(
        self, writer: AvroType, i: int, reader: AvroType, tree: ColumnTree | None, path: str, root: bool
    ) -> None:
        if reader.kind == "union" and equal_types(writer, reader):
            self._as_branch(writer.branches[i], reader, i, tree, path, root)
        else:
            self.read(writer.branches[i], reader, tree, path, root=root)

    def _as_branch(
        self, writer: AvroType, reader: AvroType, i: int, tree: ColumnTree | None, path: str, root: bool
    ) -> None:
        """Append instructions that read a value as branch i of the union `reader`, and add nulls for the others."""
        if i < 0:
            self.program.put(Op.REFUSED, path)
            return
        branch = reader.branches[i]
        if branch.kind == "null":
            if root:
                self.program.put(Op.REFUSED, path)
            else:
                self._nulls(tree, path)
            return
        others = reader.without_null()
        merged_type = merged_number_type(others)
        if len(others) == 1 or merged_type or tree is None:
            self.read(writer, branch, tree, path, merged_type or "", root)
            return
        self.program.put(Op.STRUCT, path, tree.number)
        member = self.read_options.member(others.index(branch), branch)
        for field, child in zip(tree.type, tree.children, strict=True):
            if field.name == member:
                self.read(writer, branch, child, path, root=root)
            else:
                self._nulls(child, path)
        if field_of(tree, member) is None:
            self.read(writer, branch, None, path, root=root)

    def _call(self, writer: AvroType, reader: AvroType | None, path: str) -> None:
        key = (id(writer), 0 if reader is None else id(reader))
        row = self.program.put(Op.CALL, path)
        self._routines.setdefault(key, (writer, reader, [], path))[2].append(row)

    def _record(self, writer: AvroType, reader: AvroType, tree: ColumnTree | None, path: str) -> None:
        written_names = {field.name for field in writer.fields}
        missing = [field for field in reader.fields if field.name not in written_names]
        for field in missing:
            if not is_value(field.type, field.default):  # without a default all values are malformed, as in Java
                self.program.put(Op.REFUSED, f"{path}.{field.name}")
                return
        if tree is not None:
            self.program.put(Op.STRUCT, path, tree.number)
        reader_fields = {field.name: field for field in reader.fields}
        for written in writer.fields:
            field_path = f"{path}.{written.name}"
            if written.name in reader_fields:
                field_type = reader_fields[written.name].type
                self.read(written.type, field_type, field_of(tree, written.name), field_path)
            else:
                self.skip(written.type, field_path)
        defaults = [(field, column) for field in missing if (column := field_of(tree, field.name)) is not None]
        if defaults:  # as in Java, defaults are encoded and then decoded like a value
            encoded = b"".join(default_bytes(field.type, field.default) for field, _ in defaults)
            start = self.program.text(encoded)
            self.program.put(Op.DEFAULT, path, start, len(self.program.texts))
            for field, column in defaults:
                self.read(field.type, field.type, column, f"{path}.{field.name}")
            self.program.put(Op.RESUME, path)

    def _container(self, writer: AvroType, reader: AvroType, tree: ColumnTree | None, path: str) -> None:
        is_map = writer.kind == "map"
        element = None if tree is None else tree.children[0]
        begin = self.program.put(Op.ARRAY, path, _number(tree))
        value = element
        if is_map:
            key, value = (None, None) if element is None else (element.children[0], element.children[1])
            if element is not None:
                self.program.put(Op.STRUCT, path, element.number)
            self.program.put(Op.BYTES, f"{path}.key", _number(key))
            self._note_java_text(reader, _number(key))
        self.read(writer.element, reader.element, value, f"{path}.{'value' if is_map else 'element'}")
        key_column = element.children[0].number if is_map and element is not None else -1
        row = self.program.put(Op.NEXT, path, _number(tree), begin + 1, key_column)
        self.program.set(begin, 2, row)

    def _enum(self, writer: AvroType, reader: AvroType, tree: ColumnTree | None, path: str) -> None:
        if (id(writer), id(reader)) not in self._enums:
            table: list[int] = []
            reader_symbols = frozenset(reader.symbols)
            for symbol in writer.symbols:
                read_as = symbol if symbol in reader_symbols else reader.default_symbol
                text = b"" if read_as is None else read_as.encode()
                table += [-1 if read_as is None else self.program.text(text), len(text)]
            self._enums[id(writer), id(reader)] = self.program.table(table)
        self.program.put(Op.ENUM, path, _number(tree), self._enums[id(writer), id(reader)], len(writer.symbols))

    def _leaf(self, writer: AvroType, reader: AvroType, tree: ColumnTree | None, path: str, merged_type: str) -> None:
        put, column = self.program.put, _number(tree)
        if reader.logical == "decimal":
            put(Op.DECIMAL, path, column, reader.precision, reader.size if reader.kind == "fixed" else -1)
        elif writer.kind in ("bytes", "string"):
            put(Op.BYTES, path, column)
            if reader.kind == "string":
                self._note_java_text(reader, column)
        elif writer.kind == "fixed":
            put(Op.FIXED, path, column, writer.size)
        elif writer.kind == "boolean":
            put(Op.BOOLEAN, path, column)
        elif writer.kind == "null":
            self._nulls(tree, path)
        elif writer.kind == "double":
            put(Op.DOUBLE, path, column)
        elif writer.kind == "float":
            put(Op.FLOAT, path, column, StoredAs.F64 if reader.kind == "double" or merged_type else StoredAs.F32)
        else:
            put(Op.INT if writer.kind == "int" else Op.LONG, path, column, _stored_as(reader, merged_type))

    def _nulls(self, tree: ColumnTree | None, path: str) -> None:
        """Append an instruction that adds a null to a column, if the column is projected."""
        if tree is None:
            return
        null_columns = tree.null_columns()
        start = self.program.table(null_columns)
        self.program.put(Op.NULLS, path, start, start + len(null_columns))

    def _note_java_text(self, reader: AvroType, column: int) -> None:
        if reader.properties.get("avro.java.string") == "String":
            self.program.java_texts.add(column)


def _number(tree: ColumnTree | None) -> int:
    return NOT_PROJECTED if tree is None else tree.number


def _stored_as(reader: AvroType, merged_type: str) -> StoredAs:
    """Return how to store an int or long that is read as `reader`.

    Logical types are ignored if the column holds a union of number types.
    """
    if reader.logical in MILLIS and not merged_type:
        return StoredAs.MILLIS
    if reader.kind == "double":
        return StoredAs.F64
    if reader.kind == "float":
        return StoredAs.F32_AS_F64 if merged_type else StoredAs.F32
    return StoredAs.I64 if reader.kind == "long" or merged_type else StoredAs.I32
