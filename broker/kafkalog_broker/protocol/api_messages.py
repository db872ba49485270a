"""Requests and responses as Python values, compiled from Kafka's definitions at the first use of an API and version.

A struct is an object with the fields of the version as attributes; what other versions have reads as its default. Names
are Kafka's in snake_case, with these differences:

| Kafka | here |
|---|---|
| `...Ms`: durations | a timedelta, without the suffix; written from ms too |
| `...TimestampMs`, `LogAppendTimeMs`, `TransactionStartTimeMs` | likewise a datetime, or None for -1 |
| `ErrorCode`, `PartitionErrorCode` | an `ErrorCode`, or the number of one that is not known |
| uuid | None for zeros |
| `Id` | `id_` |
| records | a read-only memoryview; written from a list of pieces too |
"""

from __future__ import annotations

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
    Head,
    definition,
    heads,
    snake_case,
    struct_of,
    versions,
)
from kafkalog_spark.format.messages.reader import Read
from kafkalog_spark.format.messages.values import Conversion, Values
from kafkalog_spark.format.messages.writer import Write

REQUEST, RESPONSE = "request", "response"
API_VERSIONS = 18
"""The API key whose response header has no tagged fields in any version, and whose unknown versions are answered
(KIP-511)."""


@cache
def message(api_key: int, kind: str, version: int) -> CompiledMessage:
    """Return the request or response of an API in one version.

    Args:
        kind: REQUEST or RESPONSE.

    Raises:
        KeyError: If Kafka has no such API or version.
    """
    found = _definition(api_key, kind)
    if version not in versions(found):
        raise KeyError(f"{found['name']} has the versions {found['validVersions']}, not {version}")
    made = CompiledMessage(struct_of(found, version, _attribute), _OBJECTS)
    made.message.__api_key__ = api_key  # type: ignore[attr-defined]
    made.message.__version__ = version  # type: ignore[attr-defined]
    return made


def request_class(api_key: int, version: int) -> Any:
    """The class of a request; its arguments are the fields of the version. KeyError as for `message`."""
    return message(api_key, REQUEST, version).message


def response_class(api_key: int, version: int) -> Any:
    """The class of a response; its arguments are the fields of the version. KeyError as for `message`."""
    return message(api_key, RESPONSE, version).message


def reader(kind: type[StructValue]) -> Read:
    """The reader of a request or response."""
    read: Read = kind._message.read
    return read


def writer(kind: type[StructValue]) -> Write:
    """The writer of a request or response.

    In place of an array there may be the bytes that its `array_writer` made, and in place of records a list of pieces,
    FileSlices too, or ().
    """
    write: Write = kind._message.write
    return write


@cache
def array_writer(kind: Any, name: str) -> Write:
    """The writer of the array that a struct has under this name."""
    array = next(field for field in kind._struct.fields if field.name == name)
    return kind._message.array_writer(array)  # type: ignore[no-any-return]


@cache
def api_name(api_key: int) -> str:
    """ "OffsetCommit" for 8; "API key 4711" for a key that Kafka does not have."""
    found = _heads().get((api_key, REQUEST))
    return f"API key {api_key}" if found is None else found.name.removesuffix("Request")


def api_versions(api_key: int) -> range:
    """The versions of Kafka that there are requests for, and those that the protocol guides describe.

    Raises:
        KeyError: If Kafka has no such API.
    """
    return versions(_definition(api_key, REQUEST))


def api_keys() -> list[int]:
    """The keys of all APIs that have requests."""
    return [key for key, kind in _heads() if kind == REQUEST]


@cache
def _heads() -> Mapping[tuple[int, str], Head]:
    return {
        (head.api_key, head.type): head
        for head in heads()
        if head.api_key is not None and head.type in (REQUEST, RESPONSE)
    }


@cache
def _definition(api_key: int, kind: str) -> Definition:
    return definition(_heads()[api_key, kind])


def _attribute(field: Definition) -> Attribute:
    name, kind = field["name"], field["type"]
    if name.endswith("Ms") and kind in _DURATIONS:
        is_time = name.endswith("TimestampMs") or name in ("LogAppendTimeMs", "TransactionStartTimeMs")
        return Attribute(snake_case(name.removesuffix("Ms")), "timestamp" if is_time else _DURATIONS[kind], False)
    if name in ("ErrorCode", "PartitionErrorCode"):
        return Attribute(snake_case(name), "error_code", False)
    return Attribute("id_" if name == "Id" else snake_case(name), kind, is_nullable=kind == "uuid")


_DURATIONS = {"int32": "duration32", "int64": "duration64"}
_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _ms(value: timedelta | datetime | int | None) -> int:
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return -1 if value is None else value


def _moment(ms: int) -> datetime | None:
    return None if ms == -1 else _EPOCH + timedelta(milliseconds=ms)


_WRITE_MS = "{1} if type({1} := {0}) is int else ms({1})"
_DURATION = Conversion("i", "timedelta(0, 0, 0, {0})", _WRITE_MS, _MS.__mul__, "timedelta")

_OBJECTS = Values(
    struct_class,
    is_tuple=False,
    to_attribute=_attribute,
    conversions={
        "error_code": Conversion("h", "codes.get({0}, {0})", "{0}", ErrorCode, "ErrorCode"),
        "duration32": _DURATION,
        "duration64": _DURATION._replace(form="q"),
        "timestamp": Conversion("q", "moment({0})", _WRITE_MS, _moment, "datetime | None"),
    },
    names={"codes": {code.value: code for code in ErrorCode}, "timedelta": timedelta, "moment": _moment, "ms": _ms},
)
