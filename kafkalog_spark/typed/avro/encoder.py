"""Rows to Avro, a column at a time: with the schema that is given, or the one that Spark's `to_avro` makes.

Every type of a column is held against its type in the schema once, which makes a writer of it; a writer makes what each
entry is in Avro, as parts that stand one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.avro.default_bytes import default_bytes, zigzag
from kafkalog_spark.typed.avro.defaults import is_value
from kafkalog_spark.typed.avro.leaf_writers import AVRO, leaf_writer
from kafkalog_spark.typed.avro.schema import NO_DEFAULT, AvroField, AvroType, parse_schema
from kafkalog_spark.typed.avro.schema_of_columns import avro_schema_of
from kafkalog_spark.typed.avro.types import root_record
from kafkalog_spark.typed.pieces.entries import NOWHERE, Entries
from kafkalog_spark.typed.pieces.numbers import sized, zigzags
from kafkalog_spark.typed.pieces.pieces import Part, Pieces, as_values, joined, prefixed, valid_of
from kafkalog_spark.typed.schema_text import schema_text

Writer = Callable[[Entries], list[Part]]
"""What each of some entries is in Avro. Raises InvalidRecord."""
_END = b"\0"
"""Of the blocks of an array or a map."""


class AvroEncoder:
    """Encodes rows as values of one schema. `schema_json`: the schema, as text."""

    def __init__(self, schema: str | None, given: pa.Schema, prefix: bytes = b"") -> None:
        """prefix: what begins each value. Raises OptionError for a schema that Java refuses, and for columns that it
        has no place for."""
        made = avro_schema_of(pa.struct(list(given)), nullable=False) if schema is None else None
        self.schema_json = json.dumps(made) if schema is None else schema_text("value.schema", schema)
        avro = parse_schema(self.schema_json)
        # A schema that is no record is that of the one column.
        self._of_column = root_record(avro) is None
        if self._of_column and len(given) != 1:
            raise OptionError(f"the Avro schema is {avro.called}, for one column; given are {', '.join(given.names)}")
        type_ = given.field(0).type if self._of_column else pa.struct(list(given))
        self._write = _writer(type_, avro, given.names[0] if self._of_column else "the row")
        self._prefix = prefix

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """As ValueEncoder.encode. Raises InvalidRecord for a row that the schema has no place for."""
        entries, valid = Entries.of(columns), valid_of(columns)
        if self._of_column:
            entries = entries.fields()[0]
        return as_values(self._write(entries), self._prefix, valid)


def _writer(type_: pa.DataType, avro: AvroType, path: str) -> Writer:
    """Raises OptionError where a column of that type cannot be written as that type."""
    found = _any_writer(type_, avro, path)
    if found is None:
        raise OptionError(
            f"{path} is {type_}, which cannot be written as {avro.called} of the Avro schema", hint="cast the column"
        )
    return found


def _any_writer(type_: pa.DataType, avro: AvroType, path: str, exact: bool = False) -> Writer | None:
    if avro.kind == "union":
        return _union_writer(type_, avro, path)
    found = _required_writer(type_, avro, path, exact)
    if found is None:
        return None
    write = found

    def without_nulls(entries: Entries) -> list[Part]:
        entries.refuse_nulls(AVRO, path, f"null, and the schema has {avro.called} without null")
        return write(entries)

    return write if avro.kind == "null" else without_nulls


def _required_writer(type_: pa.DataType, avro: AvroType, path: str, exact: bool) -> Writer | None:
    """Of entries that are there; of null, any."""
    if avro.kind == "null":
        return _nothing if pa.types.is_null(type_) else None
    if avro.kind == "record":
        return _record_writer(type_, avro, path) if pa.types.is_struct(type_) else None
    if avro.kind == "array":
        return _array_writer(type_, avro, path) if _is_list(type_) else None
    if avro.kind == "map":
        return _map_writer(type_, avro, path) if pa.types.is_map(type_) else None
    leaf = leaf_writer(type_, avro, exact)
    return None if leaf is None else lambda entries: leaf(entries, avro, path)


def _nothing(entries: Entries) -> list[Part]:
    return [Part(Pieces.empty(len(entries.array)))]


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


# ---- records


def _record_writer(type_: pa.DataType, avro: AvroType, path: str) -> Writer:
    """Raises OptionError for a field without a column that has no default either, and for a column without a field."""
    names = [field.name for field in type_]
    if lost := [name for name in names if all(name != one.name for one in avro.fields)]:
        raise OptionError(f"the Avro schema has no field for {', '.join(lost)} in {avro.name}")
    writers: list[tuple[int, Writer | None, bytes]] = []
    for one in avro.fields:
        place = names.index(one.name) if one.name in names else -1
        if place < 0:
            writers.append((place, None, _without_column(one, avro)))
        else:
            writers.append((place, _writer(type_.field(place).type, one.type, _inside(path, one.name)), b""))

    def write(entries: Entries) -> list[Part]:
        columns = entries.fields()
        parts = [Part(Pieces.empty(len(entries.array)))]
        for place, write_field, constant in writers:
            if write_field is None:
                parts.append(Part(parts[0].pieces, constant))
            else:
                parts += write_field(columns[place])
        return parts

    return write


def _inside(path: str, name: str) -> str:
    return name if path == "the row" else f"{path}.{name}"


def _without_column(one: AvroField, record: AvroType) -> bytes:
    """What a field holds that no column is for: its default, or null. Raises OptionError."""
    if one.default is not NO_DEFAULT and is_value(one.type, one.default):
        return default_bytes(one.type, one.default)
    nulls = [i for i, branch in enumerate(one.type.branches) if branch.kind == "null"]
    if not nulls:
        raise OptionError(f"the Avro schema has the field {one.name} in {record.name}, and there is no such column")
    return zigzag(nulls[0])


# ---- arrays and maps


def _array_writer(type_: pa.DataType, avro: AvroType, path: str) -> Writer:
    write = _writer(type_.value_type, avro.element, f"{path}.element")

    def write_lists(entries: Entries) -> list[Part]:
        held, offsets = entries.elements()
        return _blocks(joined(write(held)), offsets)

    return write_lists


def _map_writer(type_: pa.DataType, avro: AvroType, path: str) -> Writer | None:
    if type_.key_type not in (pa.string(), pa.large_string()):
        return None
    write = _writer(type_.item_type, avro.element, f"{path}.value")

    def write_maps(entries: Entries) -> list[Part]:
        held, offsets = entries.elements()
        key, value = held.fields()
        return _blocks(joined([*sized(Pieces.of(key.array), zigzags), *write(value)]), offsets)

    return write_maps


def _blocks(held: Pieces, offsets: np.ndarray) -> list[Part]:
    """Each list as one block, if it has elements, and the end."""
    counts = np.diff(offsets)
    some = counts > 0
    return [
        Part(zigzags(counts), b"", None if some.all() else some),
        Part(held.lists(offsets)),
        Part(Pieces.empty(len(counts)), _END),
    ]


# ---- unions


def _union_writer(type_: pa.DataType, avro: AvroType, path: str) -> Writer | None:
    null = next((zigzag(i) for i, one in enumerate(avro.branches) if one.kind == "null"), None)
    members = _member_writers(type_, avro, path)
    if members is not None:
        return _of_members(members, null, path)
    for exact in (True, False):
        for i, branch in enumerate(avro.branches):
            if branch.kind == "null" and not pa.types.is_null(type_):
                continue
            write = _branch_writer(type_, branch, path, exact)
            if write is not None:
                return _nullable(write, zigzag(i), null, path)
    return None


def _branch_writer(type_: pa.DataType, branch: AvroType, path: str, exact: bool) -> Writer | None:
    try:
        return _required_writer(type_, branch, path, exact)
    except OptionError:  # another branch may be for it
        if exact:
            return None
        raise


def _nullable(write: Writer, before: bytes, null: bytes | None, path: str) -> Writer:
    def write_union(entries: Entries) -> list[Part]:
        valid = valid_of(entries.array)
        if null is None:
            entries.refuse_nulls(AVRO, path, "null, and the union has none")
        return list(prefixed(write(entries), before, valid, null or b""))

    return write_union


def _member_writers(type_: pa.DataType, avro: AvroType, path: str) -> list[tuple[bytes, Writer]] | None:
    """The writers of a struct with a field for each branch but null, named member0 and so on, or as with
    `enableStableIdentifiersForUnionType`: what from_avro makes of a union. None for any other type."""
    branches = [(i, one) for i, one in enumerate(avro.branches) if one.kind != "null"]
    if not pa.types.is_struct(type_) or len(branches) == 1 or type_.num_fields != len(branches):
        return None
    found = []
    for k, (i, branch) in enumerate(branches):
        name = type_.field(k).name
        if name not in (f"member{k}", f"member_{branch.short_name}"):
            return None
        found.append((zigzag(i), _writer(type_.field(k).type, branch, f"{path}.{name}")))
    return found


def _of_members(members: list[tuple[bytes, Writer]], null: bytes | None, path: str) -> Writer:
    def write(entries: Entries) -> list[Part]:
        free = np.ones(len(entries.array), np.bool_)
        parts = []
        for (before, write_one), field in zip(members, entries.fields(), strict=True):
            valid = valid_of(field.array)
            taken = free if valid is None else free & valid
            free = free & ~taken
            inside = Entries(field.array, np.where(taken, field.rows, NOWHERE))
            parts.append(Part(joined(write_one(inside)), before, taken))
        if null is None:
            entries.refuse_nulls(AVRO, path, "null, and the union has none")
            entries.refuse(free, AVRO, path, "null, and the union has none")
        return [*parts, Part(Pieces.empty(len(free)), null or b"", free)]

    return write
