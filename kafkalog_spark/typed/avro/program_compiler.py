"""Compiler of an Avro writer schema into a program of the kernel (`program.py`): schema resolution.

The rules are those of Avro 1.12's `Resolver` in Java, which `from_avro` uses: fields by name, aliases of the reader
schema, promotions, defaults, the first matching branch of a union. If a part cannot be resolved, only values that
contain it are malformed; the schema as a whole remains usable. Fields of the reader schema that are not projected are
validated, because they can make a value malformed; fields that only the writer has are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkalog_spark.typed.avro.defaults import encode_default, is_valid_default
from kafkalog_spark.typed.avro.program import AvroProgram, Op, StoredAs, Word
from kafkalog_spark.typed.avro.read_options import AvroReadOptions
from kafkalog_spark.typed.avro.schema import AvroType
from kafkalog_spark.typed.avro.type_matching import are_equivalent, is_unreadable, matching_branch
from kafkalog_spark.typed.avro.types import MILLIS, merged_number_type
from kafkalog_spark.typed.columns.projection import NOT_PROJECTED, ColumnTree


class _Routine(NamedTuple):
    """Instructions for a record that is not projected. They end with RETURN and are run by CALL."""

    writer: AvroType
    reader: AvroType | None  # None to skip the record
    path: str
    call_rows: list[int]  # rows of its CALL instructions, whose operand is set when the routine is appended


class ProgramCompiler:
    """Compiler of one writer schema. It appends instructions to a program.

    A column of None means that the part is not projected: it is validated, but not stored. A record that is not
    projected is compiled once, as a routine, because it may be recursive.
    """

    def __init__(self, program: AvroProgram, read_options: AvroReadOptions) -> None:
        self.program = program
        self.read_options = read_options
        self._symbol_tables: dict[tuple[int, int], int] = {}
        """Start of the table of symbols of each enum, by the id() of its writer and reader types."""
        self._routines: dict[tuple[int, int], _Routine] = {}
        """Routines by the id() of their writer and reader types; 0 instead of a reader of None."""

    def read(
        self,
        writer: AvroType,
        reader: AvroType,
        column: ColumnTree | None,
        path: str,
        merged_type: str = "",
        is_root: bool = False,
    ) -> None:
        """Append instructions that read a value written as `writer` and store it as `reader`.

        Args:
            writer: Type that the value was written with.
            reader: Type that it is read as.
            column: Its column.
            path: Path of the field, for errors.
            merged_type: "long" or "double" if a union of two number types is stored in one column, otherwise "".
            is_root: Whether this is the whole value, which must not be null.
        """
        if writer.kind == "union":
            self._read_union(writer, reader, column, path, is_root)
        elif reader.kind == "union":
            self._read_as_branch(writer, reader, matching_branch(writer, reader), column, path, is_root)
        elif writer.kind == "record" and reader.kind == "record":
            if column is None:
                self._call_routine(writer, reader, path)
            else:
                self._read_record(writer, reader, column, path)
        elif writer.kind == reader.kind and writer.kind in ("array", "map"):
            self._read_elements(writer, reader, column, path)
        elif is_unreadable(writer, reader):
            self.program.append(Op.REFUSED, path)
        elif writer.kind == "enum":
            self._read_enum(writer, reader, column, path)
        else:
            self._read_leaf(writer, reader, column, path, merged_type)

    def skip(self, writer: AvroType, path: str) -> None:
        """Append instructions that skip a value that the reader schema does not have."""
        append = self.program.append
        if writer.kind in ("bytes", "string"):
            append(Op.BYTES, path, NOT_PROJECTED)
        elif writer.kind in ("int", "enum"):
            append(Op.INT, path, NOT_PROJECTED, StoredAs.I32)
        elif writer.kind == "long":
            append(Op.LONG, path, NOT_PROJECTED, StoredAs.I64)
        elif writer.kind in ("boolean", "float", "double", "fixed"):
            size = {"boolean": 1, "float": 4, "double": 8}.get(writer.kind, writer.size)
            append(Op.FIXED, path, NOT_PROJECTED, size)
        elif writer.kind in ("array", "map"):
            begin = append(Op.SKIP_ARRAY, path)
            if writer.kind == "map":
                append(Op.BYTES, path, NOT_PROJECTED)
            self.skip(writer.element, path)
            end = append(Op.SKIP_NEXT, path, 0, begin + 1)
            self.program.set_operand(begin, Word.B, end)
        elif writer.kind == "record":
            self._call_routine(writer, None, path)
        elif writer.kind == "union":
            self._append_branches(writer, path, lambda i: self.skip(writer.branches[i], path))

    def append_routines(self) -> None:
        """Append all routines and set the operands of their calls. Call it once, after the END of the program."""
        starts: dict[tuple[int, int], int] = {}
        while missing := [key for key in self._routines if key not in starts]:  # a routine may call further ones
            for key in missing:
                routine = self._routines[key]
                starts[key] = len(self.program.rows)
                if routine.reader is None:
                    for field in routine.writer.fields:
                        self.skip(field.type, f"{routine.path}.{field.name}")
                else:
                    self._read_record(routine.writer, routine.reader, None, routine.path)
                self.program.append(Op.RETURN, routine.path)
        for key, routine in self._routines.items():
            for row in routine.call_rows:
                self.program.set_operand(row, Word.A, starts[key])

    def _read_union(
        self, writer: AvroType, reader: AvroType, column: ColumnTree | None, path: str, is_root: bool
    ) -> None:
        is_nullable = len(writer.branches) == 2 and writer.has_null()
        if reader.kind == "union" and is_nullable and reader.has_null() and not is_root:
            null_index = 0 if writer.branches[0].kind == "null" else 1
            null_columns = [] if column is None else column.null_columns()
            start = self.program.add_table(null_columns)
            row = self.program.append(Op.NULLABLE, path, null_index, 0, start, start + len(null_columns))
            self._read_branch(writer, 1 - null_index, reader, column, path, is_root)
            self.program.set_operand(row, Word.B, len(self.program.rows))
        else:
            self._append_branches(writer, path, lambda i: self._read_branch(writer, i, reader, column, path, is_root))

    def _append_branches(self, writer: AvroType, path: str, append_branch: Callable[[int], None]) -> None:
        """Append an instruction that reads the index of a branch, then the instructions of every branch.

        Args:
            writer: The union.
            path: Path of the field, for errors.
            append_branch: Append the instructions of the branch with an index.
        """
        start = self.program.add_table([0] * len(writer.branches))
        self.program.append(Op.UNION, path, len(writer.branches), start)
        jumps = []
        for i in range(len(writer.branches)):
            self.program.tables[start + i] = len(self.program.rows)
            append_branch(i)
            jumps.append(self.program.append(Op.JUMP, path))
        for row in jumps:
            self.program.set_operand(row, Word.A, len(self.program.rows))

    def _read_branch(
        self, writer: AvroType, i: int, reader: AvroType, column: ColumnTree | None, path: str, is_root: bool
    ) -> None:
        """Append instructions that read branch `i` of the union `writer` as `reader`."""
        if reader.kind == "union" and are_equivalent(writer, reader):
            self._read_as_branch(writer.branches[i], reader, i, column, path, is_root)
        else:
            self.read(writer.branches[i], reader, column, path, is_root=is_root)

    def _read_as_branch(
        self, writer: AvroType, reader: AvroType, i: int, column: ColumnTree | None, path: str, is_root: bool
    ) -> None:
        """Append instructions that read a value as branch `i` of the union `reader`; -1 if no branch matches.

        If the union is stored as a struct with a field for each branch, the other fields get a null.
        """
        if i < 0:
            self.program.append(Op.REFUSED, path)
            return
        branch = reader.branches[i]
        if branch.kind == "null":
            if is_root:
                self.program.append(Op.REFUSED, path)
            else:
                self._append_nulls(column, path)
            return
        branches = reader.without_null()
        merged_type = merged_number_type(branches)
        if len(branches) == 1 or merged_type or column is None:
            self.read(writer, branch, column, path, merged_type or "", is_root)
            return
        self.program.append(Op.STRUCT, path, column.number)
        member = self.read_options.member_name(branches.index(branch), branch)
        for field, child in zip(column.type, column.children, strict=True):
            if field.name == member:
                self.read(writer, branch, child, path, is_root=is_root)
            else:
                self._append_nulls(child, path)
        if column.field(member) is None:
            self.read(writer, branch, None, path, is_root=is_root)

    def _call_routine(self, writer: AvroType, reader: AvroType | None, path: str) -> None:
        key = (id(writer), 0 if reader is None else id(reader))
        row = self.program.append(Op.CALL, path)
        self._routines.setdefault(key, _Routine(writer, reader, path, [])).call_rows.append(row)

    def _read_record(self, writer: AvroType, reader: AvroType, column: ColumnTree | None, path: str) -> None:
        written_names = {field.name for field in writer.fields}
        missing = [field for field in reader.fields if field.name not in written_names]
        for field in missing:
            if not is_valid_default(field.type, field.default):  # then all values are malformed, as in Java
                self.program.append(Op.REFUSED, f"{path}.{field.name}")
                return
        if column is not None:
            self.program.append(Op.STRUCT, path, column.number)
        reader_fields = {field.name: field for field in reader.fields}
        for written in writer.fields:
            field_path = f"{path}.{written.name}"
            if written.name in reader_fields:
                field_type = reader_fields[written.name].type
                self.read(written.type, field_type, _field_column(column, written.name), field_path)
            else:
                self.skip(written.type, field_path)
        defaults = [(field, child) for field in missing if (child := _field_column(column, field.name)) is not None]
        if defaults:  # as in Java, defaults are encoded and then decoded like a value
            encoded = b"".join(encode_default(field.type, field.default) for field, _ in defaults)
            start = self.program.add_text(encoded)
            self.program.append(Op.DEFAULT, path, start, len(self.program.texts))
            for field, child in defaults:
                self.read(field.type, field.type, child, f"{path}.{field.name}")
            self.program.append(Op.RESUME, path)

    def _read_elements(self, writer: AvroType, reader: AvroType, column: ColumnTree | None, path: str) -> None:
        """Append a loop over the elements of an array or the entries of a map."""
        is_map = writer.kind == "map"
        element = None if column is None else column.children[0]
        begin = self.program.append(Op.ARRAY, path, _number_of(column))
        key, value = None, element
        if is_map:
            if element is not None:
                key, value = element.children
                self.program.append(Op.STRUCT, path, element.number)
            self.program.append(Op.BYTES, f"{path}.key", _number_of(key))
            self._note_java_text(reader, key)
        self.read(writer.element, reader.element, value, f"{path}.{'value' if is_map else 'element'}")
        end = self.program.append(Op.NEXT, path, _number_of(column), begin + 1, _number_of(key))
        self.program.set_operand(begin, Word.B, end)

    def _read_enum(self, writer: AvroType, reader: AvroType, column: ColumnTree | None, path: str) -> None:
        key = (id(writer), id(reader))
        if key not in self._symbol_tables:
            self._symbol_tables[key] = self._add_symbol_table(writer, reader)
        self.program.append(Op.ENUM, path, _number_of(column), self._symbol_tables[key], len(writer.symbols))

    def _add_symbol_table(self, writer: AvroType, reader: AvroType) -> int:
        """Add (start, length) of the text that each symbol of the writer is read as; return the start of the table."""
        table: list[int] = []
        reader_symbols = frozenset(reader.symbols)
        for symbol in writer.symbols:
            read_as = symbol if symbol in reader_symbols else reader.default_symbol
            if read_as is None:
                table += [-1, 0]
            else:
                text = read_as.encode()
                table += [self.program.add_text(text), len(text)]
        return self.program.add_table(table)

    def _read_leaf(
        self, writer: AvroType, reader: AvroType, column: ColumnTree | None, path: str, merged_type: str
    ) -> None:
        """Append the instruction of a type without parts: a primitive type, a fixed or a decimal."""
        append, number = self.program.append, _number_of(column)
        if reader.logical == "decimal":
            append(Op.DECIMAL, path, number, reader.precision, reader.size if reader.kind == "fixed" else -1)
        elif writer.kind in ("bytes", "string"):
            append(Op.BYTES, path, number)
            if reader.kind == "string":
                self._note_java_text(reader, column)
        elif writer.kind == "fixed":
            append(Op.FIXED, path, number, writer.size)
        elif writer.kind == "boolean":
            append(Op.BOOLEAN, path, number)
        elif writer.kind == "null":
            self._append_nulls(column, path)
        elif writer.kind == "double":
            append(Op.DOUBLE, path, number)
        elif writer.kind == "float":
            append(Op.FLOAT, path, number, StoredAs.F64 if reader.kind == "double" or merged_type else StoredAs.F32)
        else:
            append(Op.INT if writer.kind == "int" else Op.LONG, path, number, _stored_as(reader, merged_type))

    def _append_nulls(self, column: ColumnTree | None, path: str) -> None:
        """Append an instruction that adds a null to a column, if the column is projected."""
        if column is None:
            return
        null_columns = column.null_columns()
        start = self.program.add_table(null_columns)
        self.program.append(Op.NULLS, path, start, start + len(null_columns))

    def _note_java_text(self, reader: AvroType, column: ColumnTree | None) -> None:
        """Note that Java reads a string column as `String`, which replaces bytes that are not UTF-8."""
        if column is not None and reader.properties.get("avro.java.string") == "String":
            self.program.java_texts.add(column.number)


def _field_column(column: ColumnTree | None, name: str) -> ColumnTree | None:
    """Return the column of a field; None if the struct or the field is not projected."""
    return None if column is None else column.field(name)


def _number_of(column: ColumnTree | None) -> int:
    return NOT_PROJECTED if column is None else column.number


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
