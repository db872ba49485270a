"""Response structs made from field values, and responses to requests that failed as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.request import Request
from kafkalog_spark.format.messages.classes import StructValue


def response_structs(request: Request) -> SimpleNamespace:
    """Return the classes of the structs of a request's response, by Kafka's names."""
    structs: SimpleNamespace = response_class(request.api_key, request.version)._message.classes
    return structs


def respond(request: Request, **fields: Any) -> Any:
    """Return the response to a request, as `entity` makes it."""
    return entity(response_class(request.api_key, request.version), **fields)


def entity(kind: Any, /, **fields: Any) -> Any:
    """Return a struct with those of `fields` that its version has; the others have their defaults.

    Nested structs may be dicts of their fields, and arrays any iterables. A tuple of structs is kept as it is, as are
    the bytes of an encoded array.
    """
    layout = _layout(kind)
    values = fields
    if not fields.keys() <= layout.names:
        values = {name: value for name, value in fields.items() if name in layout.names}
    for name, struct, is_array in layout.nested:
        value = values.get(name)
        if value is None or type(value) is bytes:
            continue
        if type(value) is tuple and not (value and type(value[0]) is dict):
            continue
        if not is_array:
            values[name] = entity(struct, **value) if type(value) is dict else value
        elif struct is None:
            values[name] = tuple(value)
        else:
            values[name] = tuple([entity(struct, **item) if type(item) is dict else item for item in value])
    return kind(**values)


def struct_of(kind: Any, array: str) -> Any:
    """Return the class of the structs of an array of a struct; None if its version has no such array."""
    return next((struct for name, struct, _ in _layout(kind).nested if name == array), None)


class _Layout(NamedTuple):
    """Fields of a struct.

    Attributes:
        names: Names of the fields of the version.
        nested: Fields that are arrays or structs: name, class of the struct or of the array's structs (None for an
            array of other values), and whether it is an array.
    """

    names: frozenset[str]
    nested: tuple[tuple[str, Any, bool], ...]


@cache
def _layout(kind: Any) -> _Layout:
    return _Layout(
        frozenset(kind._fields),
        tuple(
            (field.name, None if field.struct is None else kind._message.class_of(field.struct), field.is_array)
            for field in kind._struct.present
            if field.is_array or field.struct is not None
        ),
    )


_COPIED_FIELDS = frozenset({
    "allow_replication_factor_change", "group_id", "name", "partition", "partition_id", "partition_index", "topic",
    "topic_id", "topic_name",
})  # fmt: skip
"""Fields that an error response copies from the request. Most of them identify the item that failed."""
_ERROR_ON_BOTH_LEVELS = frozenset((43, 45))
"""ElectLeaders and AlterPartitionReassignments report the error for the whole request and for each partition."""


class ResultLayout(NamedTuple):
    """How a response struct corresponds to the request struct whose result it is.

    Attributes:
        error_fields: Names of the fields that are error codes.
        copied_fields: Names of the fields whose values are those of the request.
        results: Name of the array with a struct for each element of the request's array `request_array`; None if there
            is none.
        element: Class of these structs.
        request_array: Name of that array of the request.
    """

    error_fields: tuple[str, ...]
    copied_fields: tuple[str, ...]
    results: str | None = None
    element: Any = None
    request_array: str = ""


def error_response(request: Request, code: ErrorCode, message: str | None = None) -> Any:
    """Return the response to a request that failed as a whole.

    The error code is that of the whole response if its version has one, otherwise that of each item of the request.
    """
    kind = response_class(request.api_key, request.version)
    (failed,) = _error_structs(
        kind, (request.entity,), code, message, on_both_levels=request.api_key in _ERROR_ON_BOTH_LEVELS
    )
    return failed


def with_throttle_time(response: Any, throttle_ms: int) -> Any:
    """Return the response with this throttle time (below 2**31 ms), unchanged if its version has no such field."""
    return response._replace(throttle_time=throttle_ms) if "throttle_time" in response._fields else response


@cache
def result_layout(kind: Any, request_kind: Any) -> ResultLayout:
    """Return how a response struct corresponds to a request struct, or to a number or name in the request."""
    fields = kind._struct.present
    error_fields = tuple(field.name for field in fields if field.type == "error_code")
    request_fields = request_kind._struct.present if issubclass(request_kind, StructValue) else ()
    request_names = {field.name for field in request_fields}
    copied_fields = tuple(
        field.name
        for field in fields
        if field.name in _COPIED_FIELDS and (field.name in request_names or not request_names)
    )
    arrays = [field.name for field in request_fields if field.is_array]
    for name, struct, is_array in _layout(kind).nested:
        if arrays and is_array and struct is not None and _COPIED_FIELDS & _layout(struct).names:
            return ResultLayout(error_fields, copied_fields, name, struct, arrays[0])
    return ResultLayout(error_fields, copied_fields)


def _error_structs(
    kind: Any, items: Sequence[Any], code: ErrorCode, message: str | None, *, on_both_levels: bool
) -> tuple[Any, ...]:
    """Return a struct of class `kind` with the error for each of `items`: request structs, numbers or names."""
    if not items:
        return ()
    request_kind: Any = type(items[0])  # Any, because mypy does not consider a class hashable
    layout = result_layout(kind, request_kind)
    common: dict[str, Any] = dict.fromkeys(layout.error_fields, code)
    if "error_message" in kind._fields:
        common["error_message"] = message
    structs = []
    for item in items:
        values = common | {name: getattr(item, name, item) for name in layout.copied_fields}
        if layout.results is not None and (on_both_levels or not layout.error_fields):
            parts = getattr(item, layout.request_array) or ()
            values[layout.results] = _error_structs(layout.element, parts, code, message, on_both_levels=on_both_levels)
        structs.append(kind(**values))
    return tuple(structs)
