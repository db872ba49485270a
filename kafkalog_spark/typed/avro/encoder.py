"""Encoder of rows in Avro, which works column by column.

When it is created, a writer function is selected for each column by its Arrow and its Avro type. A writer encodes all
entries of its column as fragments, which are then concatenated row by row.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.avro.defaults import END_OF_BLOCKS, encode_default, is_valid_default, zigzag
from kafkalog_spark.typed.avro.leaf_encoders import (
    LEAF_ENCODERS,
    TARGET,
    FieldWriter,
    encode_decimals,
    other_fits_better,
)
from kafkalog_spark.typed.avro.schema import NO_DEFAULT, AvroField, AvroType, parse_schema, schema_option_text
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
from kafkalog_spark.typed.columns.number_slices import length_prefixed, zigzags

StructFieldWriter = Callable[[int, list[Entries]], list[Fragment]]
"""Function (n, entries of each field of n structs) that returns the encoding of one field of each struct."""


class AvroEncoder:
    """Encoder of rows as values of one Avro schema.

    Attributes:
        schema_json: Text of the schema.
        prefix: Bytes before each value. Empty unless the creator sets it.
    """

    def __init__(self, schema: str | None, row_schema: pa.Schema) -> None:
        """Match columns with a schema.

        Args:
            schema: The schema or the path of a file with it. None for the schema that Spark's `to_avro` derives.
            row_schema: Columns of the rows.

        Raises:
            OptionError: If the schema is invalid, or a column cannot be written with it.
        """
        if schema is None:
            self.schema_json = json.dumps(avro_schema_of(pa.struct(list(row_schema)), nullable=False))
        else:
            self.schema_json = schema_option_text("value.schema", schema)
        avro = parse_schema(self.schema_json)
        self._is_single_column = root_record(avro) is None  # the schema describes one column, not a row
        if self._is_single_column and len(row_schema) != 1:
            raise OptionError(
                f"the Avro schema is {avro.type_name}, for one column, but the rows have {', '.join(row_schema.names)}"
            )
        type_ = row_schema.field(0).type if self._is_single_column else pa.struct(list(row_schema))
        self._write = _field_writer(type_, avro, row_schema.names[0] if self._is_single_column else "the row")
        self.prefix = b""

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        entries, valid = Entries.of_rows(columns), valid_of(columns)
        if self._is_single_column:
            entries = entries.fields()[0]
        return as_values(self._write(entries), self.prefix, valid)


def _field_writer(type_: pa.DataType, avro: AvroType, path: str) -> FieldWriter:
    if avro.kind == "union":
        write = _union_writer(type_, avro, path)
    else:
        write = _value_writer(type_, avro, path, closest_only=False)
    if write is None:
        raise OptionError(
            f"{path} is {type_}, which cannot be written as {avro.type_name} of the Avro schema", hint="cast the column"
        )
    if avro.kind in ("union", "null"):
        return write
    write_values = write

    def write_without_nulls(entries: Entries) -> list[Fragment]:
        entries.refuse_nulls(TARGET, path, f"null, and the schema has {avro.type_name} without null")
        return write_values(entries)

    return write_without_nulls


def _value_writer(type_: pa.DataType, avro: AvroType, path: str, closest_only: bool) -> FieldWriter | None:
    """Return a writer that ignores nulls; None if the Avro type cannot represent the column.

    Args:
        type_: Type of the column.
        avro: Avro type, not a union.
        path: Path of the field.
        closest_only: Return None also if another Avro type would be closer to the type of the column.
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
    for is_type, kinds, encode_leaf in LEAF_ENCODERS:
        if is_type(type_) and avro.kind in kinds and not (closest_only and other_fits_better(type_, avro)):
            if encode_leaf is encode_decimals and (avro.logical != "decimal" or avro.precision > MAX_PRECISION):
                return None
            return lambda entries: encode_leaf(entries, avro, path)
    return None


def _record_writer(type_: pa.DataType, avro: AvroType, path: str) -> FieldWriter:
    """Return a writer of structs as records.

    Raises:
        OptionError: If the record has no field for a column, or a field has neither a column nor a default.
    """
    columns = {column.name: i for i, column in enumerate(type_)}
    names = {field.name for field in avro.fields}
    if unknown := [name for name in columns if name not in names]:
        raise OptionError(f"the Avro schema has no field for {', '.join(unknown)} in {avro.name}")
    prefix = "" if path == "the row" else f"{path}."
    writers = [
        _missing_field_writer(field, avro)
        if (i := columns.get(field.name)) is None
        else _struct_field_writer(i, _field_writer(type_.field(i).type, field.type, prefix + field.name))
        for field in avro.fields
    ]

    def write(entries: Entries) -> list[Fragment]:
        n, values = len(entries.array), entries.fields()
        return [Fragment(ByteSlices.empty(n)), *(part for write_field in writers for part in write_field(n, values))]

    return write


def _struct_field_writer(i: int, write: FieldWriter) -> StructFieldWriter:
    """Return a writer that encodes field `i` of the structs."""
    return lambda n, values: write(values[i])


def _missing_field_writer(field: AvroField, record: AvroType) -> StructFieldWriter:
    """Return a writer that encodes the same bytes in every row. Raises OptionError if the field has no default."""
    encoded = _encode_missing_field(field, record)
    return lambda n, values: [Fragment(ByteSlices.empty(n), encoded)]


def _encode_missing_field(field: AvroField, record: AvroType) -> bytes:
    """Return the encoded default of a field, or null if it has none. Raises OptionError if it has neither."""
    if field.default is not NO_DEFAULT and is_valid_default(field.type, field.default):
        return encode_default(field.type, field.default)
    null_index = _encoded_null_index(field.type)
    if null_index is None:
        raise OptionError(
            f"the Avro schema has the field {field.name} in {record.name}, but the rows have no such column"
        )
    return null_index


def _array_writer(type_: pa.DataType, avro: AvroType, path: str) -> FieldWriter:
    write = _field_writer(type_.value_type, avro.element, f"{path}.element")

    def write_lists(entries: Entries) -> list[Fragment]:
        elements, offsets = entries.elements()
        return _encode_blocks(concat_fragments(write(elements)), offsets)

    return write_lists


def _map_writer(type_: pa.DataType, avro: AvroType, path: str) -> FieldWriter | None:
    if type_.key_type not in (pa.string(), pa.large_string()):
        return None
    write = _field_writer(type_.item_type, avro.element, f"{path}.value")

    def write_maps(entries: Entries) -> list[Fragment]:
        elements, offsets = entries.elements()
        key, value = elements.fields()
        return _encode_blocks(
            concat_fragments([*length_prefixed(ByteSlices.of(key.array), zigzags), *write(value)]), offsets
        )

    return write_maps


def _encode_blocks(elements: ByteSlices, offsets: np.ndarray) -> list[Fragment]:
    """Return the encoding of lists: a block with all elements, unless there are none, and an empty block."""
    counts = np.diff(offsets)
    nonempty = counts > 0
    return [
        Fragment(zigzags(counts), b"", None if nonempty.all() else nonempty),
        Fragment(elements.join_lists(offsets)),
        Fragment(ByteSlices.empty(len(counts)), END_OF_BLOCKS),
    ]


def _union_writer(type_: pa.DataType, avro: AvroType, path: str) -> FieldWriter | None:
    null_index = _encoded_null_index(avro)
    write_members = _union_struct_writer(type_, avro, null_index, path)
    if write_members is not None:
        return write_members
    for closest_only in (True, False):
        for i, branch in enumerate(avro.branches):
            if branch.kind == "null" and not pa.types.is_null(type_):
                continue
            try:
                write = _value_writer(type_, branch, path, closest_only)
            except OptionError:  # another branch may fit
                if closest_only:
                    continue
                raise
            if write is not None:
                return _nullable_writer(write, zigzag(i), null_index, path)
    return None


def _encoded_null_index(union: AvroType) -> bytes | None:
    """Return the encoded index of the branch null; None if the union does not have it."""
    return next((zigzag(i) for i, branch in enumerate(union.branches) if branch.kind == "null"), None)


def _nullable_writer(write: FieldWriter, branch_index: bytes, null_index: bytes | None, path: str) -> FieldWriter:
    """Return a writer of a union: `branch_index` and a value, or `null_index`."""

    def write_union(entries: Entries) -> list[Fragment]:
        valid = valid_of(entries.array)
        if null_index is None:
            entries.refuse_nulls(TARGET, path, "null, and the union has none")
        return list(prefixed(write(entries), branch_index, valid, null_index or b""))

    return write_union


def _union_struct_writer(type_: pa.DataType, avro: AvroType, null_index: bytes | None, path: str) -> FieldWriter | None:
    """Return a writer of structs in the form that from_avro returns for a union; None for any other type.

    Such a struct has a field for each branch except null, named member0, member1 and so on, or as with
    `enableStableIdentifiersForUnionType`. The first field that is not null is written.
    """
    branches = [(i, branch) for i, branch in enumerate(avro.branches) if branch.kind != "null"]
    if not pa.types.is_struct(type_) or len(branches) == 1 or type_.num_fields != len(branches):
        return None
    members = []
    for k, (i, branch) in enumerate(branches):
        name = type_.field(k).name
        if name not in (f"member{k}", f"member_{branch.short_name}"):
            return None
        members.append((zigzag(i), _field_writer(type_.field(k).type, branch, f"{path}.{name}")))

    def write(entries: Entries) -> list[Fragment]:
        all_null = np.ones(len(entries.array), np.bool_)
        parts = []
        for (branch_index, write_member), field in zip(members, entries.fields(), strict=True):
            valid = valid_of(field.array)
            chosen = all_null if valid is None else all_null & valid
            all_null = all_null & ~chosen
            chosen_entries = Entries(field.array, np.where(chosen, field.rows, NOT_WRITTEN))
            parts.append(Fragment(concat_fragments(write_member(chosen_entries)), branch_index, chosen))
        if null_index is None:
            entries.refuse_nulls(TARGET, path, "null, and the union has none")
            entries.refuse_where(all_null, TARGET, path, "null, and the union has none")
        return [*parts, Fragment(ByteSlices.empty(len(all_null)), null_index or b"", all_null)]

    return write
