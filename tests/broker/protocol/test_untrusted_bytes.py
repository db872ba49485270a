"""Requests with lengths, counts or sizes that cannot be true are malformed: kio would make room for any array length,
and abort the process. All other bytes are read as kio reads them."""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import Any

import kio.serial
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.api_messages import reader, request_class
from kafkalog_broker.protocol.message_codecs import MAX_ELEMENTS
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_spark.format.messages.wire import Malformed
from kafkalog_spark.format.varints import uvarint
from tests.broker.protocol.helpers.drawn_messages import REQUEST_VERSIONS, encode, requests_of, served_first
from tests.broker.protocol.helpers.kio_messages import is_same, kio_request_class
from tests.broker.protocol.helpers.request_fuzz import is_read_alike_by_kio
from tests.searches import examples

KIO_KEYS = served_first(key for key in REQUEST_VERSIONS if key != 0)  # Produce has a parser of its own


def _offset_fetch(elements: int) -> bytes:
    """OffsetFetch 8 with so many elements in its arrays, two of which are the group and the topic."""
    body = b"\2\2g\2\2t" + uvarint(elements - 2 + 1) + bytes(4 * (elements - 2)) + b"\0\0\0\0"
    return struct.pack(">hhih", 9, 8, 1, -1) + b"\0" + body


@pytest.mark.usefixtures("everything_served")
def test_too_many_elements_are_refused_before_allocation() -> None:
    (group,) = decode_request(_offset_fetch(MAX_ELEMENTS)).entity.groups
    assert len(group.topics[0].partition_indexes) == MAX_ELEMENTS - 2
    with pytest.raises(MalformedRequest, match="OffsetFetch version 8: it has more array elements than a request may"):
        decode_request(_offset_fetch(MAX_ELEMENTS + 1))


@pytest.mark.usefixtures("everything_served")
@pytest.mark.parametrize("key", [1, 2, 3, 8])
def test_ten_thousand_topics_of_one_partition_are_decoded(key: int) -> None:
    version = {1: 12, 2: 7, 3: 12, 8: 8}[key]
    name = [b"\x06" + b"%05d" % number for number in range(10_000)]
    many = uvarint(10_001)
    bodies = {
        1: struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, 0) + many
        + b"".join(one + b"\2" + bytes(4 + 4 + 8 + 4 + 8 + 4) + b"\0\0" for one in name) + b"\1\1\0",
        2: struct.pack(">ib", -1, 0) + many + b"".join(one + b"\2" + bytes(16) + b"\0\0" for one in name) + bytes(5),
        3: many + b"".join(bytes(16) + one + b"\0" for one in name) + bytes(3),
        8: b"\2g" + bytes(4) + b"\1\0" + many
        + b"".join(one + b"\2" + bytes(16) + b"\1\0\0" for one in name) + b"\0",
    }  # fmt: skip
    entity = decode_request(struct.pack(">hhih", key, version, 1, -1) + b"\0" + bodies[key]).entity
    assert len(entity.topics) == 10_000


@pytest.mark.usefixtures("everything_served")
def test_tagged_fields_and_null_arrays_count_towards_the_bound() -> None:
    kind: Any = request_class(3, 12)
    many = MAX_ELEMENTS + 1
    tags = b"\0" + bytes(2) + uvarint(many) + b"\x63\0" * many
    with pytest.raises(Malformed, match="more array elements"):
        reader(kind)(tags, 0, MAX_ELEMENTS)
    assert reader(kind)(b"\0" + bytes(2) + b"\0", 0, 0)[0].topics is None


@pytest.mark.usefixtures("everything_served")
@pytest.mark.parametrize("key", KIO_KEYS, ids=str)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_changed_request_is_decoded_as_by_kio(key: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(REQUEST_VERSIONS[key]))
    _, _, drawn = data.draw(requests_of(key, version))
    body = bytearray(encode(drawn, data.draw(st.none() | st.binary(max_size=20))))
    for _ in range(data.draw(st.integers(0, 3))):
        if body:
            at = data.draw(st.integers(0, len(body) - 1))
            body[at : at + 1] = data.draw(st.binary(min_size=0, max_size=2) | st.sampled_from([b"\0", b"\1", b"\2"]))
    try:
        value, _ = reader(request_class(key, version))(bytes(body), 0)
    except Malformed:
        return
    assert is_read_alike_by_kio(value, kio_request_class(key, version), bytes(body))


@pytest.mark.usefixtures("everything_served")
def test_tagged_field_with_a_wrong_size_is_malformed() -> None:
    """Fetch 17: the replica state has 13 bytes."""
    state = struct.pack(">iq", 1, 2) + b"\0"
    body = struct.pack(">iiibii", 0, 1, 1, 0, 0, 0) + b"\1\1\1" + bytes([1, 1, 100]) + state
    frame = struct.pack(">hhih", 1, 17, 1, -1) + b"\0" + body + b"\xff\xff\xff\xff\x0f" + bytes(200)
    for size in (12, 14, 100):
        changed = frame.replace(bytes([1, 1, 100]), bytes([1, 1, size]))
        with pytest.raises(MalformedRequest, match=f"tagged field 1 does not fill its {size} bytes"):
            decode_request(changed)


@pytest.mark.usefixtures("everything_served")
@pytest.mark.parametrize(
    ("key", "version", "body", "told"),
    [
        (
            3,
            1,
            struct.pack(">i", 2**31 - 1),
            "an array of 2147483647 elements, but only 0 bytes are left, at byte 14 of 14",
        ),
        (3, 1, struct.pack(">i", 2) + b"\0\0\0", "an array of 2 elements, but only 3 bytes are left, at byte 14 of 17"),
        (3, 12, b"\0" + b"\xff\xff\xff\xff\x0f" + bytes(50), "an array of 4294967294 elements"),
        (2, 1, struct.pack(">iihi", -1, 1, 0, 2**31 - 1), "an array of 2147483647 elements"),
        (8, 2, struct.pack(">hihqi", 0, 1, 0, -1, 2**30), "an array of 1073741824 elements"),
        (37, 0, struct.pack(">i", -1), "the array topics is null"),
        (42, 2, b"\0" + b"\0" + b"\0", "the array groups_names is null"),
        (1, 4, struct.pack(">iiiibi", -1, 0, 0, 0, 0, -1), "the array topics is null"),
    ],
)
def test_impossible_length_is_malformed(key: int, version: int, body: bytes, told: str) -> None:
    with pytest.raises(MalformedRequest, match=told):
        decode_request(struct.pack(">hhih", key, version, 1, -1) + body)


HUGE_LENGTHS_EVERYWHERE = """
import resource, struct
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol import api_registry
from kafkalog_broker.protocol.request_decoding import decode_request
from tests.broker.protocol.helpers.drawn_messages import REQUEST_VERSIONS, encode_request, requests

async def never(request, broker): ...

for key, versions in REQUEST_VERSIONS.items():
    api_registry.api(key, versions[0], versions[-1])(never)
# Less than room for 2^31 elements, and more than the libraries need.
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))

ignored = list(HealthCheck)

@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=ignored)
@given(drawn=requests())
def huge(drawn):
    frame = encode_request(*drawn)[:400]
    for length in (struct.pack(">i", 2**31 - 1), bytes.fromhex("ffffffff07"), bytes.fromhex("ffffffff0f")):
        for at in range(14, len(frame)):
            try:
                decode_request(frame[:at] + length + frame[at + len(length):])
            except MalformedRequest:
                pass

huge()
print("done")
"""


def test_no_length_in_a_request_ends_the_process() -> None:
    code = HUGE_LENGTHS_EVERYWHERE.replace("EXAMPLES", "150")
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr[-3000:]


@pytest.mark.parametrize("there", [0, 1, 2, 8, 127, 128, 254, 255])
def test_only_byte_255_encodes_a_null_struct(there: int) -> None:
    """DescribeTopicPartitions 0 with a cursor (KIP-893)."""
    kind: Any = request_class(75, 0)
    head, cursor = b"\2\2t\0" + struct.pack(">i", 2000), b"\2t" + struct.pack(">i", 0) + b"\0"
    body = head + bytes([there]) + (b"" if there == 255 else cursor) + b"\0"
    found, size = kio.serial.entity_reader(kio_request_class(75, 0))(body, 0)
    value, end = reader(kind)(body, 0)
    assert end == size == len(body)
    assert is_same(value, found)
    assert reader(kind)(body[:-1] + b"\1\x63\0", 0) == (value, size + 2)
    assert (value.cursor is None) == (there == 255)
