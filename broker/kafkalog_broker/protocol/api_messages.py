"""Requests and responses as Python values, compiled from Kafka's definitions at the first use of an API and version.

A struct is an object with attributes for the fields of all versions. A field that its own version does not have reads
as Kafka's default. Names are Kafka's in snake_case. These differ:

| Kafka | here |
|---|---|
| durations `...Ms` | a timedelta, named without the suffix; writers also accept a number of ms |
| `...TimestampMs`, `LogAppendTimeMs`, `TransactionStartTimeMs` | a datetime, or None for -1; writers also accept ms |
| `ErrorCode`, `PartitionErrorCode` | an `ErrorCode`, or a number if the code is unknown |
| a uuid of zeros | None |
| `Id` | `id_` |
| records | a read-only memoryview; writers also accept a list of pieces |
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from kafkalog_broker.errors import ErrorCode
from kafkalog_spark.format.messages.classes import StructValue, struct_class
from kafkalog_spark.format.messages.compiler import CompiledMessage
from kafkalog_spark.format.messages.definitions import (
    Attribute,
    Definition,
    DefinitionLocation,
    definition_locations,
    read_definition,
    snake_case,
    struct_of,
    versions,
)
from kafkalog_spark.format.messages.reader import Read
from kafkalog_spark.format.messages.values import Conversion, Values
from kafkalog_spark.format.messages.writer import Write

REQUEST, RESPONSE = "request", "response"
API_VERSIONS = 18
"""API key of ApiVersions. Its response header never has tagged fields, and requests of unknown versions get a response
(KIP-511)."""

FIRST_OWN_API_KEY = 10_000
"""Smallest key of an API that Kafka does not have."""


@cache
def message(api_key: int, kind: str, version: int) -> CompiledMessage:
    """Return the request or response of an API in one version.

    Thread-safe.

    Args:
        api_key: Key of the API.
        kind: REQUEST or RESPONSE.
        version: Version of the message.

    Raises:
        KeyError: If Kafka has no such API or version.
    """
    with _compiling:
        return _compiled(api_key, kind, version)


def request_class(api_key: int, version: int) -> Any:
    """Return the class of a request. Its arguments are the fields of the version. Raises KeyError as `message`."""
    return message(api_key, REQUEST, version).message


def response_class(api_key: int, version: int) -> Any:
    """Return the class of a response. Its arguments are the fields of the version. Raises KeyError as `message`."""
    return message(api_key, RESPONSE, version).message


def reader(kind: type[StructValue]) -> Read:
    """Return the reader of a request or response class."""
    read: Read = kind._message.read
    return read


def writer(kind: type[StructValue]) -> Write:
    """Return the writer of a request or response class.

    The value of an array may also be the bytes that its `array_writer` returned. The value of records may also be () or
    a list of pieces, bytes-like or FileSlice.
    """
    write: Write = kind._message.write
    return write


@cache
def array_writer(kind: Any, name: str) -> Write:
    """Return the writer of the values of one array of a struct class."""
    array = next(field for field in kind._struct.fields if field.name == name)
    return kind._message.array_writer(array)  # type: ignore[no-any-return]


@cache
def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, such as OffsetCommit for 8, or "API key 4711" for an unknown key."""
    location = _locations().get((api_key, REQUEST))
    return f"API key {api_key}" if location is None else location.name.removesuffix("Request")


def api_versions(api_key: int) -> range:
    """Return the versions of an API that have a definition: those of Kafka 4.3, and older ones of the protocol guides.

    Raises:
        KeyError: If Kafka has no such API.
    """
    return versions(_definition(api_key, REQUEST))


def api_keys() -> list[int]:
    """Return the keys of all APIs."""
    return [key for key, kind in _locations() if kind == REQUEST]


_compiling = threading.Lock()
"""Two threads that compile a message at the same time would make two classes, and `encode_response` refuses responses
of the other one. `cache` by itself does not prevent this."""


@cache
def _compiled(api_key: int, kind: str, version: int) -> CompiledMessage:
    definition = _definition(api_key, kind)
    if version not in versions(definition):
        raise KeyError(f"{definition['name']} has the versions {definition['validVersions']}, not {version}")
    compiled = CompiledMessage(struct_of(definition, version, _attribute), _OBJECTS)
    compiled.message.__api_key__ = api_key  # type: ignore[attr-defined]
    compiled.message.__version__ = version  # type: ignore[attr-defined]
    return compiled


@cache
def _locations() -> Mapping[tuple[int, str], DefinitionLocation]:
    return {
        (location.api_key, location.type): location
        for location in definition_locations()
        if location.api_key is not None and location.type in (REQUEST, RESPONSE)
    }


@cache
def _definition(api_key: int, kind: str) -> Definition:
    return read_definition(_locations()[api_key, kind])


def _attribute(field: Definition) -> Attribute:
    name, kind = field["name"], field["type"]
    if name.endswith("Ms") and kind in _DURATIONS:
        is_time = name.endswith("TimestampMs") or name in ("LogAppendTimeMs", "TransactionStartTimeMs")
        return Attribute(snake_case(name.removesuffix("Ms")), "timestamp" if is_time else _DURATIONS[kind], False)
    if name in ("ErrorCode", "PartitionErrorCode"):
        return Attribute(snake_case(name), "error_code", False)
    return Attribute("id_" if name == "Id" else snake_case(name), kind, is_nullable=kind == "uuid")


_DURATIONS = {"int32": "duration32", "int64": "duration64"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _to_ms(value: timedelta | datetime | int | None) -> int:
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return -1 if value is None else value


def _to_duration(ms: int) -> timedelta:
    """Return a duration. A number beyond the range of timedelta, 2.7 million years, becomes the end of the range."""
    try:
        return timedelta(milliseconds=ms)
    except OverflowError:
        return timedelta.max if ms > 0 else timedelta.min


def _to_datetime(ms: int) -> datetime | None:
    return None if ms == -1 else _EPOCH + timedelta(milliseconds=ms)


_WRITE_MS = "{1} if type({1} := {0}) is int else ms({1})"

_CONVERSIONS = {
    "error_code": Conversion("h", "codes.get({0}, {0})", "{0}", ErrorCode, "ErrorCode"),
    "duration32": Conversion("i", "timedelta(0, 0, 0, {0})", _WRITE_MS, _to_duration, "timedelta"),
    "duration64": Conversion("q", "duration({0})", _WRITE_MS, _to_duration, "timedelta"),
    "timestamp": Conversion("q", "moment({0})", _WRITE_MS, _to_datetime, "datetime | None"),
}

_OBJECTS = Values(
    struct_class,
    is_tuple=False,
    to_attribute=_attribute,
    conversions=_CONVERSIONS,
    names={
        "codes": {code.value: code for code in ErrorCode},
        "timedelta": timedelta,
        "duration": _to_duration,
        "moment": _to_datetime,
        "ms": _to_ms,
    },
)
