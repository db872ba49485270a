"""Random Protobuf descriptors and values: valid, unusual and damaged, written byte by byte.

Descriptors have every type, syntax proto2 or proto3, nested messages, maps, oneofs, open and closed enums. Values use
encodings that no library writes and every library reads: fields in any order and repeated, packed or not, overlong
varints, unknown fields and groups, map entries without a key, strings that are not UTF-8.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from kafkalog_spark.typed.protobuf.descriptors import message_of, pool_of
from kafkalog_spark.typed.protobuf.field_types import is_map, is_repeated
from tests.typed.random_avro import broken

_VARINTS = {Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64, Field.TYPE_SINT32,
            Field.TYPE_SINT64, Field.TYPE_BOOL, Field.TYPE_ENUM}  # fmt: skip
_FOUR = {Field.TYPE_FIXED32, Field.TYPE_SFIXED32, Field.TYPE_FLOAT}
_EIGHT = {Field.TYPE_FIXED64, Field.TYPE_SFIXED64, Field.TYPE_DOUBLE}
_TEXTS = {Field.TYPE_STRING, Field.TYPE_BYTES}
_SCALARS = sorted(_VARINTS | _FOUR | _EIGHT | _TEXTS)
_KEYS = sorted(set(_SCALARS) - {Field.TYPE_FLOAT, Field.TYPE_DOUBLE, Field.TYPE_BYTES, Field.TYPE_ENUM})
_DEFAULTS = {
    Field.TYPE_STRING: "dé",
    Field.TYPE_BYTES: "\\001z",
    Field.TYPE_BOOL: "true",
    Field.TYPE_FLOAT: "1.5",
    Field.TYPE_DOUBLE: "-inf",
    Field.TYPE_UINT64: str(2**64 - 1),
    Field.TYPE_UINT32: str(2**32 - 1),
}
_TIMESTAMP = ".google.protobuf.Timestamp"


@dataclass(frozen=True)
class Case:
    """A descriptor set, the options of from_protobuf, and values of its message `T.M0`."""

    descriptors: bytes
    options: dict[str, str]
    values: list[bytes]


def descriptor_set(rng: random.Random) -> bytes:
    """One to five messages, M0 the outermost, of which some lie in others, some in themselves."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="T", dependency=[timestamp_pb2.DESCRIPTOR.name])
    proto3 = rng.random() < 0.6
    file.syntax = "proto3" if proto3 else "proto2"
    if not proto3 and rng.random() < 0.3:
        file.options.java_string_check_utf8 = True
    symbols = [0, 1, 2, -5, 2**31 - 1] if proto3 else [1, 0, 7, -1]
    enum = file.enum_type.add(name="E")
    for number in symbols:
        enum.value.add(name=f"E_{number}".replace("-", "MINUS_"), number=number)
    messages = rng.randint(1, 5)
    for m in range(messages):
        message = file.message_type.add(name=f"M{m}")
        numbers = rng.sample([*range(1, 20), 100, 5000, 2**29 - 1], rng.randint(1, 8))
        for i, number in enumerate(numbers):
            _field(rng, message, i, number, proto3, range(max(m, rng.choice([m + 1, m + 1, m])), messages))
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.append(file)
    return bytes(found.SerializeToString())


def _field(rng: random.Random, message: Any, i: int, number: int, proto3: bool, below: range) -> None:
    """Add a field. below: the messages that it may be of."""
    field = message.field.add(name=f"f{i}", number=number, label=Field.LABEL_OPTIONAL)
    kind = rng.choice(["plain"] * 6 + ["enum"] + ["message"] * 3 + ["timestamp"] + ["map"] * 2)
    if kind == "map":
        field.label = Field.LABEL_REPEATED
        entry = message.nested_type.add(name=f"F{i}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=rng.choice(_KEYS), label=Field.LABEL_OPTIONAL)
        value = entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL)
        _type(rng, value, rng.choice(["plain", "plain", "enum", "message", "timestamp"]), below)
        field.type, field.type_name = Field.TYPE_MESSAGE, f".T.{message.name}.F{i}Entry"
        return
    _type(rng, field, kind, below)
    how = rng.random()
    if how < 0.25:
        field.label = Field.LABEL_REPEATED
        if field.type in _VARINTS | _FOUR | _EIGHT and rng.random() < 0.5:
            field.options.packed = rng.random() < 0.5
    elif how < 0.4:  # in the oneof of the message, which is its first: synthetic ones come last
        if not any(one.name == "one" for one in message.oneof_decl):
            if any(one.proto3_optional for one in message.field):
                return
            message.oneof_decl.add(name="one")
        field.oneof_index = 0
    elif proto3 and how < 0.55:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_f{i}")
    elif not proto3 and how < 0.6:
        field.label = Field.LABEL_REQUIRED
    elif not proto3 and how < 0.75 and field.type != Field.TYPE_MESSAGE:
        field.default_value = "E_7" if field.type == Field.TYPE_ENUM else _DEFAULTS.get(field.type, "-7")
        if field.default_value == "-7" and field.type in (Field.TYPE_FIXED32, Field.TYPE_FIXED64):
            field.default_value = "4000000000"


def _type(rng: random.Random, field: Any, kind: str, below: range) -> None:
    if kind == "enum":
        field.type, field.type_name = Field.TYPE_ENUM, ".T.E"
    elif kind == "timestamp" or (kind == "message" and not below):
        field.type, field.type_name = Field.TYPE_MESSAGE, _TIMESTAMP
    elif kind == "message":
        field.type, field.type_name = Field.TYPE_MESSAGE, f".T.M{rng.choice(below)}"
    else:
        field.type = rng.choice([one for one in _SCALARS if one != Field.TYPE_ENUM])


def varint(rng: random.Random, value: int) -> bytes:
    """A number in 64 bits, now and then in more bytes than it needs."""
    value &= 2**64 - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    if rng.random() < 0.02 and len(found) < 9:
        found[-1] |= 128
        found += b"\x80" * rng.randint(0, 9 - len(found)) + b"\x00"
    return bytes(found)


def encode(rng: random.Random, descriptor: Any, depth: int = 4) -> bytes:
    """A random message, now and then odd."""
    parts = []
    for field in descriptor.fields:
        needed = getattr(field, "is_required", False) and rng.random() < 0.98
        if rng.random() < 0.4 and not needed:
            continue
        times = rng.choice([0, 1, 2, 3, 9]) if is_repeated(field) else rng.choice([1] * 24 + [2])
        parts += _parts(rng, field, max(times, needed), depth)
    if rng.random() < 0.15:
        parts.append(_unknown(rng, descriptor))
    if rng.random() < 0.3:
        rng.shuffle(parts)
    return b"".join(parts)


def _parts(rng: random.Random, field: Any, times: int, depth: int) -> list[bytes]:
    if field.type == Field.TYPE_MESSAGE:
        if depth == 0:
            return []
        found = []
        for _ in range(times):
            inner = _entry(rng, field.message_type, depth) if is_map(field) else _message(rng, field, depth)
            found.append(varint(rng, field.number << 3 | 2) + varint(rng, len(inner)) + inner)
        return found
    wire = 0 if field.type in _VARINTS else 5 if field.type in _FOUR else 1 if field.type in _EIGHT else 2
    if wire != 2 and is_repeated(field) and times and rng.random() < 0.6:
        packed = b"".join(scalar(rng, field) for _ in range(times))
        return [varint(rng, field.number << 3 | 2) + varint(rng, len(packed)) + packed]
    return [varint(rng, field.number << 3 | wire) + scalar(rng, field) for _ in range(times)]


def _message(rng: random.Random, field: Any, depth: int) -> bytes:
    if field.message_type.full_name != "google.protobuf.Timestamp":
        return encode(rng, field.message_type, depth - 1)
    far = rng.random() < 0.03
    seconds = (
        rng.choice([2**63 - 1, -(2**63), 2**60, 9223372036854, -9223372036855])
        if far
        else rng.randint(-(10**10), 10**10)
    )
    nanos = rng.choice([0, 1, 999, -999, -1_000_001, 999_999_999, 2**31 - 1, rng.randint(0, 10**9)])
    parts = [b"\x08" + varint(rng, seconds), b"\x10" + varint(rng, nanos)]
    return b"".join(rng.sample(parts, rng.choice([0, 1, 2, 2, 2])))


def _entry(rng: random.Random, descriptor: Any, depth: int) -> bytes:
    parts = []
    for field in descriptor.fields:
        if rng.random() < 0.9:
            parts += _parts(rng, field, rng.choice([1] * 15 + [2]), depth)
    if rng.random() < 0.03:
        parts.append(_unknown(rng, descriptor))
    if rng.random() < 0.1:
        parts.reverse()
    return b"".join(parts)


def scalar(rng: random.Random, field: Any) -> bytes:
    """The bytes of a value that is no message."""
    kind = field.type
    if kind in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE):
        value = rng.choice([0.0, -0.0, 1.5, float("inf"), float("nan"), -2.25, 1e-40, 0.1])
        return struct.pack("<f" if kind == Field.TYPE_FLOAT else "<d", value)
    if kind in _FOUR | _EIGHT:
        return rng.choice([b"\0" * 8, b"\xff" * 8, rng.randbytes(8)])[: 4 if kind in _FOUR else 8]
    if kind in _TEXTS:
        text = rng.choice(["", "a", "grün", "日本語𝄞", "x" * 300, "\0"]).encode()
        if kind == Field.TYPE_BYTES or rng.random() < 0.02:
            text = rng.choice([b"", b"\0", rng.randbytes(rng.randint(1, 30)), b"\xed\xa0\x80", b"a\xf0\x9d\x84"])
        return varint(rng, len(text)) + text
    if kind == Field.TYPE_BOOL:
        return varint(rng, rng.choice([0, 1, 1, 2, 2**32]))
    if kind == Field.TYPE_ENUM:
        numbers = [value.number for value in field.enum_type.values]
        strange = rng.random() < (0.03 if field.enum_type.is_closed else 0.2)
        return varint(rng, rng.choice([77, -3, 2**32 + 1]) if strange else rng.choice(numbers))
    return varint(rng, rng.choice([0, 1, -1, 2**31, -(2**31), 2**63, 2**32, rng.getrandbits(32), rng.getrandbits(64)]))


def _unknown(rng: random.Random, descriptor: Any) -> bytes:
    number = rng.choice([one for one in (21, 22, 4000, 2**29 - 2) if one not in descriptor.fields_by_number])
    wire = rng.choice([0, 1, 2, 3, 5])
    if wire == 3:
        inner = b"".join(_unknown(rng, descriptor) for _ in range(rng.randint(0, 2)))
        return varint(rng, number << 3 | 3) + inner + varint(rng, number << 3 | 4)
    size = {0: 0, 1: 8, 2: 3, 5: 4}[wire]
    held = varint(rng, rng.getrandbits(64)) if wire == 0 else rng.randbytes(size)
    return varint(rng, number << 3 | wire) + (b"\x03" if wire == 2 else b"") + held


def cases(seed: int, schemas: int, values: int) -> list[Case]:
    """`schemas` descriptors, each with options and that many values, of which three in ten are broken."""
    rng = random.Random(seed)
    found: list[Case] = []
    while len(found) < schemas:
        content = descriptor_set(rng)
        try:
            pool, names = pool_of(content, "a random descriptor set")
            descriptor = message_of(pool, names, "T.M0", "a random descriptor set")
        except Exception:  # noqa: BLE001  a default that its field cannot have; the library raises several kinds
            continue
        options = {name: rng.choice(["true", "false"]) for name in
                   ("emit.default.values", "enums.as.ints", "upcast.unsigned.ints")}  # fmt: skip
        options["recursive.fields.max.depth"] = str(rng.randint(1, 4))
        drawn = [encode(rng, descriptor) for _ in range(values)]
        found.append(Case(content, options, [broken(rng, one) if rng.random() < 0.3 else one for one in drawn]))
    return found
