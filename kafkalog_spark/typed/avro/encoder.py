"""Encoding of rows in Avro, column by column.

When the encoder is created, the type of each column is matched with its Avro type, which gives a writer. A writer
encodes all entries of its column as fragments, which are then concatenated row by row.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.avro.defaults import END, default_bytes, is_value, zigzag
from kafkalog_spark.typed.avro.leaf_encoders import (
    LEAF_ENCODERS,
    TARGET,
    FieldWriter,
    encode_decimal,
    other_fits_better,
)
from kafkalog_spark.typed.avro.schema import NO_DEFAULT, AvroField, AvroType, given_text, parse_schema
from kafkalog_spark.typed.avro.to_avro_schema import avro_schema_of
from kafkalog_spark.typed.avro.types import MAX_PRECISION, root_record
from kafkalog_spark.typed.columns.byte_slices import (
    ByteSlices,
    Fragment,
    as_values,
    concat_fragments,
    prefixed,
    valid_of,
)
from kafkalog_spark.typed.columns.entries import NOT_WRITTEN, Entries
from kafkalog_spark.typed.columns.number_slices import sized, zigzags


class AvroEncoder:
    """Encoder of rows as values of one Avro schema.

    Attributes:
        schema_json: Text of the schema.
        prefix: Bytes before each value. Empty unless the creator sets it.
    """

    def __init__(self, schema: str | None, given: pa.Schema) -> None:
        """Match columns with a schema.

        Args:
            schema: The schema or the path of a file with it. None for the schema that Spark's `to_avro` derives.
            given: Columns of the rows.

        Raises:
            OptionError: If the schema is invalid, or a column cannot be written with it.
        """
        if schema is None:
            self.schema_json = json.dumps(avro_schema_of(pa.struct(list(given)), nullable=False))
        else:
            self.schema_json = given_text("value.schema", schema)
        avro = parse_schema(self.schema_json)
        self._of_column = root_record(avro) is None  # a schema that is not a record is the schema of one column
        if self._of_column and len(given) != 1:
            raise OptionError(
                f"the Avro schema is {avro.called}, for one column, but the rows have {', '.join(given.names)}"
            )
        type_ = given.field(0).type if self._of_column else pa.struct(list(given))
        self._write = _writer(type_, avro, given.names[0] if self._of_column else "the row")
        self.prefix = b""

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        entries, valid = Entries.of(columns), valid_of(columns)
        if self._of_column:
            entries = entries.fields()[0]
        return as_values(self._write(entries), self.prefix, valid)


def _writer(type_: pa.DataType, avro: AvroType, path: str) -> FieldWriter:
    if avro.kind == "union":
        write = _union_writer(type_, avro, path)
    else:
        write = _required_writer(type_, avro, path, exact=False)
    if write is None:
        raise OptionError(
            f"{path} is {type_}, which cannot be written as {avro.called} of the Avro schema", hint="cast the column"
        )
    if avro.kind in ("union", "null"):
        return write
    required = write

    def without_nulls(entries: Entries) -> list[Fragment]:
        entries.refuse_nulls(TARGET, path, f"null, and the schema has {avro.called} without null")
        return required(entries)

    return without_nulls


def _required_writer(type_: pa.DataType, avro: AvroType, path: str, exact: bool) -> FieldWriter | None:
    """Return a writer of entries that are not null; None if the Avro type cannot represent the column.

    Args:
        type_: Type of the column.
        avro: Avro type, not a union.
        path: Path of the field.
        exact: Return None also if another Avro type is closer to the type of the column.
    """
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    match avro.kind:
        case "null":
            if not pa.types.is_null(type_):
                return None
            return lambda entries: [Fragment(ByteSlices.empty(len(entries.array)))]
        case "record":
            return _record_writer(type_, avro, path) if pa.types.is_struct(type_) else None
        case "array":
            return _array_writer(type_, avro, path) if is_list else None
        case "map":
            return _map_writer(type_, avro, path) if pa.types.is_map(type_) else None
    for is_type, kinds, leaf in LEAF_ENCODERS:
        if is_type(type_) and avro.kind in kinds and not (exact and other_fits_better(type_, avro)):
            if leaf is encode_decimal and (avro.logical != "decimal" or avro.precision > MAX_PRECISION):
                return None
            return lambda entries: leaf(entries, avro, path)
    return None


def _record_writer(type_: pa.DataType, avro: AvroType, path: str) -> FieldWriter:
    """Return a writer of structs.

    Raises:
        OptionError: If a column has no field, or a field has neither a column nor a default.
    """
    columns = {column.name: i for i, column in enumerate(type_)}
    names = {field.name for field in avro.fields}
    if unknown := [name for name in columns if name not in names]:
        raise OptionError(f"the Avro schema has no field for {', '.join(unknown)} in {avro.name}")
    prefix = "" if path == "the row" else f"{path}."
    writers = [
        (i, _writer(type_.field(i).type, field.type, prefix + field.name))
        if (i := columns.get(field.name)) is not None
        else _without_column(field, avro)
        for field in avro.fields
    ]

    def write(entries: Entries) -> list[Fragment]:
        values = entries.fields()
        parts = [Fragment(ByteSlices.empty(len(entries.array)))]
        for writer in writers:
            if isinstance(writer, bytes):
                parts.append(Fragment(parts[0].slices, writer))
            else:
                parts += writer[1](values[writer[0]])
        return parts

    return write


def _without_column(field: AvroField, record: AvroType) -> bytes:
    """Return the encoding of a field without a column: its default, or null. Raises OptionError if it has neither."""
    if field.default is not NO_DEFAULT and is_value(field.type, field.default):
        return default_bytes(field.type, field.default)
    nulls = [i for i, branch in enumerate(field.type.branches) if branch.kind == "null"]
    if not nulls:
        raise OptionError(
            f"the Avro schema has the field {field.name} in {record.name}, but the rows have no such column"
        )
    return zigzag(nulls[0])


def _array_writer(type_: pa.DataType, avro: AvroType, path: str) -> FieldWriter:
    write = _writer(type_.value_type, avro.element, f"{path}.element")

    def write_lists(entries: Entries) -> list[Fragment]:
        elements, offsets = entries.elements()
        return _blocks(concat_fragments(write(elements)), offsets)

    return write_lists


def _map_writer(type_: pa.DataType, avro: AvroType, path: str) -> FieldWriter | None:
    if type_.key_type not in (pa.string(), pa.large_string()):
        return None
    write = _writer(type_.item_type, avro.element, f"{path}.value")

    def write_maps(entries: Entries) -> list[Fragment]:
        elements, offsets = entries.elements()
        key, value = elements.fields()
        return _blocks(concat_fragments([*sized(ByteSlices.of(key.array), zigzags), *write(value)]), offsets)

    return write_maps


def _blocks(elements: ByteSlices, offsets: np.ndarray) -> list[Fragment]:
    """Return the encoding of lists: a list with elements is one block, and every list ends with an empty block."""
    counts = np.diff(offsets)
    nonempty = counts > 0
    return [
        Fragment(zigzags(counts), b"", None if nonempty.all() else nonempty),
        Fragment(elements.lists(offsets)),
        Fragment(ByteSlices.empty(len(counts)), END),
    ]


def _union_writer(type_: pa.DataType, avro: AvroType, path: str) -> FieldWriter | None:
    null = next((zigzag(i) for i, branch in enumerate(avro.branches) if branch.kind == "null"), None)
    members = _members_writer(type_, avro, null, path)
    if members is not None:
        return members
    for exact in (True, False):
        for i, branch in enumerate(avro.branches):
            if branch.kind == "null" and not pa.types.is_null(type_):
                continue
            try:
                write = _required_writer(type_, branch, path, exact)
            except OptionError:  # another branch may fit
                if exact:
                    continue
                raise
            if write is not None:
                return _nullable(write, zigzag(i), null, path)
    return None


def _nullable(write: FieldWriter, prefix: bytes, null: bytes | None, path: str) -> FieldWriter:
    def write_union(entries: Entries) -> list[Fragment]:
        valid = valid_of(entries.array)
        if null is None:
            entries.refuse_nulls(TARGET, path, "null, and the union has none")
        return list(prefixed(write(entries), prefix, valid, null or b""))

    return write_union


def _members_writer(type_: pa.DataType, avro: AvroType, null: bytes | None, path: str) -> FieldWriter | None:
    """Return a writer of the struct that from_avro makes of a union, with a field for each branch except null.

    The fields are named member0, member1 and so on, or as with `enableStableIdentifiersForUnionType`. The result is
    None for any other type.
    """
    branches = [(i, branch) for i, branch in enumerate(avro.branches) if branch.kind != "null"]
    if not pa.types.is_struct(type_) or len(branches) == 1 or type_.num_fields != len(branches):
        return None
    members = []
    for k, (i, branch) in enumerate(branches):
        name = type_.field(k).name
        if name not in (f"member{k}", f"member_{branch.short_name}"):
            return None
        members.append((zigzag(i), _writer(type_.field(k).type, branch, f"{path}.{name}")))

    def write(entries: Entries) -> list[Fragment]:
        all_null = np.ones(len(entries.array), np.bool_)
        parts = []
        for (branch_index, write_member), field in zip(members, entries.fields(), strict=True):
            valid = valid_of(field.array)
            chosen = all_null if valid is None else all_null & valid
            all_null = all_null & ~chosen
            inside = Entries(field.array, np.where(chosen, field.rows, NOT_WRITTEN))
            parts.append(Fragment(concat_fragments(write_member(inside)), branch_index, chosen))
        if null is None:
            entries.refuse_nulls(TARGET, path, "null, and the union has none")
            entries.refuse(all_null, TARGET, path, "null, and the union has none")
        return [*parts, Fragment(ByteSlices.empty(len(all_null)), null or b"", all_null)]

    return write
