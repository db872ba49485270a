from __future__ import annotations

import struct
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol import message_codecs
from kafkalog_broker.protocol.message_codecs import MAX_ELEMENTS
from kafkalog_broker.protocol.produce_messages import ProduceRequest
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_spark.format.varints import uvarint
from tests.broker.protocol.helpers.drawn_messages import encode_request, requests_of

pytestmark = pytest.mark.usefixtures("everything_served")

VERSIONS = st.integers(0, 13)


def read(body: bytes | memoryview, version: int) -> ProduceRequest:
    """The request with that body."""
    head = struct.pack(">hhih", 0, version, 1, -1) + (b"\0" if version >= 9 else b"")
    request: ProduceRequest = decode_request(head + bytes(body)).entity
    return request


def as_values(entity: Any, version: int) -> tuple[Any, ...]:
    """kio's entity in the shape of ProduceRequest."""
    topics = [
        (
            (topic.topic_id or UUID(int=0)) if version >= 13 else topic.name,
            [(partition.index, partition.records) for partition in topic.partition_data],
        )
        for topic in entity.topic_data
    ]
    return getattr(entity, "transactional_id", None), entity.acks, topics


def as_bytes(request: ProduceRequest) -> tuple[Any, ...]:
    topics = [
        (topic, [(index, None if records is None else bytes(records)) for index, records in partitions])
        for topic, partitions in request.topics
    ]
    return request.transactional_id, request.acks, topics


@given(drawn=VERSIONS.flatmap(lambda version: requests_of(0, version)), data=st.data())
def test_every_version_is_decoded_as_by_kio(drawn: tuple[int, int, Any], data: st.DataObject) -> None:
    frame = encode_request(*drawn, unknown=data.draw(st.none() | st.binary(max_size=200)))
    assert as_bytes(decode_request(frame).entity) == as_values(drawn[2], drawn[1])


@given(drawn=VERSIONS.flatmap(lambda version: requests_of(0, version)))
def test_truncated_request_is_malformed(drawn: tuple[int, int, Any]) -> None:
    frame = encode_request(*drawn)
    for cut in range(len(frame)):
        with pytest.raises(MalformedRequest):
            decode_request(frame[:cut])


def test_records_are_views_into_the_frame() -> None:
    one = struct.pack(">ii", 3, 5) + b"batch"
    for count in (1, 2):
        body = struct.pack(">hhii", -1, 1, 1000, 1) + b"\0\1t" + struct.pack(">i", count) + one * count
        buffer = bytearray(struct.pack(">hhih", 0, 3, 1, -1) + body)
        request: ProduceRequest = decode_request(memoryview(buffer)).entity
        index, records = request.topics[0][1][-1]
        assert index == 3
        assert records is not None
        assert records.readonly
        buffer[-5:] = b"BATCH"
        assert bytes(records) == b"BATCH"


def one_batch(version: int, name: bytes, index: int, records: bytes) -> bytes:
    """The body of a request with one batch, as the guide writes it."""
    if version >= 9:
        topic = uvarint(len(name) + 1) + name + b"\2" + struct.pack(">i", index) + uvarint(len(records) + 1) + records
        return b"\0" + struct.pack(">hi", 1, 1000) + b"\2" + topic + b"\0\0\0"
    topic = struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, index, len(records)) + records
    return struct.pack(">hhii", -1, 1, 1000, 1) + topic


@given(
    version=st.integers(3, 12),
    name=st.text(max_size=150),
    records=st.binary(max_size=300),
    flip=st.none() | st.tuples(st.integers(0, 40), st.integers(1, 255)),
    after=st.sampled_from([b"", b"\0", b"more"]),
)
@example(version=9, name="t", records=b"r" * 20_000, flip=None, after=b"")
@example(version=9, name="t", records=b"r" * 0x7E, flip=None, after=b"")
@example(version=9, name="n" * 0x7F, records=b"", flip=None, after=b"")
def test_request_with_one_batch_is_decoded_as_by_the_general_decoder(
    version: int, name: str, records: bytes, flip: tuple[int, int] | None, after: bytes
) -> None:
    body = bytearray(one_batch(version, name.encode(), 3, records) + after)
    if flip is not None:
        body[min(flip[0], len(body) - 1)] ^= flip[1]
    frame = bytes(body)

    def outcome() -> Any:
        try:
            return as_bytes(read(frame, version))
        except MalformedRequest as error:
            return str(error)

    at_once = outcome()
    with patch.object(message_codecs, "parse_one_batch", return_value=None):
        assert at_once == outcome()


LEGACY_HEAD = struct.pack(">hhi", -1, 1, 1000)
FLEXIBLE_HEAD = b"\0" + struct.pack(">hi", 1, 1000)


@pytest.mark.parametrize(
    ("version", "body", "message"),
    [
        (3, struct.pack(">hhi", -2, 1, 1000), "length -2"),
        (3, LEGACY_HEAD + struct.pack(">i", -1), "topic_data is null"),
        (3, LEGACY_HEAD + struct.pack(">i", 2**31 - 1), "array of 2147483647"),
        (3, LEGACY_HEAD + struct.pack(">ih6x", 1, -1), "name is null"),
        (3, LEGACY_HEAD + b"\0\0\0\1\0\1t" + struct.pack(">iii", 1, 0, -2), "records has the length -2"),
        (3, LEGACY_HEAD + b"\0\0\0\1\0\1t" + struct.pack(">iii", 1, 0, 2**31 - 1), "records of 2147483647 bytes"),
        (3, LEGACY_HEAD + b"\0\0\0\1\0\1\xff" + struct.pack(">i", 0), "not UTF-8"),
        (9, FLEXIBLE_HEAD + b"\0", "topic_data is null"),
        (9, FLEXIBLE_HEAD + b"\xff\xff\xff\xff\x0f", "array of 4294967294"),
        (9, FLEXIBLE_HEAD + b"\xff\xff\xff\xff\xff\x0f", "more than 32 bits"),
        (9, FLEXIBLE_HEAD + b"\x80\x80\x80\x80\x10", "more than 32 bits"),
        (9, FLEXIBLE_HEAD + b"\2\0\1\0", "name is null"),
        (
            9,
            FLEXIBLE_HEAD + b"\2\2t\2\0\0\0\0\x7f\0\0",
            "records of 126 bytes, but only 2 bytes are left, at byte 27 of 29",
        ),
        (9, FLEXIBLE_HEAD + b"\2\2t\2\0\0\0\0\0\1\7\x7f", "tagged field 7 of 127 bytes"),
        (13, FLEXIBLE_HEAD + b"\2" + bytes(15), "an array of 1 elements"),
    ],
)
def test_impossible_length_is_malformed(version: int, body: bytes, message: str) -> None:
    with pytest.raises(MalformedRequest, match=message):
        read(body, version)


@pytest.mark.parametrize("version", [3, 9])
def test_partitions_up_to_the_limit_are_decoded_and_more_refused(version: int) -> None:
    """Partitions without records have a few bytes each: 100 MB of them would become gigabytes."""

    def body(count: int) -> bytes:
        if version == 3:
            head = struct.pack(">hhiih1si", -1, 1, 1000, 1, 1, b"t", count)
            return head + struct.pack(">ii", 0, -1) * count
        return b"\0" + struct.pack(">hi", 1, 1000) + b"\2\2t" + uvarint(count + 1) + b"\0\0\0\0\0\0" * count + b"\0\0"

    request = read(body(MAX_ELEMENTS - 1), version)
    assert len(request.topics[0][1]) == MAX_ELEMENTS - 1
    with pytest.raises(MalformedRequest, match="more array elements than a request may"):
        read(body(MAX_ELEMENTS + 1), version)
