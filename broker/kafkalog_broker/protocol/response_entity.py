"""Make kio response entities without a branch for every version: fields that a version does not have are left out."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from kio.static.constants import EntityType
from kio.static.primitive import i32Timedelta

from kafkalog_broker.protocol.api_registry import Request
from kafkalog_broker.protocol.codec import response_class
from kafkalog_broker.protocol.guide_schemas import guide_classes

NO_THROTTLE = i32Timedelta.parse(timedelta())


def duration(ms: int) -> i32Timedelta:
    """A time in a response, of so many ms."""
    return i32Timedelta.parse(timedelta(milliseconds=ms))


def response_module(request: Request) -> ModuleType | SimpleNamespace:
    """Module with the response class of a request's version and the classes of its structs."""
    return _module(request.api_key, request.version)


@cache
def _module(api_key: int, version: int) -> ModuleType | SimpleNamespace:
    found = guide_classes(api_key, version, EntityType.response)
    return found or import_module(response_class(api_key, version).__module__)


def entity(kind: type, **fields: Any) -> Any:
    """A `kind` with those of `fields` that it has; `throttle_time` is zero unless given."""
    names = _fields(kind)
    if "throttle_time" in names:
        fields.setdefault("throttle_time", NO_THROTTLE)
    return kind(**{name: value for name, value in fields.items() if name in names})


@cache
def _fields(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))
