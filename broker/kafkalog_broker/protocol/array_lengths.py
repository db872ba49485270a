"""Array lengths of a request held against its bytes, before kio reads it.

kio's native reader makes room for as many elements as an array announces. 2^31 of them are tens of gigabytes, and where
that is more than the system allows, the whole process is aborted: one small frame would end the broker. Every element
has at least some bytes, so an honest array never announces more than what is left of the request has room for.

kio also reads null where the protocol has no null array. Kafka's own readers refuse that, and so does a check.

A check follows the same fields in the same order as the reader, so where it finds the request cut short the reader does
too, before any array after that place. kio goes on after the value of a tagged field and ignores the size that stands
before it, so a request in which that size is not the size of the value is refused: the two would stand at different
bytes from there on.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from kio.serial import entity_reader
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_schema_field_type, is_optional
from kio.serial._parse import get_reader
from kio.serial.errors import SerialError

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.frames import read_uvarint, uvarint

Body = bytes | memoryview
Skip = Callable[[Body, int], int]
"""(request, position) to the position after a value. Raises MalformedRequest, struct.error or IndexError."""

_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")
_FIXED_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4, "timedelta_i32": 4,
    "int64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip

NULL_STRUCT = 0xFF
"""The byte in place of a nullable struct that is null."""


class _Kind(NamedTuple):
    """How a value is passed over. size: bytes of it, the fewest when `skip` is given; has_arrays: in it."""

    size: int
    skip: Skip | None = None
    has_arrays: bool = False


def array_check(entity: type[Any]) -> Skip | None:
    """The check for one of kio's request classes; None when it has no arrays."""
    kind = _entity(entity)
    return kind.skip if kind.has_arrays else None


def smallest_size(field: dataclasses.Field[Any], *, flexible: bool) -> int:
    """The fewest bytes that an element of this array has, at least 1."""
    return max(_element(field, flexible=flexible).size, 1)


def array_count(
    data: Body, position: int, name: str, smallest: int, *, flexible: bool, nullable: bool
) -> tuple[int, int]:
    """How many elements the array at `position` has, negative for null, and where they begin.

    Raises MalformedRequest for a null that may not be, and for more than there is room for.
    """
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
    return count, position


def _entity(entity: type[Any]) -> _Kind:
    flexible = entity.__flexible__
    tagged: dict[int, Skip] = {}
    kinds: list[_Kind] = []
    arrays_in_tags = False
    for field in dataclasses.fields(entity):
        if "tag" in field.metadata:
            kind = _field(field, flexible=True, null_struct=False)
            tagged[field.metadata["tag"]] = kind.skip or _fixed_skip(kind.size)
            arrays_in_tags |= kind.has_arrays
        else:
            kinds.append(_field(field, flexible=flexible, null_struct=is_optional(field)))
    if flexible:
        kinds.append(_Kind(1, _tags_skip(tagged), arrays_in_tags))
    return _sequence(kinds)


def _field(field: dataclasses.Field[Any], *, flexible: bool, null_struct: bool) -> _Kind:
    """null_struct: a struct may be null by itself; as the value of a tagged field it never is."""
    kind = classify_field(field)
    if isinstance(kind, EntityField):
        one = _entity(kind.type_)
        return _Kind(1, _nullable_skip(one), one.has_arrays) if null_struct else one
    element = _element(field, flexible=flexible)
    if not kind.is_array:
        return element
    nullable = is_optional(field)
    skip = _array_skip(element, field.name, flexible=flexible, nullable=nullable)
    return _Kind(1 if flexible else _I32.size, skip, True)


def _element(field: dataclasses.Field[Any], *, flexible: bool) -> _Kind:
    kind = classify_field(field)
    if isinstance(kind, EntityTupleField):
        return _entity(kind.type_)
    return _primitive(field.metadata["kafka_type"], flexible=flexible)


def _primitive(kafka_type: str, *, flexible: bool) -> _Kind:
    fixed = _FIXED_SIZES.get(kafka_type)
    if fixed is not None:
        return _Kind(fixed)
    if flexible:
        return _Kind(1, _compact_skip)
    return _Kind(_I16.size, _short_skip) if kafka_type == "string" else _Kind(_I32.size, _long_skip)


def _sequence(kinds: list[_Kind]) -> _Kind:
    """Values one after another; those of a fixed size are passed over together."""
    steps: list[int | Skip] = []
    for kind in kinds:
        if kind.skip is not None:
            steps.append(kind.skip)
        elif steps and isinstance(steps[-1], int):
            steps[-1] += kind.size
        else:
            steps.append(kind.size)
    size = sum(kind.size for kind in kinds)
    if all(isinstance(step, int) for step in steps):
        return _Kind(size)

    def skip(data: Body, position: int) -> int:
        for step in steps:
            position = position + step if isinstance(step, int) else step(data, position)
        return position

    return _Kind(size, skip, any(kind.has_arrays for kind in kinds))


def _array_skip(element: _Kind, name: str, *, flexible: bool, nullable: bool) -> Skip:
    smallest, skip_element = max(element.size, 1), element.skip

    def skip(data: Body, position: int) -> int:
        count, position = array_count(data, position, name, smallest, flexible=flexible, nullable=nullable)
        if skip_element is None:
            return position + max(count, 0) * smallest
        for _ in range(count):
            position = skip_element(data, position)
        return position

    return skip


def _nullable_skip(one: _Kind) -> Skip:
    """A nullable struct (KIP-893): one byte says whether it is there. kio takes every one but -1 for a yes."""

    def skip(data: Body, position: int) -> int:
        if data[position] == NULL_STRUCT:
            return position + 1
        return position + 1 + one.size if one.skip is None else one.skip(data, position + 1)

    return skip


def _tags_skip(tagged: dict[int, Skip]) -> Skip:
    def skip(data: Body, position: int) -> int:
        if data[position] == 0:  # no tags: nearly always
            return position + 1
        count, position = read_uvarint(data, position)
        for _ in range(count):
            tag, position = read_uvarint(data, position)
            size, position = read_uvarint(data, position)
            if tag in tagged and tagged[tag](data, position) != position + size:
                raise MalformedRequest(f"tagged field {tag} does not fill its {size} bytes")
            position += size
            if position > len(data):
                raise MalformedRequest(f"tagged field {tag} of {size} bytes ends after the {len(data)} of the request")
        return position

    return skip


def _fixed_skip(size: int) -> Skip:
    return lambda data, position: position + size


def _compact_skip(data: Body, position: int) -> int:
    length, position = read_uvarint(data, position)
    return position + max(length - 1, 0)


def _short_skip(data: Body, position: int) -> int:
    (length,) = _I16.unpack_from(data, position)
    return position + _I16.size + max(int(length), 0)


def _long_skip(data: Body, position: int) -> int:
    (length,) = _I32.unpack_from(data, position)
    return position + _I32.size + max(int(length), 0)


# Tagged fields (KIP-482): a count, then tag, size and value of each, in rising order of tags.
#
# A peer may send tags that are not known here, and they must be passed over. kio refuses them, so a request that it
# refuses is rewritten without them and read again. That happens only when a newer client sends a newer field.


def without_unknown_tags(data: Body, position: int, entity: type[Any]) -> bytes:
    """A copy of the encoded `entity` at `position` that has only tags which kio's class knows."""
    out: list[Body] = []
    _copy_entity(data, position, entity, out)
    return b"".join(out)


def _copy_entity(data: Body, position: int, entity: type[Any], out: list[Body]) -> int:
    tagged = {}
    for field in dataclasses.fields(entity):
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = field
        else:
            position = _copy_field(data, position, field, entity.__flexible__, is_optional(field), out)
    if not entity.__flexible__:
        return position
    count, position = read_uvarint(data, position)
    kept: list[Body] = []
    known = 0
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        end = position + size
        if end > len(data):
            raise MalformedRequest(f"tagged field {tag} of {size} bytes ends past the request of {len(data)} bytes")
        if tag in tagged:
            value: list[Body] = []
            # The value of a tagged field is never null by itself: the tag is there or not (see kio's get_field_writer).
            if _copy_field(data, position, tagged[tag], True, False, value) != end:
                raise MalformedRequest(f"tagged field {tag} does not fill its {size} bytes")
            known += 1
            kept += [uvarint(tag), uvarint(sum(map(len, value))), *value]
        position = end
    out += [uvarint(known), *kept]
    return position


def _copy_field(
    data: Body, position: int, field: dataclasses.Field[Any], flexible: bool, nullable: bool, out: list[Body]
) -> int:
    kind = classify_field(field)
    if isinstance(kind, EntityField):
        if nullable:  # a nullable struct (KIP-893): one byte says whether it is there
            out.append(bytes(data[position : position + 1]))
            position += 1
            if out[-1][0] == NULL_STRUCT:
                return position
        return _copy_entity(data, position, kind.type_, out)
    if not kind.is_array:
        return _copy_primitive(data, position, field, flexible, nullable, out)
    start = position
    if flexible:
        count, position = read_uvarint(data, position)
        count -= 1
    else:
        count = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
    out.append(data[start:position])
    for _ in range(count):
        if position >= len(data):
            raise MalformedRequest(f"an array of {count} elements ends past the request of {len(data)} bytes")
        if isinstance(kind, EntityTupleField):
            position = _copy_entity(data, position, kind.type_, out)
        else:
            position = _copy_primitive(data, position, field, flexible, False, out)
    return position


def _copy_primitive(
    data: Body, position: int, field: dataclasses.Field[Any], flexible: bool, nullable: bool, out: list[Body]
) -> int:
    _, size = get_reader(get_schema_field_type(field), flexible, nullable)(data, position)
    out.append(data[position : position + size])
    return position + size


# Parser of one of kio's entities that trusts nothing of the bytes: of requests as the broker reads them, and of
# responses as clients of other brokers do.

# kio raises KeyError for an unknown tagged field, ValueError for bad varints and unknown enum values, OverflowError for
# durations and dates that Python cannot hold, and its own SerialError for the rest.
DAMAGE = (MalformedRequest, SerialError, ValueError, KeyError, OverflowError, IndexError, struct.error)


def entity_parser(entity: type[Any]) -> Callable[[Body, int], Any]:
    """(bytes, position) to the entity that begins there. Array lengths are held against the bytes that are left before
    kio makes room for them, and unknown tagged fields are passed over (KIP-482). It raises one of DAMAGE."""
    read, check = entity_reader(entity), array_check(entity)

    def parse(data: Body, position: int) -> Any:
        if check is not None:
            check(data, position)
        try:
            return read(data, position)[0]
        except KeyError:
            return read(without_unknown_tags(data, position, entity), 0)[0]

    return parse
