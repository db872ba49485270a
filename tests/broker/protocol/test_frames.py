from __future__ import annotations

import struct
import threading
from collections import namedtuple
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from kafkalog_broker.errors import ErrorCode, MalformedRequest, UnsupportedVersion
from kafkalog_broker.protocol import message_codecs
from kafkalog_broker.protocol.api_messages import api_name, request_class, response_class
from kafkalog_broker.protocol.client_messages import encode_client_request
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.fetch_messages import FetchResponse, PartitionFetchResponse, TopicFetchResponse
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.protocol.responses import build_response
from tests.broker.protocol.helpers.drawn_messages import (
    REQUEST_VERSIONS,
    encode_request,
    requests,
    requests_of,
    served_first,
)
from tests.broker.protocol.helpers.kio_messages import is_same, kio_response_class
from tests.searches import examples

pytestmark = pytest.mark.usefixtures("everything_served")

NAMED = namedtuple("NAMED", "error_code throttle_time")
KIO_KEYS = served_first(key for key in REQUEST_VERSIONS if key != 0)  # Produce has a parser of its own


@pytest.mark.parametrize("key", KIO_KEYS, ids=str)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_request_of_every_version_is_decoded(key: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(REQUEST_VERSIONS[key]))
    _, _, entity = data.draw(requests_of(key, version))
    unknown = data.draw(st.none() | st.binary(max_size=200))

    request = decode_request(encode_request(key, version, entity, 99, unknown))

    assert (request.api_key, request.version, request.correlation_id, request.client_id) == (key, version, 99, "test")
    assert is_same(request.entity, entity)


@given(drawn=requests(), data=st.data())
def test_truncated_request_is_malformed(drawn: tuple[int, int, Any], data: st.DataObject) -> None:
    frame = encode_request(*drawn, unknown=data.draw(st.none() | st.just(b"new")))
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(MalformedRequest):
        decode_request(frame[:cut])


@settings(max_examples=examples(300))
@given(drawn=requests(), data=st.data())
def test_damaged_request_is_decoded_or_malformed(drawn: tuple[int, int, Any], data: st.DataObject) -> None:
    frame = bytearray(encode_request(*drawn, unknown=data.draw(st.none() | st.just(b"new"))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(14, len(frame)))
        frame[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=5))
    decode_or_malformed(bytes(frame))


@settings(max_examples=examples(300))
@given(pair=st.sampled_from(sorted(REQUEST_VERSIONS)), version=st.integers(0, 20), body=st.binary(max_size=200))
def test_random_body_is_decoded_or_malformed(pair: int, version: int, body: bytes) -> None:
    decode_or_malformed(struct.pack(">hhih", pair, version, 1, -1) + body)


@settings(max_examples=examples(300))
@given(frame=st.binary(max_size=100))
def test_random_frame_is_decoded_or_malformed(frame: bytes) -> None:
    decode_or_malformed(frame)


def decode_or_malformed(frame: bytes) -> None:
    try:
        decode_request(frame)
    except MalformedRequest:
        pass


def test_frame_may_be_a_read_only_view() -> None:
    frame = encode_client_request(request_class(18, 3)(client_software_name="a", client_software_version="1"), "me")
    assert decode_request(memoryview(bytearray(frame)).toreadonly()) == decode_request(frame)


def test_decoded_request_has_its_connection() -> None:
    connection = ConnectionInfo(host="10.0.0.1")
    assert decode_request(encode_client_request(request_class(18, 0)(), "me"), connection).connection is connection


def test_bytes_after_the_body_are_ignored() -> None:
    frame = encode_client_request(request_class(12, 0)(group_id="g", generation_id=1, member_id="m"), "me")
    assert decode_request(frame + b"more").entity.member_id == "m"


def test_client_id_may_be_null_or_invalid_utf8() -> None:
    assert decode_request(struct.pack(">hhih", 18, 0, 1, -1)).client_id is None
    assert decode_request(struct.pack(">hhih", 18, 0, 1, 2) + b"a\xff").client_id == "a\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(("length", "client_id"), [(-2, b""), (5, b"four"), (32767, b"")])
def test_client_id_beyond_the_frame_is_malformed(length: int, client_id: bytes) -> None:
    with pytest.raises(MalformedRequest, match="client id"):
        decode_request(struct.pack(">hhih", 18, 0, 1, length) + client_id)


@pytest.mark.parametrize(("key", "version"), [(5, 0), (-1, 0), (32767, 1), (3, 14), (3, -1), (1, -1), (37, 4)])
def test_unserved_api_or_version_raises_unsupported_version(key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersion, match="is not served") as caught:
        decode_request(struct.pack(">hhih", key, version, 1, -1))
    assert caught.value.code is ErrorCode.unsupported_version


def test_api_versions_request_of_a_newer_version_is_decoded_without_its_body() -> None:
    request = decode_request(struct.pack(">hhih", 18, 9, 5, 2) + b"me" + b"\xff\xff\xff")
    assert (request.version, request.correlation_id, request.client_id, request.entity) == (9, 5, "me", None)


def request_of(key: int, version: int) -> Request:
    return Request(key, version, 0x01020304, None, object(), ConnectionInfo())


def test_flexible_responses_except_api_versions_have_a_tagged_header() -> None:
    for key, version, header in ((12, 3, "01020304"), (12, 4, "01020304 00"), (18, 4, "01020304")):
        request = request_of(key, version)
        (frame,) = encode_response(request, build_response(request, error_code=ErrorCode.unknown_member_id))
        assert frame.startswith(struct.pack(">i", len(frame) - 4) + bytes.fromhex(header))
        assert entity_reader(kio_response_class(key, version))(bytes(frame), 4 + len(bytes.fromhex(header)))[1] > 0


def test_message_and_equivalent_tuple_give_the_same_frame() -> None:
    response = response_class(12, 4)(throttle_time=timedelta(milliseconds=5), error_code=ErrorCode.unknown_member_id)
    (frame,) = encode_response(request_of(12, 4), response)
    assert frame == bytes.fromhex("0000000c 01020304 00 00000005 0019 00")
    named: Any = NAMED(25, 5)
    assert encode_response(request_of(12, 4), named) == [frame]


def test_large_parts_of_a_response_are_not_copied() -> None:
    records = bytes(10_000)
    topic = TopicFetchResponse("orders", [PartitionFetchResponse(0, records=[records])])
    pieces = encode_response(request_of(1, 12), FetchResponse([topic]))
    assert struct.unpack_from(">i", pieces[0]) == (sum(map(len, pieces)) - 4,)
    assert pieces[1] is records


def test_response_to_an_unsupported_version_of_api_versions_is_encoded_in_version_0() -> None:
    request = Request(18, 9, 1, None, None, ConnectionInfo())
    response = response_class(18, 0)(error_code=ErrorCode.unsupported_version, api_keys=())
    assert encode_response(request, response) == [bytes.fromhex("0000000a 00000001 0023 00000000")]


def test_message_of_another_version_is_refused() -> None:
    with pytest.raises(TypeError, match="Heartbeat version 4 must be a HeartbeatResponse of that version"):
        encode_response(request_of(12, 4), response_class(12, 3)(throttle_time=timedelta(0), error_code=ErrorCode.none))


def test_api_key_has_its_name() -> None:
    assert api_name(8) == "OffsetCommit"
    assert api_name(4711) == "API key 4711"


def test_concurrent_first_requests_compile_a_version_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A response of another class is refused."""
    made: list[Any] = []
    both = threading.Barrier(2)
    compiled = message_codecs.codec_of

    def compile_slowly(api_key: int, version: int) -> Any:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)  # the other thread is here too, or kept out
        made.append((api_key, version))
        return compiled(api_key, version)

    monkeypatch.setattr(message_codecs, "loaded_codecs", {})
    monkeypatch.setattr(message_codecs, "codec_of", compile_slowly)
    threads = [threading.Thread(target=message_codecs.load, args=(struct.pack(">hh", 2, 0),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [(2, 0)]
    assert (loaded := message_codecs.loaded_codecs[2, 0]) is not None
    assert loaded.response is response_class(2, 0)
