"""Parser of kio's entities that trusts nothing of the bytes: requests as the broker reads them, responses as clients of
other brokers do.

kio's native reader makes room for as many elements as an array announces. 2^31 of them are tens of gigabytes, and where
that is more than the system allows, the whole process is aborted: one small frame would end the broker. So the bytes
are walked before kio reads them: an array announces no more elements than the bytes that are left have room for, all
arrays together no more than the caller allows, and null only where the protocol has a null array. The walk follows the
same fields in the same order as kio's reader, so where it finds the entity cut short the reader does too, before any
array after that place.

Tagged fields (KIP-482) are a count, then tag, size and value of each. kio refuses tags that it does not know, so an
entity with such tags, from a newer peer, is read again without them. kio goes on after the value of a tagged field and
ignores the size that stands before it, so an entity in which that size is not the size of the value is refused: walk
and reader would stand at different bytes from there on.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from kio.serial import entity_reader
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional
from kio.serial.errors import SerialError

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.frames import read_uvarint
from kafkalog_spark.format.varints import uvarint

Body = bytes | memoryview
DAMAGE = (MalformedRequest, SerialError, ValueError, KeyError, OverflowError, IndexError, struct.error)
"""Errors of a parser. kio raises ValueError for bad varints and unknown enum values, OverflowError for durations and
dates that Python cannot hold, and its own SerialError for the rest."""

UNBOUNDED = 1 << 62
"""Elements of arrays in an entity, where only its size bounds them."""


class Walk:
    """State of one walk.

    left: how many elements and tagged fields may still come. edits: which bytes have to be replaced so that no unknown
    tag is left, as (begin, end, bytes) in rising order.
    """

    __slots__ = ("edits", "left")

    def __init__(self, left: int = UNBOUNDED) -> None:
        self.left = left
        self.edits: list[tuple[int, int, bytes]] = []

    def announce(self, count: int) -> None:
        """An array of `count` elements, or so many tagged fields, follow. Raises MalformedRequest for too many."""
        self.left -= count
        if self.left < 0:
            raise MalformedRequest("it names more things than one request may: send several smaller ones")


Skip = Callable[[Body, int, Walk], int]
"""(entity, position, walk) to the position after a value. Raises MalformedRequest, struct.error or IndexError."""

_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")
_FIXED_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4, "timedelta_i32": 4,
    "int64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
_NULL_STRUCT = 0xFF


def entity_parser(entity: type[Any], max_elements: int = UNBOUNDED) -> Callable[[Body, int], Any]:
    """(bytes, position) to the entity that begins there. It raises one of DAMAGE, MalformedRequest where all arrays
    together have more than `max_elements`."""
    read, layout = entity_reader(entity), _entity(entity)
    walk = layout.skip if layout.has_arrays else None

    def parse(data: Body, position: int) -> Any:
        if walk is not None:
            walk(data, position, Walk(max_elements))
        try:
            return read(data, position)[0]
        except KeyError:  # a tag that kio does not know
            return read(without_unknown_tags(data, position, entity), 0)[0]

    return parse


def without_unknown_tags(data: Body, position: int, entity: type[Any]) -> bytes:
    """A copy of the encoded `entity` at `position` that has only tags which kio's class knows."""
    walk, out = Walk(), []
    end = array_check(entity)(data, position, walk)
    for begin, after, replacement in walk.edits:
        out += [data[position:begin], replacement]
        position = after
    return b"".join((*out, data[position:end]))


def array_check(entity: type[Any]) -> Skip:
    """The walk over one of kio's classes."""
    layout = _entity(entity)
    return layout.skip or _fixed_skip(layout.size)


class _Layout(NamedTuple):
    """How a value is passed over. size: bytes of it, the fewest when `skip` is given; has_arrays: in it."""

    size: int
    skip: Skip | None = None
    has_arrays: bool = False


def _entity(entity: type[Any]) -> _Layout:
    flexible = entity.__flexible__
    tagged: dict[int, Skip] = {}
    layouts: list[_Layout] = []
    arrays_in_tags = False
    for field in dataclasses.fields(entity):
        if "tag" in field.metadata:
            # The value of a tagged field is never null by itself: the tag is there or not (kio's get_field_writer).
            layout = _field(field, flexible=True, null_struct=False)
            tagged[field.metadata["tag"]] = layout.skip or _fixed_skip(layout.size)
            arrays_in_tags |= layout.has_arrays
        else:
            layouts.append(_field(field, flexible=flexible, null_struct=is_optional(field)))
    if flexible:
        layouts.append(_Layout(1, _tags_skip(tagged), arrays_in_tags))
    return _sequence(layouts)


def _field(field: dataclasses.Field[Any], *, flexible: bool, null_struct: bool) -> _Layout:
    kind = classify_field(field)
    if isinstance(kind, EntityField):
        struct_layout = _entity(kind.type_)
        return _Layout(1, _nullable_skip(struct_layout), struct_layout.has_arrays) if null_struct else struct_layout
    if isinstance(kind, EntityTupleField):
        element = _entity(kind.type_)
    else:
        element = _primitive(field.metadata["kafka_type"], flexible=flexible)
    if not kind.is_array:
        return element
    skip = _array_skip(element, field.name, flexible=flexible, nullable=is_optional(field))
    return _Layout(1 if flexible else _I32.size, skip, True)


def _primitive(kafka_type: str, *, flexible: bool) -> _Layout:
    fixed = _FIXED_SIZES.get(kafka_type)
    if fixed is not None:
        return _Layout(fixed)
    if flexible:
        return _Layout(1, _compact_skip)
    return _Layout(_I16.size, _short_skip) if kafka_type == "string" else _Layout(_I32.size, _long_skip)


def _sequence(layouts: list[_Layout]) -> _Layout:
    steps: list[int | Skip] = []
    for layout in layouts:
        if layout.skip is not None:
            steps.append(layout.skip)
        elif steps and isinstance(steps[-1], int):
            steps[-1] += layout.size
        else:
            steps.append(layout.size)
    size = sum(layout.size for layout in layouts)
    if all(isinstance(step, int) for step in steps):
        return _Layout(size)

    def skip(data: Body, position: int, walk: Walk) -> int:
        for step in steps:
            position = position + step if isinstance(step, int) else step(data, position, walk)
        return position

    return _Layout(size, skip, any(layout.has_arrays for layout in layouts))


def _array_skip(element: _Layout, name: str, *, flexible: bool, nullable: bool) -> Skip:
    smallest, skip_element = max(element.size, 1), element.skip

    def skip(data: Body, position: int, walk: Walk) -> int:
        if flexible:
            count, position = read_uvarint(data, position)
            count -= 1
        else:
            (count,) = _I32.unpack_from(data, position)
            position += _I32.size
        left = len(data) - position
        if count < -1:
            raise MalformedRequest(f"the array {name} has the length {count}")
        if count < 0 and not nullable:
            raise MalformedRequest(f"the array {name} is null")
        if count * smallest > left:
            raise MalformedRequest(f"an array of {count} elements at byte {position}, {left} bytes are left")
        if count <= 0:
            return position
        walk.announce(count)
        if skip_element is None:
            return position + count * smallest
        for _ in range(count):
            position = skip_element(data, position, walk)
        return position

    return skip


def _nullable_skip(layout: _Layout) -> Skip:
    """A nullable struct (KIP-893): one byte says whether it is there. kio takes every one but -1 for a yes."""
    skip_struct = layout.skip or _fixed_skip(layout.size)

    def skip(data: Body, position: int, walk: Walk) -> int:
        return position + 1 if data[position] == _NULL_STRUCT else skip_struct(data, position + 1, walk)

    return skip


def _tags_skip(tagged: dict[int, Skip]) -> Skip:
    def skip(data: Body, position: int, walk: Walk) -> int:
        if data[position] == 0:  # no tags: nearly always
            return position + 1
        begin, edits = position, walk.edits
        count_at = len(edits)
        count, position = read_uvarint(data, position)
        count_end, known = position, 0
        walk.announce(count)
        for _ in range(count):
            tag_at = position
            tag, size_at = read_uvarint(data, position)
            size, position = read_uvarint(data, size_at)
            end = position + size
            if end > len(data):
                raise MalformedRequest(f"tagged field {tag} of {size} bytes ends after the {len(data)} of the request")
            if tag in tagged:
                known += 1
                here = len(edits)
                if tagged[tag](data, position, walk) != end:
                    raise MalformedRequest(f"tagged field {tag} does not fill its {size} bytes")
                if len(edits) > here:
                    size += sum(len(by) - (after - first) for first, after, by in edits[here:])
                    edits.insert(here, (size_at, position, uvarint(size)))
            else:
                edits.append((tag_at, end, b""))
            position = end
        if known < count:
            edits.insert(count_at, (begin, count_end, uvarint(known)))
        return position

    return skip


def _fixed_skip(size: int) -> Skip:
    return lambda data, position, walk: position + size


def _compact_skip(data: Body, position: int, walk: Walk) -> int:
    length, position = read_uvarint(data, position)
    return position + max(length - 1, 0)


def _short_skip(data: Body, position: int, walk: Walk) -> int:
    (length,) = _I16.unpack_from(data, position)
    return position + _I16.size + max(int(length), 0)


def _long_skip(data: Body, position: int, walk: Walk) -> int:
    (length,) = _I32.unpack_from(data, position)
    return position + _I32.size + max(int(length), 0)
