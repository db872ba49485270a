"""Building of responses from field values."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.request import Request


class StructFields(NamedTuple):
    """Fields that a struct has in its version.

    Attributes:
        names: Names of all fields.
        nested: Fields that are arrays or structs: name, class of the struct or of the array's elements (None if the
            elements are no structs), and whether it is an array.
    """

    names: frozenset[str]
    nested: tuple[tuple[str, Any, bool], ...]


def response_structs(request: Request) -> SimpleNamespace:
    """Return the struct classes of the response to `request`, as attributes named as in Kafka's schema."""
    structs: SimpleNamespace = response_class(request.api_key, request.version)._message.classes
    return structs


def build_response(request: Request, **fields: Any) -> Any:
    """Build the response to `request`; see `build_struct` for how `fields` are converted."""
    return build_struct(response_class(request.api_key, request.version), **fields)


def build_struct(struct_class: Any, /, **fields: Any) -> Any:
    """Build a struct. Fields that its version lacks are ignored; fields that are not given get their defaults.

    Nested structs may be dicts of their fields, and arrays any iterables. A tuple of structs is kept as it is, as are
    the bytes of an encoded array.
    """
    known = struct_fields(struct_class)
    values = fields
    if not fields.keys() <= known.names:
        values = {name: value for name, value in fields.items() if name in known.names}
    for name, nested_class, is_array in known.nested:
        value = values.get(name)
        if value is None or type(value) is bytes:
            continue
        if type(value) is tuple and not (value and type(value[0]) is dict):
            continue
        if not is_array:
            values[name] = build_struct(nested_class, **value) if type(value) is dict else value
        elif nested_class is None:
            values[name] = tuple(value)
        else:
            values[name] = tuple([build_struct(nested_class, **item) if type(item) is dict else item for item in value])
    return struct_class(**values)


def array_element_class(struct_class: Any, array: str) -> Any:
    """Return the class of the structs in an array of a struct; None if its version has no such array."""
    return next((element for name, element, _ in struct_fields(struct_class).nested if name == array), None)


def with_throttle_time(response: Any, throttle_ms: int) -> Any:
    """Return the response with this throttle time (below 2**31 ms), unchanged if its version has no such field."""
    return response._replace(throttle_time=throttle_ms) if "throttle_time" in response._fields else response


@cache
def struct_fields(struct_class: Any) -> StructFields:
    """Return the fields of a struct class of api_messages, from its definition and its message's other classes."""
    return StructFields(
        frozenset(struct_class._fields),
        tuple(
            (field.name, None if field.struct is None else struct_class._message.class_of(field.struct), field.is_array)
            for field in struct_class._struct.present
            if field.is_array or field.struct is not None
        ),
    )
