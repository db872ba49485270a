"""Conversion of request and response entities from and to dictionaries, lists, numbers and strings."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import typing
import uuid
from collections.abc import Mapping
from typing import Any

from kafkalog_broker.protocol.codec import request_class

TOKENS = (38, 39, 40)
"""APIs whose responses have the time -1, which kio cannot decode. They are compared as hexadecimal digits."""


def request_entity(key: int, version: int, values: Mapping[str, Any], ids: Mapping[str, uuid.UUID]) -> Any:
    """Return a request with those of `values` that its version has. `ids`: topic IDs by NAME of `$id:NAME`."""
    return _build(request_class(key, version), values, ids)


def plain(value: Any) -> Any:
    """Return an entity as values of JSON, with error codes as names and times in ms."""
    if dataclasses.is_dataclass(value):
        return {entry.name: plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, uuid.UUID):
        return str(value)
    if hasattr(value, "retriable"):
        return value.name
    return value


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _build(cls: Any, values: Mapping[str, Any], ids: Mapping[str, uuid.UUID]) -> Any:
    hints = _hints(cls)
    known = {entry.name for entry in dataclasses.fields(cls)}
    return cls(**{name: _value(hints[name], value, ids) for name, value in values.items() if name in known})


def _value(hint: Any, value: Any, ids: Mapping[str, uuid.UUID]) -> Any:
    nested = next((part for part in _parts(hint) if dataclasses.is_dataclass(part)), None)
    if isinstance(value, str) and value.startswith("$id:"):
        return ids[value.removeprefix("$id:")]
    if isinstance(value, str) and uuid.UUID in _parts(hint):
        return uuid.UUID(value)
    if isinstance(value, Mapping):
        return _build(nested, value, ids)
    if isinstance(value, list):
        return tuple(_value(nested or hint, item, ids) for item in value)
    if isinstance(value, int) and any("Timedelta" in getattr(part, "__name__", "") for part in _parts(hint)):
        return datetime.timedelta(milliseconds=value)
    return value


def _parts(hint: Any) -> list[Any]:
    found = [hint]
    for part in typing.get_args(hint):
        if part is not Ellipsis:
            found += _parts(part)
    return found
