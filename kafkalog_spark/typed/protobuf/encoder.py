"""Rows to Protobuf, a column at a time: fields in the order of their numbers, maps in the order of their entries.

Every column is held against its field once, which makes a writer of it; a writer makes what stands in each message for
the field: tag and value, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns.byte_slices import (
    ByteSlices,
    Entries,
    Fragment,
    as_values,
    concat_fragments,
    fixed_width,
    is_binary,
    is_text,
    prefixed,
    sized,
    valid_of,
    varints,
    whole_numbers,
    zigzags,
)
from kafkalog_spark.typed.columns.java_text import well_formed
from kafkalog_spark.typed.protobuf import types
from kafkalog_spark.typed.protobuf.types import FieldType

# Columns of plain types to Protobuf: which types of fields each may be written as, and what makes the bytes.
#
# The types are those that reading gives a field (types.py), and others that hold the same numbers.

_UNSIGNED = (FieldType.UINT32, FieldType.UINT64, FieldType.FIXED32, FieldType.FIXED64)
_SHORT = (
    FieldType.INT32,
    FieldType.UINT32,
    FieldType.SINT32,
    FieldType.FIXED32,
    FieldType.SFIXED32,
    FieldType.ENUM,
)
_FLOATING = (FieldType.FLOAT, FieldType.DOUBLE)


class Scalars(NamedTuple):
    """Encoded entries of a column. parts: each entry without its tag; anything for null. zero: which are the zero
    of their type, bool[n], which proto3 leaves out."""

    parts: list[Fragment]
    zero: np.ndarray


Write = Callable[[Entries, Any, str], Scalars]
"""(entries, the field's descriptor, the place of the field). Raises InvalidRecord."""


def _scalar_writer(type_: pa.DataType, field: Any) -> Write | None:
    """Writer of a column of that type into that field, which is no message; None where there is none."""
    kind = field.type
    if kind in (FieldType.STRING, FieldType.BYTES):
        fits = is_text(type_) if kind == FieldType.STRING else is_binary(type_)
        return _texts if fits else None
    if kind in _FLOATING:
        return _fixed if pa.types.is_floating(type_) or pa.types.is_integer(type_) else None
    if kind == FieldType.BOOL:
        return _fixed if pa.types.is_boolean(type_) else None
    if kind == FieldType.ENUM and is_text(type_):
        return _names
    whole = pa.types.is_integer(type_) or (pa.types.is_decimal128(type_) and type_.scale == 0)
    return _numbers if whole else None


def _texts(entries: Entries, field: Any, path: str) -> Scalars:
    slices = ByteSlices.of(well_formed(entries.array) if field.type == FieldType.STRING else entries.array)
    return Scalars(sized(slices, varints), slices.sizes() == 0)


def _fixed(entries: Entries, field: Any, path: str) -> Scalars:
    width, dtype = {
        FieldType.BOOL: (1, "u1"),
        FieldType.FLOAT: (4, "<f4"),
        FieldType.DOUBLE: (8, "<f8"),
    }[field.type]
    slices = fixed_width(entries.array, dtype)
    bits = slices.data[: len(slices) * width].reshape(-1, width)
    return Scalars([Fragment(slices)], np.logical_not(bits.any(axis=1)))  # -0.0 is no zero


def _names(entries: Entries, field: Any, path: str) -> Scalars:
    values = field.enum_type.values_by_name
    what = f"no name of the enum {field.enum_type.full_name}"
    places = entries.places(list(values), message_of(field), path, what)
    numbers = np.array([values[name].number for name in values], np.int64)[places]
    return Scalars([Fragment(varints(numbers))], numbers == 0)


def _numbers(entries: Entries, field: Any, path: str) -> Scalars:
    numbers = _in_range(entries, field, path)
    zero = numbers == 0
    if field.type in (FieldType.SINT32, FieldType.SINT64):
        return Scalars([Fragment(zigzags(numbers))], zero)
    if types.wire_type(field) == types.VARINT:
        return Scalars([Fragment(varints(numbers))], zero)
    stored = numbers.astype(
        "<i4" if types.wire_type(field) == types.FOUR_BYTES else "<i8"
    )  # the bits, also of an unsigned number
    return Scalars([Fragment(ByteSlices.of_rows(stored.view(np.uint8).reshape(len(stored), stored.itemsize)))], zero)


def _in_range(entries: Entries, field: Any, path: str) -> np.ndarray:
    """The numbers as 64 bits; below 0, in a column as wide as an unsigned field, their bits, as Spark has them."""
    array = entries.array
    if pa.types.is_decimal128(array.type):
        array = _of_decimals(entries, field, path)
    numbers = whole_numbers(array)
    if field.type in _SHORT:
        unsigned = field.type in _UNSIGNED
        low = -(2**31) if not unsigned or array.type.bit_width <= 32 else 0
        high = 2**32 if unsigned else 2**31
        entries.refuse((numbers < low) | (numbers >= high), message_of(field), path, "a number beyond 32 bits")
        if unsigned:
            return numbers & 0xFFFF_FFFF
        if field.type == FieldType.ENUM and field.enum_type.is_closed:
            values = np.array(list(field.enum_type.values_by_number), np.int64)
            entries.refuse(~np.isin(numbers, values), message_of(field), path, "no number of the enum")
    return numbers


def _of_decimals(entries: Entries, field: Any, path: str) -> pa.Array:
    unsigned = field.type in _UNSIGNED
    bound = pa.scalar(2**64 if unsigned else 2**63, pa.decimal128(38, 0))
    low = pa.scalar(0 if unsigned else -(2**63), pa.decimal128(38, 0))
    wide = entries.array.cast(pa.decimal128(38, 0))
    wrong = pc.or_(pc.less(wide, low), pc.greater_equal(wide, bound))
    wrong = pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)
    entries.refuse(wrong, message_of(field), path, "a number beyond 64 bits")
    kept = pc.if_else(pa.array(wrong), None, wide)  # what is not written may be anything
    return kept.cast(pa.uint64() if unsigned else pa.int64()).view(pa.int64())


def message_of(field: Any) -> str:
    """The message that a field is of, for errors."""
    return str(field.containing_type.full_name)


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
