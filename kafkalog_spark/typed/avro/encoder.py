"""Rows to Avro, a column at a time: with the schema that is given, or the one that Spark's `to_avro` makes.

Every type of a column is held against its type in the schema once, which makes a writer of it; a writer makes what each
entry is in Avro, as parts that stand one after the other.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.avro.defaults import END, default_bytes, is_value, zigzag
from kafkalog_spark.typed.avro.leaf_encoders import _LEAVES, AVRO, Writer, _decimal, _other_fits_better
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
from kafkalog_spark.typed.columns.number_slices import (
    sized,
    zigzags,
)


class AvroEncoder:
    """Encodes rows as values of one schema. `schema_json`: the schema, as text; `prefix`: what begins each value."""

    def __init__(self, schema: str | None, given: pa.Schema) -> None:
        """Raises OptionError for a schema that Java refuses, and for columns that it has no place for."""
        made = avro_schema_of(pa.struct(list(given)), nullable=False) if schema is None else None
        self.schema_json = json.dumps(made) if schema is None else given_text("value.schema", schema)
        avro = parse_schema(self.schema_json)
        # A schema that is no record is that of the one column.
        self._of_column = root_record(avro) is None
        if self._of_column and len(given) != 1:
            raise OptionError(f"the Avro schema is {avro.called}, for one column; given are {', '.join(given.names)}")
        type_ = given.field(0).type if self._of_column else pa.struct(list(given))
        self._write = _writer(type_, avro, given.names[0] if self._of_column else "the row")
        self.prefix = b""

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        entries, valid = Entries.of(columns), valid_of(columns)
        if self._of_column:
            entries = entries.fields()[0]
        return as_values(self._write(entries), self.prefix, valid)


def _writer(type_: pa.DataType, avro: AvroType, path: str) -> Writer:
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
        entries.refuse_nulls(AVRO, path, f"null, and the schema has {avro.called} without null")
        return required(entries)

    return without_nulls


def _required_writer(type_: pa.DataType, avro: AvroType, path: str, exact: bool) -> Writer | None:
    """Writer of entries that are valid; for null it may write anything. exact: no other type fits as well, so no branch
    is better."""
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
    for is_type, kinds, leaf in _LEAVES:
        if is_type(type_) and avro.kind in kinds and not (exact and _other_fits_better(type_, avro)):
            if leaf is _decimal and (avro.logical != "decimal" or avro.precision > MAX_PRECISION):
                return None
            return lambda entries: leaf(entries, avro, path)
    return None


def _record_writer(type_: pa.DataType, avro: AvroType, path: str) -> Writer:
    """Raises OptionError for a field without a column that has no default either, and for a column without a field."""
    columns = {column.name: i for i, column in enumerate(type_)}
    names = {field.name for field in avro.fields}
    if lost := [name for name in columns if name not in names]:
        raise OptionError(f"the Avro schema has no field for {', '.join(lost)} in {avro.name}")
    above = "" if path == "the row" else f"{path}."
    writers = [
        (i, _writer(type_.field(i).type, field.type, above + field.name))
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
    """Encoding of a field without a column: its default, or null. Raises OptionError."""
    if field.default is not NO_DEFAULT and is_value(field.type, field.default):
        return default_bytes(field.type, field.default)
    nulls = [i for i, branch in enumerate(field.type.branches) if branch.kind == "null"]
    if not nulls:
        raise OptionError(f"the Avro schema has the field {field.name} in {record.name}, and there is no such column")
    return zigzag(nulls[0])


def _array_writer(type_: pa.DataType, avro: AvroType, path: str) -> Writer:
    write = _writer(type_.value_type, avro.element, f"{path}.element")

    def write_lists(entries: Entries) -> list[Fragment]:
        held, offsets = entries.elements()
        return _blocks(concat_fragments(write(held)), offsets)

    return write_lists


def _map_writer(type_: pa.DataType, avro: AvroType, path: str) -> Writer | None:
    if type_.key_type not in (pa.string(), pa.large_string()):
        return None
    write = _writer(type_.item_type, avro.element, f"{path}.value")

    def write_maps(entries: Entries) -> list[Fragment]:
        held, offsets = entries.elements()
        key, value = held.fields()
        return _blocks(concat_fragments([*sized(ByteSlices.of(key.array), zigzags), *write(value)]), offsets)

    return write_maps


def _blocks(held: ByteSlices, offsets: np.ndarray) -> list[Fragment]:
    """Each list as one block, if it has elements, and the end."""
    counts = np.diff(offsets)
    some = counts > 0
    return [
        Fragment(zigzags(counts), b"", None if some.all() else some),
        Fragment(held.lists(offsets)),
        Fragment(ByteSlices.empty(len(counts)), END),
    ]


def _union_writer(type_: pa.DataType, avro: AvroType, path: str) -> Writer | None:
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
            except OptionError:  # another branch may be for it
                if exact:
                    continue
                raise
            if write is not None:
                return _nullable(write, zigzag(i), null, path)
    return None


def _nullable(write: Writer, before: bytes, null: bytes | None, path: str) -> Writer:
    def write_union(entries: Entries) -> list[Fragment]:
        valid = valid_of(entries.array)
        if null is None:
            entries.refuse_nulls(AVRO, path, "null, and the union has none")
        return list(prefixed(write(entries), before, valid, null or b""))

    return write_union


def _members_writer(type_: pa.DataType, avro: AvroType, null: bytes | None, path: str) -> Writer | None:
    """Writer of a struct with a field for each branch but null, named member0 and so on, or as with
    `enableStableIdentifiersForUnionType`: what from_avro makes of a union. None for any other type."""
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
        free = np.ones(len(entries.array), np.bool_)
        parts = []
        for (before, write_one), field in zip(members, entries.fields(), strict=True):
            valid = valid_of(field.array)
            taken = free if valid is None else free & valid
            free = free & ~taken
            inside = Entries(field.array, np.where(taken, field.rows, NOT_WRITTEN))
            parts.append(Fragment(concat_fragments(write_one(inside)), before, taken))
        if null is None:
            entries.refuse_nulls(AVRO, path, "null, and the union has none")
            entries.refuse(free, AVRO, path, "null, and the union has none")
        return [*parts, Fragment(ByteSlices.empty(len(free)), null or b"", free)]

    return write
