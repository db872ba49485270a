"""Responses as kio's entities: made of their fields, and made of an error."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from kio.serial._implicit_defaults import get_implicit_default
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional
from kio.static.constants import EntityType
from kio.static.primitive import Records

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request
from kafkalog_broker.protocol.codec import response_class
from kafkalog_broker.protocol.guide_schemas import guide_classes


def response_module(request: Request) -> ModuleType | SimpleNamespace:
    """Module with the response class of a request's version and the classes of its structs."""
    found = guide_classes(request.api_key, request.version, EntityType.response)
    return found or import_module(response_class(request.api_key, request.version).__module__)


def respond(request: Request, **fields: Any) -> Any:
    """The response to a request, as `entity` makes it."""
    return entity(response_class(request.api_key, request.version), **fields)


def entity(kind: type, /, **fields: Any) -> Any:
    """A struct with those of `fields` that its version has. The others have the schema's defaults; without one, null
    where that is allowed, else zero or empty, and ErrorCode.none. Nested structs may be dicts of their fields, and
    arrays any iterables; a tuple of structs is taken as it is."""
    defaults = _defaults(kind)
    values = defaults | fields
    if len(values) > len(defaults):
        values = {name: values[name] for name in defaults}
    for name, struct, is_array in _nested(kind):
        value = values[name]
        kept_as_it_is = value is None or type(value) is bytes
        if kept_as_it_is or (type(value) is tuple and not (value and type(value[0]) is dict)):
            continue
        if not is_array:
            values[name] = entity(struct, **value) if type(value) is dict else value
        elif struct is None:
            values[name] = tuple(value)
        else:
            values[name] = tuple([entity(struct, **one) if type(one) is dict else one for one in value])
    return kind(**values)


def struct_of(kind: type, array: str) -> Any:
    """The class of the structs of an array of a response or struct; None if its version has no such array."""
    return next((struct for name, struct, _ in _nested(kind) if name == array), None)


@cache
def _nested(kind: type) -> list[tuple[str, Any, bool]]:
    """Arrays and structs of a struct: name, class of the struct or of the array's structs, whether it is an array."""
    nested: list[tuple[str, Any, bool]] = []
    for field in dataclasses.fields(kind):
        field_class = classify_field(field)
        is_struct = isinstance(field_class, EntityField | EntityTupleField)
        if is_struct or field_class.is_array:
            nested.append((field.name, field_class.type_ if is_struct else None, field_class.is_array))
    return nested


@cache
def _defaults(kind: type) -> dict[str, Any]:
    return {field.name: _default(field) for field in dataclasses.fields(kind)}


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    field_class = classify_field(field)
    if field_class.is_array:
        return ()
    if is_optional(field) or field_class.type_ is Records:
        return None
    if isinstance(field_class, EntityField):
        return entity(field_class.type_)
    if field_class.type_ is ErrorCode:
        return ErrorCode.none
    return False if field_class.type_ is bool else get_implicit_default(field_class.type_)


_NAMES = frozenset({
    "allow_replication_factor_change", "group_id", "name", "partition", "partition_id", "partition_index", "topic",
    "topic_id", "topic_name",
})  # fmt: skip
"""Fields of a response with an error that are those of the request, most of them to say what the error is of."""
_ERRORS_TWICE = frozenset((43, 45))
"""ElectLeaders and AlterPartitionReassignments say the error of the whole for each partition too."""


class AnswerLayout(NamedTuple):
    """Where a struct of a response has errors, and which array of the request the array `results` answers."""

    errors: tuple[str, ...]
    names: tuple[str, ...]
    results: str | None = None
    element: Any = None
    request_array: str = ""


def error_response(request: Request, code: ErrorCode, message: str | None = None) -> Any:
    """The response to a request that failed as a whole: its own error, or else that of everything that was named."""
    kind = response_class(request.api_key, request.version)
    (failed,) = _failed(kind, (request.entity,), code, message, twice=request.api_key in _ERRORS_TWICE)
    return failed


def _failed(kind: Any, named: Sequence[Any], code: ErrorCode, message: str | None, *, twice: bool) -> tuple[Any, ...]:
    """A `kind` with the error for each of `named`: structs of the request, or names alone."""
    if not named:
        return ()
    request_kind: Any = type(named[0])
    layout = answer_layout(kind, request_kind)
    common = _defaults(kind) | dict.fromkeys(layout.errors, code)
    if "error_message" in common:
        common["error_message"] = message
    answers = []
    for one in named:
        values = common | {name: getattr(one, name, one) for name in layout.names}
        if layout.results is not None and (twice or not layout.errors):
            parts = getattr(one, layout.request_array) or ()
            values[layout.results] = _failed(layout.element, parts, code, message, twice=twice)
        answers.append(kind(**values))
    return tuple(answers)


@cache
def answer_layout(kind: Any, request_kind: Any) -> AnswerLayout:
    """How a struct of a response answers a struct of its request, or a number or name in it."""
    classes = {field.name: classify_field(field) for field in dataclasses.fields(kind)}
    errors = tuple(name for name, field in classes.items() if field.type_ is ErrorCode)
    request_fields = dataclasses.fields(request_kind) if dataclasses.is_dataclass(request_kind) else ()
    request_names = {field.name for field in request_fields}
    names = tuple(name for name in classes if name in _NAMES and (name in request_names or not request_names))
    arrays = [field.name for field in request_fields if classify_field(field).is_array]
    for name, field in classes.items():
        if arrays and isinstance(field, EntityTupleField) and _NAMES.intersection(_defaults(field.type_)):
            return AnswerLayout(errors, names, name, field.type_, arrays[0])
    return AnswerLayout(errors, names)
