"""Hostile values of every format: each is malformed, its neighbours are read, and memory stays bounded.

Values that a format allows are read: a string of 60 MB in Avro and Protobuf, malformed UTF-8 in an Avro string.
"""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from kafkalog_spark.typed.decoder import Decoded, ValueDecoder
from tests.typed.given_formats import decoder_of, schema_of
from tests.typed.random_avro import varint as zigzag

LEVELS = 10_000
DIGITS = 10_000
LONG = 60_000_000
AVRO = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38}},
        {"name": "n", "type": {"type": "array", "items": "long"}},
        {"name": "m", "type": {"type": "map", "values": "long"}},
        {"name": "next", "type": ["null", "Node"]},
    ],
}


def of_protobuf() -> bytes:
    """The descriptor set of `Node {int64 id = 1; string user = 2; Node next = 3; repeated int64 n = 4;}`, in base64."""
    file = descriptor_pb2.FileDescriptorProto(name="node.proto", syntax="proto3")
    message = file.message_type.add(name="Node")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="user", number=2, type=9, label=1)
    message.field.add(name="next", number=3, type=11, type_name=".Node", label=1)
    message.field.add(name="n", number=4, type=3, label=3)
    content: bytes = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return content


OPTIONS: dict[str, dict[str, Any]] = {
    "json": {"schema": "id bigint, user string, price decimal(38,0), n array<bigint>, next struct<id: bigint>"},
    "avro": {"schema": json.dumps(AVRO), "recursivefieldmaxdepth": "2"},
    "protobuf": {"descriptors": of_protobuf(), "messagename": "Node", "recursive.fields.max.depth": "2"},
}


def avro(user: bytes = zigzag(1) + b"u", price: bytes = b"\x02\x01", n: bytes = b"\0", rest: bytes = b"\0\0") -> bytes:
    """A Node in Avro with id 7; each part as its bytes. rest: the map and what is next."""
    return zigzag(7) + user + price + n + rest


def nested_messages(levels: int) -> bytes:
    """Messages in field 3, the length of each one right."""
    lengths, size = [], 0
    for _ in range(levels):
        prefix = b"\x1a" + number(size)
        lengths.append(prefix)
        size += len(prefix)
    return b"".join(reversed(lengths))


def number(value: int) -> bytes:
    """A varint of Protobuf."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


GOOD = {"json": b'{"id":7,"user":"u"}', "avro": avro(), "protobuf": b"\x08\x07\x12\x01u"}
HOSTILE = {
    "json": {
        "10,000 levels": b'{"id":7,"next":' + b'{"next":' * LEVELS + b"1" + b"}" * LEVELS + b"}",
        "10,000 levels of an unknown field": b'{"id":7,"x":' + b"[" * LEVELS + b"]" * LEVELS + b"}",
        "10,000 levels that do not end": b'{"n":' + b"[" * LEVELS,
        "a string of 60 MB": b'{"user":"' + b"x" * LONG + b'"}',
        "60 MB of levels": b"[" * LONG,
        "a number of 10,000 digits": b'{"id":' + b"9" * DIGITS + b"}",
        "a decimal of 10,000 digits": b'{"price":' + b"9" * DIGITS + b"}",
        "an exponent of 10,000 digits": b'{"price":1e' + b"9" * DIGITS + b"}",
        "a number of 60 MB": b'{"id":' + b"9" * LONG + b"}",
        "invalid UTF-8": b'{"id":7\xff}',
    },
    "avro": {
        "10,000 levels": avro()[:-1] + (b"\x02" + avro()[:-1]) * LEVELS + b"\0",
        "10,000 levels that do not end": avro()[:-1] + (b"\x02" + avro()[:-1]) * LEVELS,
        "60 MB of levels": (avro()[:-1] + b"\x02") * (LONG // len(avro())),
        "a string of 60 MB that is not there": avro(user=zigzag(LONG) + b"u"),
        "a string of 2^62 bytes that are not there": avro(user=zigzag(2**62) + b"u"),
        "a string of -1 byte": avro(user=zigzag(-1) + b"u"),
        "2^31 elements that are not there": avro(n=zigzag(2**31) + b"\x02"),
        "2^62 elements that are not there": avro(n=zigzag(2**62) + b"\x02"),
        "a block whose size lies": avro(n=zigzag(-(2**40)) + zigzag(2**50) + b"\x02"),
        "2^40 keys that are not there": avro(rest=zigzag(2**40) + b"\0"),
        "a decimal of 10,000 digits": avro(price=zigzag(4153) + b"\x7f" * 4153),
        "a number of 10,000 digits": b"\xff" * DIGITS,
    },
    "protobuf": {
        "10,000 levels": b"\x08\x07" + nested_messages(LEVELS),
        "10,000 levels that do not end": b"\x1a\x7f" * LEVELS,
        "10,000 groups of an unknown field": b"\x2b" * LEVELS + b"\x2c" * LEVELS,
        "60 MB of groups": b"\x2b" * LONG,
        "a string of 60 MB that is not there": b"\x12" + number(LONG) + b"u",
        "a string of 2^63 bytes that are not there": b"\x12" + number(2**63) + b"u",
        "60 MB of packed numbers that are not there": b"\x22" + number(LONG) + b"\x01",
        "a number of 10,000 digits": b"\x08" + b"\xff" * DIGITS,
        "a packed number of 10,000 digits": b"\x22" + number(DIGITS) + b"\xff" * DIGITS,
        "invalid UTF-8": b"\x08\x07\x12\x02\xc3\x28",
        "60 MB of invalid UTF-8": b"\x12" + number(LONG) + b"\xff" * LONG,
    },
}
ALL = [(name, what) for name, found in HOSTILE.items() for what in found]


def decoder(name: str) -> ValueDecoder:
    if name == "json":
        from kafkalog_spark.typed.ddl import schema_of_ddl

        return decoder_of(name, {}, schema_of_ddl(OPTIONS[name]["schema"]))
    return decoder_of(name, OPTIONS[name], schema_of(name, OPTIONS[name]))


def measured(name: str, values: list[bytes | None]) -> tuple[Decoded, int]:
    """What became of the values, and the most memory that it took, in bytes."""
    ours, array = decoder(name), pa.array(values, pa.binary())
    ours.decode(array[:1])  # kernels are loaded, and their modules' memory is not counted
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    found = ours.decode(array)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    found.columns.validate(full=name != "avro")
    return found, peak + max(0, pa.total_allocated_bytes() - arrow)


@pytest.mark.parametrize(("name", "what"), ALL)
def test_hostile_value_is_malformed_within_bounded_memory(name: str, what: str) -> None:
    value, good = HOSTILE[name][what], GOOD[name]
    found, peak = measured(name, [good, value, None, good])
    assert found.bad is not None
    assert found.bad.tolist() == [False, True, False, False]
    assert len(found.why(1)) < 300
    rows = found.columns.to_pylist()
    assert [row and (row["id"], row["user"]) for row in (rows[0], rows[2], rows[3])] == [(7, "u"), None, (7, "u")]
    assert peak < 6 * len(value) + 4_000_000


@pytest.mark.parametrize(
    ("name", "value"),
    [("avro", avro(user=zigzag(LONG) + b"x" * LONG)), ("protobuf", b"\x08\x07\x12" + number(LONG) + b"x" * LONG)],
    ids=["avro", "protobuf"],
)
def test_string_of_60_mb_is_decoded_within_a_small_multiple_of_its_size(name: str, value: bytes) -> None:
    found, peak = measured(name, [GOOD[name], value, GOOD[name]])
    assert found.bad is None
    users: Any = found.columns.field("user")
    assert np.diff(np.frombuffer(users.buffers()[1], np.int32, 4)).tolist() == [1, LONG, 1]
    assert peak < 6 * len(value)


def test_avro_keeps_malformed_utf8_as_in_spark() -> None:
    found, _ = measured("avro", [GOOD["avro"], avro(user=zigzag(2) + b"\xc3\x28"), GOOD["avro"]])
    assert found.bad is None
    assert found.columns.field("user").cast(pa.binary()).to_pylist() == [b"u", b"\xc3\x28", b"u"]
