"""Request bodies as tokens that know what they are (a length, a count, a tag), so that a fuzzer breaks them knowingly.

All random numbers come from the `random.Random` that is passed in: the same seed gives the same bodies.
"""

from __future__ import annotations

import dataclasses
import random
import struct
from enum import Enum
from typing import Any, NamedTuple

from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

from kafkalog_spark.format.varints import uvarint

_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4, "timedelta_i32": 4,
    "int64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
TEXTS = (*(b"", b"t", b"t", b"g", b"a.b_c-d") * 4, b"\xff\xfe", b"n" * 249, b"n" * 250)
"""What strings hold: the topic `t`, the group `g`, empty, no UTF-8, the longest name and one more."""


class Kind(Enum):
    """Kind of a token."""

    FIXED = 1  # a number, a bool, a UUID
    DATA = 2  # the bytes of a string
    INT16 = 3  # a length
    INT32 = 4  # a length or a count
    VARINT = 5  # a length or a count plus one
    TAGS = 6  # how many tagged fields
    TAG = 7
    TAG_SIZE = 8
    PRESENT = 9  # whether a nullable struct is there


class Token(NamedTuple):
    """One piece of a body; `value` of lengths and counts, as it is written."""

    kind: Kind
    data: bytes
    value: int = 0


def tokens_of(entity: type[Any], draw: random.Random) -> list[Token]:
    """An honest body of one of kio's request classes: arrays of 0 to 3 elements, tagged fields in one of four."""
    found: list[Token] = []
    tagged: list[tuple[int, list[Token]]] = []
    flexible = bool(entity.__flexible__)
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        if tag is None:
            found += _field(field, flexible, draw, nullable=is_optional(field))
        elif draw.random() < 0.25:
            tagged.append((tag, _field(field, True, draw, nullable=False)))
    if not flexible:
        return found
    if draw.random() < 0.05:
        tagged.append((draw.choice((999, 2**32 - 1)), [Token(Kind.DATA, draw.randbytes(draw.randrange(9)))]))
    found.append(_varint(len(tagged), Kind.TAGS))
    for tag, value in sorted(tagged, key=lambda one: one[0]):
        found += [_varint(tag, Kind.TAG), _varint(len(joined(value)), Kind.TAG_SIZE), *value]
    return found


def _field(field: Any, flexible: bool, draw: random.Random, *, nullable: bool) -> list[Token]:
    kind = classify_field(field)

    def one() -> list[Token]:
        if isinstance(kind, EntityField | EntityTupleField):
            return tokens_of(kind.type_, draw)
        return _primitive(field.metadata["kafka_type"], flexible, draw)

    if kind.is_array:
        count = -1 if is_optional(field) and draw.random() < 0.1 else draw.choice((0, 1, 1, 2, 3))
        head = _varint(count + 1) if flexible else Token(Kind.INT32, struct.pack(">i", count), count)
        return [head, *(token for _ in range(count) for token in one())]
    if isinstance(kind, EntityField) and nullable:
        return [Token(Kind.PRESENT, b"\xff")] if draw.random() < 0.5 else [Token(Kind.PRESENT, b"\1"), *one()]
    return one()


def _primitive(kafka_type: str, flexible: bool, draw: random.Random) -> list[Token]:
    size = _SIZES.get(kafka_type)
    if size is not None:
        return [Token(Kind.FIXED, number(size, draw))]
    data = draw.choice(TEXTS) if kafka_type == "string" else draw.randbytes(draw.randrange(20))
    if flexible:
        return [_varint(len(data) + 1), Token(Kind.DATA, data)]
    kind, form = (Kind.INT16, ">h") if kafka_type == "string" else (Kind.INT32, ">i")
    return [Token(kind, struct.pack(form, len(data)), len(data)), Token(Kind.DATA, data)]


def number(size: int, draw: random.Random) -> bytes:
    """A number of `size` bytes: mostly small, sometimes one of the ends, sometimes anything."""
    choice = draw.random()
    if choice < 0.7:
        return draw.choice((0, 0, 1, 1, 2, 3, 2 ** (8 * size) - 1)).to_bytes(size, "big")
    ends = (b"\x7f" + b"\xff" * (size - 1), b"\x80" + bytes(size - 1))
    return draw.choice(ends) if choice < 0.9 else draw.randbytes(size)


def _varint(value: int, kind: Kind = Kind.VARINT) -> Token:
    return Token(kind, uvarint(value), value)


def joined(tokens: list[Token]) -> bytes:
    """The bytes."""
    return b"".join(token.data for token in tokens)


def damaged(tokens: list[Token], draw: random.Random) -> bytes:
    """The body, mostly with one to three things wrong in it: a length, a count or a tag that lies, a piece that is
    missing or twice there, an end cut off, bytes behind it."""
    tokens = list(tokens)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        if not tokens:
            break
        at, way = draw.randrange(len(tokens)), draw.random()
        if way < 0.7:  # one that says something about others, where there is one
            told = [n for n, token in enumerate(tokens) if token.kind not in (Kind.FIXED, Kind.DATA)]
            at = draw.choice(told) if told else at
            tokens[at] = _lie(tokens[at], draw)
        elif way < 0.8:
            del tokens[at]
        elif way < 0.9:
            tokens.insert(at, tokens[at])
        else:
            tokens.insert(at, Token(Kind.DATA, draw.randbytes(draw.randrange(1, 30))))
    data, way = joined(tokens), draw.random()
    if way < 0.1:
        return data[: draw.randrange(len(data) + 1)]
    return data + draw.randbytes(draw.randrange(1, 60)) if way < 0.5 else data


def _lie(token: Token, draw: random.Random) -> Token:
    near = draw.choice((token.value - 1, token.value + 1, token.value + 7, 0, 1, 16, 60))
    near = max(near, -1)
    if token.kind in (Kind.INT16, Kind.INT32):
        form, bits = (">h", 16) if token.kind is Kind.INT16 else (">i", 32)
        far = draw.choice((-1, -2, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 1000))
        value = near if draw.random() < 0.6 and near < 2 ** (bits - 1) else far
        return Token(token.kind, struct.pack(form, value), value)
    if token.kind in (Kind.VARINT, Kind.TAGS, Kind.TAG, Kind.TAG_SIZE):
        far = draw.choice((2**31 - 1, 2**31, 2**32 - 1, 1000))
        value = max(near, 0) if draw.random() < 0.6 else far
        data = uvarint(value)
        way = draw.random()
        if way < 0.1:  # the same number in more bytes than it needs: up to five are allowed
            data = data[:-1] + bytes([data[-1] | 0x80]) + b"\x80" * draw.randrange(4) + b"\0"
        elif way < 0.15:
            data = b"\xff" * draw.randrange(1, 12)
        return Token(token.kind, data, value)
    return Token(token.kind, draw.randbytes(len(token.data)))
