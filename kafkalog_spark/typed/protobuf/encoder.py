"""Encoder of rows in Protobuf, which works column by column.

When it is created, a writer function is selected for each column by its type and its field. A writer encodes the field
of all messages: for each message a tag and a value, or nothing. Fields are written in the order of their numbers, maps
in the order of their entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.varints import uvarint
from kafkalog_spark.typed.columns.byte_slices import (
    ByteSlices,
    Fragment,
    as_values,
    concat_fragments,
    prefixed,
    valid_of,
)
from kafkalog_spark.typed.columns.entries import Entries
from kafkalog_spark.typed.columns.number_slices import length_prefixed, varints, whole_numbers
from kafkalog_spark.typed.protobuf import field_types
from kafkalog_spark.typed.protobuf.field_types import FieldType
from kafkalog_spark.typed.protobuf.leaf_encoders import Scalars, message_name, scalar_writer

ValueWriter = Callable[[Entries], Scalars]
"""Function that encodes the values of a field, scalars or messages, without tags."""
FieldWriter = Callable[[Entries, np.ndarray | None], list[Fragment]]
"""Function (entries, mask) that encodes a field of each message, with its tag. The field is written if the entry is not
null and the mask, bool[n], is true; a mask of None is true everywhere."""
_KEY, _VALUE = 1, 2  # field numbers of a map entry


class ProtobufEncoder:
    """Encoder of rows as messages of one descriptor. A null is an absent field."""

    def __init__(self, descriptor: Any, row_schema: pa.Schema, prefix: bytes = b"") -> None:
        """Match columns with a message.

        Args:
            descriptor: Descriptor of the message.
            row_schema: Columns of the rows.
            prefix: Bytes before each value.

        Raises:
            OptionError: If a column has no field or cannot be written as it, or a required field has no column.
        """
        self._write = _message_writer(pa.struct(list(row_schema)), descriptor, "")
        self._prefix = prefix

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        return as_values(self._write(Entries.of_rows(columns)), self._prefix, valid_of(columns))


def _message_writer(type_: pa.DataType, descriptor: Any, path: str) -> Callable[[Entries], list[Fragment]]:
    by_name = descriptor.fields_by_name
    if unknown := [field.name for field in type_ if field.name not in by_name]:
        raise OptionError(f"the message {descriptor.full_name} has no field for {', '.join(unknown)}")
    indexes = {field.name: i for i, field in enumerate(type_)}
    fields = sorted(((by_name[name], i) for name, i in indexes.items()), key=lambda pair: pair[0].number)
    writers = [(i, field, _field_writer(type_.field(i).type, field, path + field.name)) for field, i in fields]
    needed = [field.name for field in descriptor.fields if field_types.is_required(field)]
    if missing := [name for name in needed if name not in indexes]:
        raise OptionError(
            f"the message {descriptor.full_name} requires {', '.join(missing)}, but the rows have no such column"
        )

    def write(entries: Entries) -> list[Fragment]:
        columns = entries.fields()
        parts = [Fragment(ByteSlices.empty(len(entries.array)))]
        for i, field, write_field in writers:
            if field_types.is_required(field):
                columns[i].refuse_nulls(message_name(field), path + field.name, "null, and it is required")
            parts += write_field(columns[i], _not_overridden(field, columns, indexes))
        return parts

    return write


def _not_overridden(field: Any, columns: list[Entries], indexes: dict[str, int]) -> np.ndarray | None:
    """Return in which messages no later column sets another member of the field's oneof, bool[n]; None for all."""
    oneof = field.containing_oneof
    if oneof is None:
        return None
    later = [indexes[member.name] for member in oneof.fields if indexes.get(member.name, -1) > indexes[field.name]]
    mask = None
    for i in later:
        valid = valid_of(columns[i].array)
        is_null = np.zeros(len(columns[i].array), np.bool_) if valid is None else ~valid
        mask = is_null if mask is None else mask & is_null
    return mask


def _field_writer(type_: pa.DataType, field: Any, path: str) -> FieldWriter:
    if field_types.is_map(field):
        if not pa.types.is_map(type_):
            raise _type_error(type_, field, path)
        return _map_writer(type_, field, path)
    if field_types.is_repeated(field):
        if not pa.types.is_list(type_) and not pa.types.is_large_list(type_):
            raise _type_error(type_, field, path)
        return _repeated_writer(type_, field, path)
    write_values, tag = _value_writer(type_, field, path), _encode_tag(field)
    omits_zero = not field.has_presence and not field_types.is_required(field)

    def write(entries: Entries, mask: np.ndarray | None) -> list[Fragment]:
        parts, is_zero = write_values(entries)
        conditions = [valid_of(entries.array), mask, ~is_zero if omits_zero else None]
        is_written = None
        for condition in conditions:
            if condition is not None:
                is_written = condition if is_written is None else is_written & condition
        return list(prefixed(parts, tag, is_written))

    return write


def _type_error(type_: pa.DataType, field: Any, path: str) -> OptionError:
    return OptionError(
        f"{path} is {type_}, which cannot be written as the field {field.full_name}", hint="cast the column"
    )


def _encode_tag(field: Any, *, is_packed: bool = False) -> bytes:
    wire = field_types.WireType.LEN if is_packed else field_types.wire_type(field)
    return uvarint(field.number << 3 | wire)


def _value_writer(type_: pa.DataType, field: Any, path: str) -> ValueWriter:
    """Return the writer of a field's values. Raises OptionError if the field cannot represent the type."""
    if field.type == FieldType.GROUP:
        raise OptionError(f"{field.full_name} is a group, which kafkalog does not write")
    if field.type == FieldType.MESSAGE:
        return _submessage_writer(type_, field, path)
    write = scalar_writer(type_, field)
    if write is None:
        raise _type_error(type_, field, path)
    return lambda entries: write(entries, field, path)


def _submessage_writer(type_: pa.DataType, field: Any, path: str) -> ValueWriter:
    if field_types.is_time(field.message_type, "Timestamp") and pa.types.is_timestamp(type_):
        write = _timestamp_writer(field.message_type)
    elif pa.types.is_struct(type_):
        write = _message_writer(type_, field.message_type, f"{path}.")
    else:
        raise _type_error(type_, field, path)

    def write_messages(entries: Entries) -> Scalars:
        return Scalars(
            length_prefixed(concat_fragments(write(entries)), varints), np.zeros(len(entries.array), np.bool_)
        )

    return write_messages


def _timestamp_writer(descriptor: Any) -> Callable[[Entries], list[Fragment]]:
    seconds_tag, nanos_tag = (_encode_tag(descriptor.fields_by_name[name]) for name in ("seconds", "nanos"))

    def write(entries: Entries) -> list[Fragment]:
        us = whole_numbers(entries.array)
        seconds = us // 1_000_000
        nanos = (us - seconds * 1_000_000) * 1000
        return [
            Fragment(varints(numbers), tag, numbers != 0)
            for tag, numbers in sorted(((seconds_tag, seconds), (nanos_tag, nanos)), key=lambda pair: pair[0])
        ]

    return write


def _repeated_writer(type_: pa.DataType, field: Any, path: str) -> FieldWriter:
    write_values, is_packed, tag = _value_writer(type_.value_type, field, path), field.is_packed, _encode_tag(field)

    def write(entries: Entries, mask: np.ndarray | None) -> list[Fragment]:
        elements, offsets = entries.elements()
        elements.refuse_nulls(message_name(field), path, "a null, which a repeated field cannot hold")
        parts, _ = write_values(elements)
        if not is_packed:
            return [Fragment(concat_fragments(prefixed(parts, tag)).join_lists(offsets))]
        lists = length_prefixed(concat_fragments(parts).join_lists(offsets), varints)
        return list(prefixed(lists, _encode_tag(field, is_packed=True), np.diff(offsets) > 0))

    return write


def _map_writer(type_: pa.DataType, field: Any, path: str) -> FieldWriter:
    fields = field.message_type.fields_by_number
    write_keys = _value_writer(type_.key_type, fields[_KEY], f"{path}.key")
    write_items = _value_writer(type_.item_type, fields[_VALUE], f"{path}.value")
    tag, key_tag, value_tag = _encode_tag(field), _encode_tag(fields[_KEY]), _encode_tag(fields[_VALUE])

    def write(entries: Entries, mask: np.ndarray | None) -> list[Fragment]:
        elements, offsets = entries.elements()
        keys, items = elements.fields()
        items.refuse_nulls(message_name(field), path, "a null, which a map cannot hold")
        key_parts, item_parts = prefixed(write_keys(keys).parts, key_tag), prefixed(write_items(items).parts, value_tag)
        map_entries = concat_fragments([*key_parts, *item_parts])
        return [Fragment(concat_fragments(prefixed(length_prefixed(map_entries, varints), tag)).join_lists(offsets))]

    return write
