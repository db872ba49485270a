"""Conversion of requests and responses from and to dictionaries, lists, numbers and strings."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from typing import Any

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_messages import request_class
from kafkalog_spark.format.messages.classes import StructValue

TOKENS = (38, 39, 40)
"""APIs whose responses have the time -1, which kio cannot decode. They are compared as hexadecimal digits."""


def request_entity(key: int, version: int, values: Mapping[str, Any], ids: Mapping[str, uuid.UUID]) -> Any:
    """Return a request with those of `values` that its version has. `ids`: topic IDs by NAME of `$id:NAME`."""
    return _build(request_class(key, version), values, ids)


def plain(value: Any) -> Any:
    """Return a message as values of JSON, with error codes as names and times in ms."""
    if isinstance(value, StructValue):
        return {name: plain(getattr(value, name)) for name in value._fields}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, ErrorCode):
        return value.name
    if isinstance(value, memoryview):
        return bytes(value)
    return value


def _build(cls: Any, values: Mapping[str, Any], ids: Mapping[str, uuid.UUID]) -> Any:
    fields = {field.name: field for field in cls._struct.present}
    return cls(**{name: _value(cls, fields[name], value, ids) for name, value in values.items() if name in fields})


def _value(cls: Any, field: Any, value: Any, ids: Mapping[str, uuid.UUID]) -> Any:
    if isinstance(value, str) and value.startswith("$id:"):
        return ids[value.removeprefix("$id:")]
    if isinstance(value, str) and field.type == "uuid":
        return uuid.UUID(value)
    if isinstance(value, Mapping):
        return _build(cls._message.class_of(field.struct), value, ids)
    if isinstance(value, list):
        return tuple(_value(cls, field, item, ids) for item in value)
    if isinstance(value, int) and field.type.startswith("duration"):
        return datetime.timedelta(milliseconds=value)
    return value
