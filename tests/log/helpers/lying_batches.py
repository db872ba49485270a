"""Record batches with a valid CRC whose records lie: varints of odd values and sizes, wrong counts and lengths.

All random numbers come from the `random.Random` that is passed in: the same seed gives the same batches.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

from tests.log.helpers.batch_builder import CODECS, compressed, sealed, varint

TIME = 1_700_000_000_000
EDGES = (
    -1, -2, -3, 0, 1, 2, 5, 63, 64, 127, 128, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, -(2**63)
)  # fmt: skip
KEYS = (None, b"", b"a", b"b", b"key")
VALUES = (None, b"", b"v", b"value" * 3, bytes(200))


@dataclass(frozen=True)
class Lying:
    """A batch, and whether its header and the places of its records are as a producer writes them.

    `packed_damage`: a bit of the compressed bytes is turned. Codecs differ in which checksums they hold against it
    (Java does not look at lz4's of the content), so it may come out as something else.
    """

    data: bytes
    honest_header: bool
    sequential: bool
    packed_damage: bool


def overlong(number: int, size: int) -> bytes:
    """A varint in more bytes than it needs; as it is where it has as many already."""
    data = varint(number)
    return data if len(data) >= size else data[:-1] + bytes([data[-1] | 0x80]).ljust(size - len(data), b"\x80") + b"\0"


def _number(honest: int, lies: bool, draw: random.Random) -> bytes:
    """A varint, of another number or in another form where it lies."""
    if not lies:
        return varint(honest)
    way = draw.random()
    if way < 0.4:
        return varint(draw.choice(EDGES))
    if way < 0.8:
        return overlong(honest, draw.choice((2, 3, 4, 5, 5, 6, 9, 10, 10, 11)))
    if way < 0.9:  # five bytes with bits above the 32nd, which Java shifts out
        data = overlong(honest, 5)
        return data[:4] + bytes([data[4] | draw.choice((0x10, 0x40, 0x70))]) if len(data) == 5 else data
    return varint(honest + draw.choice((-1, 1)))


def _record(place: int, lies: bool, draw: random.Random) -> tuple[bytes, bool]:
    """A record, and whether its offset delta is its place in the batch."""
    key, value = draw.choice(KEYS), draw.choice(VALUES)
    headers = [(b"h%d" % n, draw.choice(VALUES)) for n in range(draw.choice((0, 0, 0, 1, 2)))]
    numbers = 5 + 2 * len(headers)
    lie = draw.randrange(numbers + 1) if lies else -1  # which of its numbers; the last: the record's length
    left = iter(range(numbers))

    def number(honest: int) -> bytes:
        return _number(honest, next(left) == lie, draw)

    body = bytes([0 if draw.random() < 0.95 else draw.randrange(256)]) + number(draw.randrange(-3, 1000))
    delta = number(place)
    body += delta
    for data in (key, value):
        body += number(-1 if data is None else len(data)) + (data or b"")
    body += number(len(headers))
    for name, data in headers:
        body += number(len(name)) + name + number(-1 if data is None else len(data)) + (data or b"")
    if lies and draw.random() < 0.1:
        body = body[: draw.randrange(len(body) + 1)]
    return _number(len(body), lie == numbers, draw) + body, delta == varint(place)


def lying_batch(draw: random.Random, base_offset: int = 0) -> Lying:
    """A batch of 1 to 12 records. In one of two a record lies, in one of ten the header; in one of ten bytes follow the
    records or some of theirs are missing, in one of twenty the packed bytes are damaged."""
    count = draw.choice((1, 1, 2, 3, 6, 12))
    liar = draw.randrange(count) if draw.random() < 0.5 else -1
    records = [_record(place, place == liar, draw) for place in range(count)]
    payload = b"".join(data for data, _ in records)
    honest, codec = True, draw.choice(sorted(CODECS.values()))
    attributes, last_delta, base, most, told = codec, count - 1, TIME, TIME + 999, count
    way = draw.random()
    if way < 0.1:
        honest = False
        lie = draw.randrange(4)
        if lie == 0:
            told = draw.choice((0, -1, count - 1, count + 1, 2**31 - 1, 1_000_000))
        elif lie == 1:
            last_delta = draw.choice((-1, 0, count, 2**31 - 1, -(2**31)))
        elif lie == 2:
            attributes = draw.choice((codec | 0x40, codec | 0x80, 5, 6, 7, codec | 0x7F00))
        else:
            told, last_delta = count + 1, count
    elif way < 0.15:
        payload += draw.randbytes(draw.randrange(1, 20))
    elif way < 0.2:
        payload = payload[: draw.randrange(len(payload) + 1)]
    packed = compressed(codec, payload, draw.randrange(16))
    packed_damage = way > 0.95 and codec != 0
    if packed_damage:
        at = draw.randrange(len(packed))
        packed = packed[:at] + bytes([packed[at] ^ 1 << draw.randrange(8)]) + packed[at + 1 :]
    head = struct.pack(
        ">qiibIhiqqqhii", base_offset, 0, -1, 2, 0, struct.unpack(">h", struct.pack(">H", attributes))[0], last_delta,
        base, most, -1, -1, -1, told,
    )  # fmt: skip
    return Lying(sealed(head + packed), honest, all(right for _, right in records), packed_damage)
