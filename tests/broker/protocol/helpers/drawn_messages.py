"""Values of kio's classes, drawn at random, and an encoder that can add unknown tagged fields (after the guide)."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional
from kio.static.constants import EntityType

from tests.broker.protocol.helpers.guide_classes import VERSIONS
from tests.broker.protocol.helpers.kio_messages import kio_request_class


def versions_with(kind: EntityType) -> dict[int, list[int]]:
    """Versions of each API that have a request, or a response: kio's and those of the protocol guides."""
    return {
        key: sorted({*VERSIONS.get(key, ()), *(v for v, types in schema_name_map[name].items() if kind in types)})
        for key, name in api_key_map.items()
    }


REQUEST_VERSIONS = versions_with(EntityType.request)


def served_first(keys: Iterable[int]) -> list[Any]:
    """Parameters: of the APIs that the codec library knows `make test` has those that are served, `make test-slow` the
    others: no request of theirs is decoded."""
    from kafkalog_broker import api  # registers, and a test in a process of its own registers otherwise

    served = api.load_all()
    return [key if key in served else pytest.param(key, marks=pytest.mark.slow) for key in keys]


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "int8": integers(8),
    "int16": integers(16),
    "int32": integers(32),
    "int64": integers(64),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=200),
    "bytes": st.binary(max_size=300),
    "records": st.binary(max_size=300),
    "bool": st.booleans(),
    "uuid": st.none() | st.uuids().filter(lambda value: value.int != 0),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": integers(32).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(-(2**50), 2**50).map(lambda ms: timedelta(milliseconds=ms)),
    "datetime_i64": st.integers(0, 2**42).map(lambda ms: datetime.fromtimestamp(ms // 1000, tz=UTC)),
}


@cache
def entities(cls: Any) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{field.name: _field(field) for field in dataclasses.fields(cls)})


def _field(field: Any) -> st.SearchStrategy[Any]:
    kind = classify_field(field)
    if isinstance(kind, EntityField | EntityTupleField):
        values = entities(kind.type_)
    else:
        values = PRIMITIVES[field.metadata["kafka_type"]]
    if kind.is_array:
        values = st.lists(values, max_size=3).map(tuple)
    # kio's arrays of UUIDs may be null because their elements may; Kafka's may not.
    if is_optional(field) and not (kind.is_array and field.metadata.get("kafka_type") == "uuid"):
        values = st.none() | values
    if "tag" in field.metadata:  # mostly absent, as in life
        values = st.just(get_tagged_field_default(field)) | values
    return values


def requests() -> st.SearchStrategy[tuple[int, int, Any]]:
    """(API key, version, entity) of any API that kio knows."""
    pairs = [(key, version) for key, versions in REQUEST_VERSIONS.items() for version in versions]
    return st.sampled_from(pairs).flatmap(lambda pair: requests_of(*pair))


@cache
def requests_of(key: int, version: int) -> st.SearchStrategy[tuple[int, int, Any]]:
    return st.tuples(st.just(key), st.just(version), entities(kio_request_class(key, version)))


def encode_request(key: int, version: int, entity: Any, correlation_id: int = 7, unknown: bytes | None = None) -> bytes:
    """A request frame without its size. `unknown`: the value of a tagged field 1000, added to every struct."""
    header = struct.pack(">hhih", key, version, correlation_id, 4) + b"test"
    if type(entity).__header_schema__.__version__ >= 2:
        header += _tags([], unknown)
    return header + encode(entity, unknown)


def encode(entity: Any, unknown: bytes | None = None) -> bytes:
    out, tags = b"", []
    flexible = type(entity).__flexible__
    for field in dataclasses.fields(entity):
        value, tag = getattr(entity, field.name), field.metadata.get("tag")
        if tag is None:
            out += _value(field, value, flexible, is_optional(field), unknown)
        elif value != get_tagged_field_default(field):
            tags.append((tag, _value(field, value, flexible, False, unknown)))
    return out + _tags(tags, unknown) if flexible else out


def _tags(tags: list[tuple[int, bytes]], unknown: bytes | None) -> bytes:
    if unknown is not None:
        tags = [*tags, (1000, unknown)]
    return _uvarint(len(tags)) + b"".join(_uvarint(tag) + _uvarint(len(v)) + v for tag, v in sorted(tags))


def _value(field: Any, value: Any, flexible: bool, nullable: bool, unknown: bytes | None) -> bytes:
    kind = classify_field(field)

    def one(element: Any) -> bytes:
        if isinstance(kind, EntityField | EntityTupleField):
            return encode(element, unknown)
        return _primitive(field.metadata["kafka_type"], element, flexible)

    if kind.is_array:
        length = -1 if value is None else len(value)
        count = _uvarint(length + 1) if flexible else struct.pack(">i", length)
        return count + b"".join(one(element) for element in value or ())
    if isinstance(kind, EntityField) and nullable:
        return b"\xff" if value is None else b"\x01" + one(value)
    return one(value)


def _primitive(kafka_type: str, value: Any, flexible: bool) -> bytes:
    if kafka_type in ("string", "bytes", "records"):
        raw = value.encode() if isinstance(value, str) else value
        length = -1 if raw is None else len(raw)
        if flexible:
            return _uvarint(length + 1) + (raw or b"")
        return struct.pack(">h" if kafka_type == "string" else ">i", length) + (raw or b"")
    if kafka_type == "uuid":
        return bytes(16) if value is None else value.bytes
    if kafka_type.startswith("timedelta"):
        return struct.pack(">i" if kafka_type.endswith("32") else ">q", value // timedelta(milliseconds=1))
    if kafka_type == "datetime_i64":
        return struct.pack(">q", -1 if value is None else round(value.timestamp() * 1000))
    formats = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "uint32": "I", "float64": "d"}
    return struct.pack(">" + {**formats, "bool": "?", "error_code": "h"}[kafka_type], value)


def _uvarint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])
