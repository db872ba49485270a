"""Rows to Protobuf, a column at a time: fields in the order of their numbers, maps in the order of their entries.

Every column is held against its field once, which makes a writer of it; a writer makes what stands in each message for
the field: tag and value, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns.byte_slices import (
    ByteSlices,
    Fragment,
    as_values,
    concat_fragments,
    prefixed,
    valid_of,
)
from kafkalog_spark.typed.columns.entries import Entries
from kafkalog_spark.typed.columns.number_slices import sized, varints, whole_numbers
from kafkalog_spark.typed.protobuf import types
from kafkalog_spark.typed.protobuf.leaf_encoders import Scalars, _scalar_writer, message_of
from kafkalog_spark.typed.protobuf.types import FieldType

Values = Callable[[Entries], Scalars]  # function that encodes entries without their tags, messages too
Writer = Callable[[Entries, np.ndarray | None], list[Fragment]]
"""Function that writes a field of each message; mask, bool[n]: the messages that have it, None: those with an entry."""
_KEY, _VALUE = 1, 2  # the fields of a map's entries


class ProtobufEncoder:
    """Encodes rows as messages of a descriptor; null is a field that is not there."""

    def __init__(self, descriptor: Any, given: pa.Schema, prefix: bytes = b"") -> None:
        """prefix: what begins each value. Raises OptionError for a column that the message has no field for."""
        self._write = _message_writer(pa.struct(list(given)), descriptor, "")
        self._prefix = prefix

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        return as_values(self._write(Entries.of(columns)), self._prefix, valid_of(columns))


def _message_writer(type_: pa.DataType, descriptor: Any, path: str) -> Callable[[Entries], list[Fragment]]:
    by_name = descriptor.fields_by_name
    if lost := [field.name for field in type_ if field.name not in by_name]:
        raise OptionError(f"the message {descriptor.full_name} has no field for {', '.join(lost)}")
    places = {field.name: i for i, field in enumerate(type_)}
    fields = sorted(((by_name[name], i) for name, i in places.items()), key=lambda pair: pair[0].number)
    writers = [(at, field, _field_writer(type_.field(at).type, field, path + field.name)) for field, at in fields]
    needed = [field.name for field in descriptor.fields if types.is_required(field)]
    if missing := [name for name in needed if name not in places]:
        raise OptionError(f"the message {descriptor.full_name} requires {', '.join(missing)}: there is no such column")

    def write(entries: Entries) -> list[Fragment]:
        columns = entries.fields()
        parts = [Fragment(ByteSlices.empty(len(entries.array)))]
        for at, field, write_field in writers:
            if types.is_required(field):
                columns[at].refuse_nulls(message_of(field), path + field.name, "null, and it is required")
            parts += write_field(columns[at], _chosen(field, columns, places))
        return parts

    return write


def _chosen(field: Any, columns: list[Entries], places: dict[str, int]) -> np.ndarray | None:
    """Mask of a oneof's member: the messages in which no later column is another member of it, bool[n]; else None."""
    oneof = field.containing_oneof
    if oneof is None:
        return None
    later = [places[member.name] for member in oneof.fields if places.get(member.name, -1) > places[field.name]]
    free = None
    for at in later:
        valid = valid_of(columns[at].array)
        taken = np.ones(len(columns[at].array), np.bool_) if valid is None else valid
        free = ~taken if free is None else free & ~taken
    return free


def _field_writer(type_: pa.DataType, field: Any, path: str) -> Writer:
    if types.is_map(field):
        if not pa.types.is_map(type_):
            raise _refused(type_, field, path)
        return _map_writer(type_, field, path)
    if types.is_repeated(field):
        if not pa.types.is_list(type_) and not pa.types.is_large_list(type_):
            raise _refused(type_, field, path)
        return _repeated_writer(type_, field, path)
    values, tag = _values(type_, field, path), _tag(field)

    def write(entries: Entries, chosen: np.ndarray | None) -> list[Fragment]:
        parts, zero = values(entries)
        valid = valid_of(entries.array)
        for mask in (chosen, None if field.has_presence or types.is_required(field) else ~zero):
            if mask is not None:
                valid = mask if valid is None else valid & mask
        return list(prefixed(parts, tag, valid))

    return write


def _refused(type_: pa.DataType, field: Any, path: str) -> OptionError:
    return OptionError(f"{path} is {type_}, which the field {field.full_name} does not take", hint="cast the column")


def _tag(field: Any, wire: int | None = None) -> bytes:
    number = field.number << 3 | (types.wire_type(field) if wire is None else wire)
    made = varints(np.array([number], np.int64))
    return made.data[: made.offsets[-1]].tobytes()


def _values(type_: pa.DataType, field: Any, path: str) -> Values:
    """Raises OptionError where a column of that type cannot be one value of that field."""
    if field.type == FieldType.GROUP:
        raise OptionError(f"{field.full_name} is a group, which kafkalog does not write")
    if field.type == FieldType.MESSAGE:
        return _messages(type_, field, path)
    write = _scalar_writer(type_, field)
    if write is None:
        raise _refused(type_, field, path)
    return lambda entries: write(entries, field, path)


def _messages(type_: pa.DataType, field: Any, path: str) -> Values:
    if types.is_time(field.message_type, "Timestamp") and pa.types.is_timestamp(type_):
        write = _timestamps(field.message_type)
    elif pa.types.is_struct(type_):
        write = _message_writer(type_, field.message_type, f"{path}.")
    else:
        raise _refused(type_, field, path)

    def values(entries: Entries) -> Scalars:
        return Scalars(sized(concat_fragments(write(entries)), varints), np.zeros(len(entries.array), np.bool_))

    return values


def _timestamps(descriptor: Any) -> Callable[[Entries], list[Fragment]]:
    seconds_tag, nanos_tag = (_tag(descriptor.fields_by_name[name]) for name in ("seconds", "nanos"))

    def write(entries: Entries) -> list[Fragment]:
        us = whole_numbers(entries.array)
        seconds = us // 1_000_000
        nanos = (us - seconds * 1_000_000) * 1000
        return [
            Fragment(varints(numbers), tag, numbers != 0)
            for tag, numbers in sorted(((seconds_tag, seconds), (nanos_tag, nanos)), key=lambda pair: pair[0])
        ]

    return write


def _repeated_writer(type_: pa.DataType, field: Any, path: str) -> Writer:
    values, packed, tag = _values(type_.value_type, field, path), field.is_packed, _tag(field)

    def write(entries: Entries, chosen: np.ndarray | None) -> list[Fragment]:
        held, offsets = entries.elements()
        held.refuse_nulls(message_of(field), path, "a null, which a repeated field cannot hold")
        parts, _ = values(held)
        if not packed:
            return [Fragment(concat_fragments(prefixed(parts, tag)).lists(offsets))]
        lists = sized(concat_fragments(parts).lists(offsets), varints)
        return list(prefixed(lists, _tag(field, types.SIZED), np.diff(offsets) > 0))

    return write


def _map_writer(type_: pa.DataType, field: Any, path: str) -> Writer:
    fields = field.message_type.fields_by_number
    keys = _values(type_.key_type, fields[_KEY], f"{path}.key")
    items = _values(type_.item_type, fields[_VALUE], f"{path}.value")
    tag, key_tag, value_tag = _tag(field), _tag(fields[_KEY]), _tag(fields[_VALUE])

    def write(entries: Entries, chosen: np.ndarray | None) -> list[Fragment]:
        held, offsets = entries.elements()
        key, item = held.fields()
        item.refuse_nulls(message_of(field), path, "a null, which a map cannot hold")
        both = concat_fragments([*prefixed(keys(key).parts, key_tag), *prefixed(items(item).parts, value_tag)])
        return [Fragment(concat_fragments(prefixed(sized(both, varints), tag)).lists(offsets))]

    return write
