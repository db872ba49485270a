"""Damaged request frames of every API and version, decoded in a process that has little memory to give away.

    python -m tests.broker.protocol.helpers.request_fuzz SEED COUNT NOTE

Ends with an AssertionError at the first frame that is not dealt with as it should be. NOTE is a file that holds the
body that is just being decoded in its first line, in case the process does not live to tell.
"""

from __future__ import annotations

import os
import random
import resource
import struct
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import kio.serial
import kio.serial.errors

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol import api_registry
from kafkalog_broker.protocol.api_messages import reader, request_class
from kafkalog_broker.protocol.headers import has_tagged_request_header
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_spark.format.messages.wire import Malformed
from tests.broker.protocol.helpers.drawn_messages import REQUEST_VERSIONS
from tests.broker.protocol.helpers.kio_messages import is_same, kio_request_class
from tests.broker.protocol.helpers.request_tokens import damaged, tokens_of

PAIRS = [(key, version) for key, versions in REQUEST_VERSIONS.items() for version in versions]
ADDRESS_SPACE = 8 << 30
"""Less than 2^31 elements of anything need, and more than the libraries do."""
BYTES_PER_BYTE, BYTES_AT_LEAST = 400, 100_000
"""What a request may take up for each of its bytes (a struct of two bytes becomes an object of some fields), and what
it may whatever its size: the message of an error."""
CALLS_PER_BYTE, CALLS_AT_LEAST = 8, 2_000
MEASURED = 10
"""Of so many frames one is measured: that is ten times as slow."""


def header(key: int, version: int) -> bytes:
    """A request header in the version that this API and version have."""
    tags = b"\0" if has_tagged_request_header(key, version) else b""
    return struct.pack(">hhih", key, version, 7, 4) + b"fuzz" + tags


def is_read_alike_by_kio(value: Any, kind: Any, body: bytes) -> bool:
    """Return whether kio reads the same values in a body.

    It may also refuse it: an error code or a tag that it does not know, a null tagged field, and times and booleans
    outside its bounds (for Kafka all booleans but 0 are true, ByteBufferAccessor). To be called only for a body that
    our reader has accepted: kio makes room for any number of elements.
    """
    try:
        found = kio.serial.entity_reader(kind)(body, 0)[0]
        return is_same(value, found)
    except kio.serial.errors.UnexpectedNull:
        return True
    except (KeyError, ValueError) as error:
        return isinstance(error, KeyError) or any(what in str(error) for what in ("ErrorCode", "boolean", "overflow"))


def is_decodable(frame: bytes) -> bool:
    """Return whether the frame is a request. Exceptions other than MalformedRequest are not caught."""
    try:
        decode_request(frame)
    except MalformedRequest:
        return False
    return True


def measured(work: Callable[[], Any]) -> tuple[int, int]:
    """(bytes that Python had taken at once, calls of Python functions) of one call of `work`."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    tracemalloc.start()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak, calls


def fuzz(seed: int, count: int, note: int) -> tuple[int, int]:
    """(frames that are requests, frames that are not). Raises AssertionError with the frame in hex."""
    draw, found = random.Random(seed), [0, 0]
    for place in range(count):
        key, version = PAIRS[place % len(PAIRS)] if place < len(PAIRS) else draw.choice(PAIRS)
        body = damaged(tokens_of(kio_request_class(key, version), draw), draw)
        frame = header(key, version) + body
        os.pwrite(note, f"{key} {version} {body.hex()}\n".encode(), 0)
        if place % MEASURED == 0:
            is_decodable(frame)  # compiles the reader
            taken, calls = measured(lambda frame=frame: is_decodable(frame))  # type: ignore[misc]
            assert taken <= BYTES_AT_LEAST + BYTES_PER_BYTE * len(frame), (taken, frame.hex())
            assert calls <= CALLS_AT_LEAST + CALLS_PER_BYTE * len(frame), (calls, frame.hex())
        found[is_decodable(frame)] += 1
        try:
            value, _ = reader(request_class(key, version))(body, 0)
        except Malformed:
            continue
        assert is_read_alike_by_kio(value, kio_request_class(key, version), body), (key, version, body.hex())
    return found[True], found[False]


async def _never(request: Any, broker: Any) -> None:
    raise AssertionError("no handler runs here")


def main(seed: int, count: int, note: str) -> None:
    """As `fuzz`, with every API that kio knows registered and the process limited; prints how many of each came."""
    for key, versions in REQUEST_VERSIONS.items():
        api_registry.api(key, versions[0], versions[-1])(_never)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    descriptor = os.open(note, os.O_RDWR | os.O_CREAT)
    print(*fuzz(seed, count, descriptor))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
