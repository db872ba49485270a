"""Responses made of their fields, or of an error."""

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
            values[name] = tuple([entity(struct, **one) if type(one) is dict else one for one in value])
    return kind(**values)


def struct_of(kind: Any, array: str) -> Any:
    """Return the class of the structs of an array of a struct; None if its version has no such array."""
    return next((struct for name, struct, _ in _layout(kind).nested if name == array), None)


class _Layout(NamedTuple):
    """names: of the fields of the version. nested: arrays and structs: name, class of the struct or of the array's
    structs (None for an array of others), and whether it is an array."""

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


_NAMES = frozenset({
    "allow_replication_factor_change", "group_id", "name", "partition", "partition_id", "partition_index", "topic",
    "topic_id", "topic_name",
})  # fmt: skip
"""Fields of a response with an error that are those of the request, most of them to name what has failed."""
_ERRORS_TWICE = frozenset((43, 45))
"""ElectLeaders and AlterPartitionReassignments repeat the error of the whole for each partition."""


class AnswerLayout(NamedTuple):
    """How a struct of a response answers a struct of the request.

    Attributes:
        errors: Fields that are error codes.
        names: Fields that are those of the request.
        results: Array of structs that answer the request's array `request_array`; None if there is none.
        element: Class of these structs.
    """

    errors: tuple[str, ...]
    names: tuple[str, ...]
    results: str | None = None
    element: Any = None
    request_array: str = ""


def error_response(request: Request, code: ErrorCode, message: str | None = None) -> Any:
    """Return the response to a request that failed as a whole.

    It has an error code of its own, or else one for everything that the request names.
    """
    kind = response_class(request.api_key, request.version)
    (failed,) = _failed(kind, (request.entity,), code, message, twice=request.api_key in _ERRORS_TWICE)
    return failed


@cache
def answer_layout(kind: Any, request_kind: Any) -> AnswerLayout:
    """Return how a struct of a response answers a struct of its request, or a number or name in it."""
    fields = kind._struct.present
    errors = tuple(field.name for field in fields if field.type == "error_code")
    request_fields = request_kind._struct.present if issubclass(request_kind, StructValue) else ()
    request_names = {field.name for field in request_fields}
    names = tuple(
        field.name for field in fields if field.name in _NAMES and (field.name in request_names or not request_names)
    )
    arrays = [field.name for field in request_fields if field.is_array]
    for name, struct, is_array in _layout(kind).nested:
        if arrays and is_array and struct is not None and _NAMES & _layout(struct).names:
            return AnswerLayout(errors, names, name, struct, arrays[0])
    return AnswerLayout(errors, names)


def _failed(kind: Any, named: Sequence[Any], code: ErrorCode, message: str | None, *, twice: bool) -> tuple[Any, ...]:
    """A `kind` with the error for each of `named`: structs of the request, or names alone."""
    if not named:
        return ()
    request_kind: Any = type(named[0])  # mypy does not take a class for hashable
    layout = answer_layout(kind, request_kind)
    common: dict[str, Any] = dict.fromkeys(layout.errors, code)
    if "error_message" in kind._fields:
        common["error_message"] = message
    answers = []
    for one in named:
        values = common | {name: getattr(one, name, one) for name in layout.names}
        if layout.results is not None and (twice or not layout.errors):
            parts = getattr(one, layout.request_array) or ()
            values[layout.results] = _failed(layout.element, parts, code, message, twice=twice)
        answers.append(kind(**values))
    return tuple(answers)
