"""kio's classes of requests and responses, and classes like them for the versions that Kafka 4.0 removed."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import classify_field
from kio.static.constants import EntityType

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_messages import FIRST_OWN_API_KEY, response_class
from kafkalog_broker.protocol.client_messages import decode_response
from kafkalog_spark.format.messages.classes import StructValue
from kafkalog_spark.format.messages.definitions import Field
from tests.broker.protocol.helpers.guide_classes import guide_classes


def kio_request_class(key: int, version: int) -> Any:
    of_guides = guide_classes(key, version, EntityType.request)
    return load_request_schema(key, version) if of_guides is None else of_guides.message


def kio_response_class(key: int, version: int) -> Any:
    of_guides = guide_classes(key, version, EntityType.response)
    return load_response_schema(key, version) if of_guides is None else of_guides.message


def read_response(key: int, version: int, frame: bytes) -> Any:
    """Return what kio reads in a response frame without its size, as a value of ours. It must fill the frame.

    kio does not know the APIs that Kafka does not have: our own client reads their responses.
    """
    if key >= FIRST_OWN_API_KEY:
        return decode_response(key, version, frame)
    kind = kio_response_class(key, version)
    _, start = entity_reader(kind.__header_schema__)(frame, 0)
    value, size = entity_reader(kind)(frame, start)
    assert start + size == len(frame)
    return ours_of(response_class(key, version), value)


def kio_value(kind: Any, **fields: Any) -> Any:
    """Return an instance of kio's class with the fields of its version."""
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in fields.items() if name in names})


def encode_with_kio(kios: Any) -> bytes:
    """Return the message encoded by kio."""
    body = io.BytesIO()
    entity_writer(type(kios))(body, kios)
    return body.getvalue()


def is_same(ours: Any, kios: Any) -> bool:
    """True if all fields of the version have equal values, error codes by their numbers."""
    if dataclasses.is_dataclass(kios):
        names = [field.name for field in dataclasses.fields(kios)]
        return sorted(ours._fields) == sorted(names) and all(
            is_same(getattr(ours, name), getattr(kios, name)) for name in names
        )
    if isinstance(kios, tuple):
        return type(ours) is tuple and len(ours) == len(kios) and all(map(is_same, ours, kios))
    return bool(ours == kios) or repr(ours) == repr(kios)  # NaN equals nothing


def ours_of(kind: Any, kios: Any) -> Any:
    """The value of our class with the fields of kio's value."""

    def field_of(field: Field, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(field_of(field, one) for one in value)
        if value is None or (field.struct is None and field.type != "error_code"):
            return value
        return ErrorCode(value) if field.struct is None else ours_of(kind._message.class_of(field.struct), value)

    return kind(**{field.name: field_of(field, getattr(kios, field.name)) for field in kind._struct.present})


def kios_of(kind: Any, ours: Any) -> Any:
    """The value of kio's class with the fields of our value."""

    def field_of(inner: Any, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(field_of(inner, one) for one in value)
        return kios_of(inner, value) if isinstance(value, StructValue) else value

    kinds = {field.name: classify_field(field).type_ for field in dataclasses.fields(kind)}
    return kind(**{name: field_of(inner, getattr(ours, name)) for name, inner in kinds.items()})
