"""Requests of every API and version that is served, whole, cut and damaged, over real sockets: an answer or a closed
connection, never anything else, and a neighbour served as before."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog_broker import api
from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.api_messages import FIRST_OWN_API_KEY
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.testing import RunningBroker
from tests.broker.net.helpers.served import Neighbour, connect, create_topic, framed, undisturbed
from tests.broker.protocol.helpers.drawn_messages import encode_request, requests_of
from tests.searches import examples

SERVED = [
    (key, version) for key, known in sorted(api.load_all().items())
    if key < FIRST_OWN_API_KEY
    for version in range(known.min_version, known.max_version + 1)
]  # fmt: skip
NEWEST = sorted(dict(SERVED).items())
_ENDS = {*NEWEST, *dict(reversed(SERVED)).items()}
OLDEST_AND_NEWEST_FIRST = [pair if pair in _ENDS else pytest.param(*pair, marks=pytest.mark.slow) for pair in SERVED]
"""`make test` has the oldest and the newest version of each API, `make test-slow` those in between."""
MOST_CUTS = 150
"""Bytes of a request that is cut at every length."""
PROPERTIES = {"num.partitions": 1, "group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("fuzz") / "data", PROPERTIES) as running:
        create_topic(running)
        yield running


@pytest.fixture
def neighbour(broker: RunningBroker) -> Iterator[Neighbour]:
    found = Neighbour(broker)
    with found.connection:
        yield found


def answers(broker: RunningBroker, sent: bytes) -> list[bytes]:
    """Send bytes, close the client's side and return the complete responses.

    Raises AssertionError for a partial response, TimeoutError if the broker neither responds nor closes the connection.
    """
    data = b""
    with connect(broker) as client:
        try:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(1 << 16):
                data += piece
        except ConnectionError:
            pass
    found = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        assert len(data) >= 4 + size, "a response was begun and not finished"
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


def correlation_ids(responses: list[bytes]) -> list[int]:
    return [int.from_bytes(response[:4], "big", signed=True) for response in responses]


@cache
def a_request(key: int, version: int) -> bytes:
    """The longest of some requests: it has elements in its arrays, and is cut inside each of them."""
    seen: list[bytes] = [b""]

    @settings(max_examples=examples(30), database=None, suppress_health_check=list(HealthCheck))
    @given(drawn=requests_of(key, version))
    def draw(drawn: tuple[int, int, Any]) -> None:
        frame = encode_request(*drawn)
        if len(seen[0]) < len(frame) <= MOST_CUTS:
            seen[0] = frame

    draw()
    return seen[0]


def cuts_of(key: int, version: int) -> Iterator[bytes]:
    frame = a_request(key, version)
    for cut in range(len(frame)):
        yield frame[:cut]


@pytest.mark.parametrize(("key", "version"), OLDEST_AND_NEWEST_FIRST)
def test_truncated_request_is_malformed(key: int, version: int) -> None:
    for cut in cuts_of(key, version):
        with pytest.raises(MalformedRequest):
            decode_request(cut)


@pytest.mark.parametrize(("key", "version"), NEWEST)
def test_truncated_request_closes_its_connection(broker: RunningBroker, key: int, version: int) -> None:
    cuts = list(cuts_of(key, version))
    with undisturbed(broker, lines=None) as lines:  # one each, up to the rate of such lines (`LogRate`)
        for cut in cuts:
            assert answers(broker, framed(cut)) == []
    assert all("closed: " in line or "were suppressed" in line for line in lines)


def served_requests() -> st.SearchStrategy[tuple[int, int, Any]]:
    return st.sampled_from(SERVED).flatmap(lambda pair: requests_of(*pair))


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawn=served_requests(), unknown=st.none() | st.binary(max_size=20))
def test_valid_request_is_answered_or_closes_its_connection(
    broker: RunningBroker, neighbour: Neighbour, drawn: tuple[int, int, Any], unknown: bytes | None
) -> None:
    responses = answers(broker, framed(encode_request(*drawn, unknown=unknown)))
    assert correlation_ids(responses) in ([], [7])
    neighbour.is_served()


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawn=served_requests(), data=st.data())
def test_damaged_request_is_answered_or_closes_its_connection(
    broker: RunningBroker, neighbour: Neighbour, drawn: tuple[int, int, Any], data: st.DataObject
) -> None:
    frame = bytearray(encode_request(*drawn))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(8, len(frame)))
        frame[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=5))
    assert len(answers(broker, framed(bytes(frame)))) <= 1
    neighbour.is_served()


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pair=st.sampled_from(SERVED), body=st.binary(max_size=300))
def test_random_body_is_answered_or_closes_its_connection(
    broker: RunningBroker, neighbour: Neighbour, pair: tuple[int, int], body: bytes
) -> None:
    responses = answers(broker, framed(struct.pack(">hhih", *pair, 9, -1) + body))
    assert correlation_ids(responses) in ([], [9])
    neighbour.is_served()


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stream=st.binary(max_size=500))
def test_random_stream_is_answered_or_closes_its_connection(
    broker: RunningBroker, neighbour: Neighbour, stream: bytes
) -> None:
    answers(broker, stream)
    neighbour.is_served()


def test_broker_logged_no_error(broker: RunningBroker) -> None:
    """Must be the last test of the file: an unexpected exception of a handler is logged with level ERROR."""
    told = [line for line in broker.log().splitlines() if " ERROR " in line or "Traceback" in line]
    assert told == []
