"""Tagged fields (KIP-482): a count, then tag, size and value of each, in rising order of tags.

A peer may send tags that are not known here, and they must be passed over. kio refuses them, so a request that it
refuses is rewritten without them and read again. That happens only when a newer client sends a newer field.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_schema_field_type, is_optional
from kio.serial._parse import get_reader

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.array_lengths import NULL_STRUCT
from kafkalog_broker.protocol.wire import read_uvarint, uvarint

Body = bytes | memoryview


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
