from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog_broker.api.api_versions import api_versions, api_versions_error
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_messages import request_class
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_spark.format.varints import uvarint

BROKER: Any = SimpleNamespace(telemetry=SimpleNamespace(receiver=None))
SOFTWARE = {"client_software_name": "librdkafka", "client_software_version": "2.15.0-rc.1"}


@pytest.fixture(autouse=True)
def _registered(empty_registry: None) -> None:
    api(18, 0, 4)(api_versions)
    on_error(18)(api_versions_error)
    api(3, 0, 13)(api_versions)
    api(0, 0, 13)(api_versions)


def answer(version: int, **fields: Any) -> tuple[Any, Request]:
    entity = request_class(18, version)(**fields) if version <= 4 else None
    request = Request(18, version, 1, "me", entity, ConnectionInfo())
    return api_versions(request, BROKER), request


@pytest.mark.parametrize("version", range(5))
def test_response_lists_registered_apis_in_the_order_of_keys(version: int) -> None:
    response, _ = answer(version, **SOFTWARE if version >= 3 else {})
    assert response.error_code is ErrorCode.none
    assert [(a.api_key, a.min_version, a.max_version) for a in response.api_keys] == [
        (0, 0, 13),
        (3, 0, 13),
        (18, 0, 4),
    ]


@pytest.mark.parametrize(("receiver", "told"), [(None, [0, 3, 18]), ("a receiver", [0, 3, 18, 71, 72])])
def test_telemetry_apis_are_listed_only_with_a_receiver(receiver: Any, told: list[int]) -> None:
    for key in (71, 72):
        api(key, 0, 0)(api_versions)
    request = Request(18, 0, 1, "me", request_class(18, 0)(), ConnectionInfo())
    broker: Any = SimpleNamespace(telemetry=SimpleNamespace(receiver=receiver))
    response = api_versions(request, broker)
    assert [served.api_key for served in response.api_keys] == told  # type: ignore[union-attr]


def test_finalized_features_have_a_non_negative_epoch() -> None:
    response, _ = answer(3, **SOFTWARE)
    assert response.finalized_features_epoch == 0
    assert [
        (feature.name, feature.max_version_level, feature.min_version_level) for feature in response.finalized_features
    ] == [
        ("group.version", 1, 1),
        ("metadata.version", 30, 30),
        ("share.version", 1, 1),
        ("streams.version", 1, 1),
        ("transaction.version", 2, 2),
        ("eligible.leader.replicas.version", 1, 1),
    ]


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (3, [("metadata.version", 7, 30)]),
        (
            4,
            [
                ("group.version", 0, 1),
                ("kraft.version", 0, 1),
                ("metadata.version", 7, 30),
                ("share.version", 0, 1),
                ("streams.version", 0, 1),
                ("transaction.version", 0, 2),
                ("eligible.leader.replicas.version", 0, 1),
            ],
        ),
    ],
)
def test_supported_features_from_level_0_are_listed_from_version_4_on(version: int, told: list[Any]) -> None:
    response, _ = answer(version, **SOFTWARE)
    assert [(one.name, one.min_version, one.max_version) for one in response.supported_features] == told


def test_client_software_name_and_version_are_kept() -> None:
    _, request = answer(3, **SOFTWARE)
    assert (request.connection.software_name, request.connection.software_version) == ("librdkafka", "2.15.0-rc.1")


@pytest.mark.parametrize("bad", ["", "-a", "a-", "a b", "a\n", "\xe9", "a_b"])
@pytest.mark.parametrize("field", list(SOFTWARE))
def test_invalid_software_name_is_an_invalid_request(field: str, bad: str) -> None:
    response, request = answer(4, **{**SOFTWARE, field: bad})
    assert response.error_code is ErrorCode.invalid_request
    assert response.api_keys == ()
    assert request.connection.software_name == "unknown"


def test_unsupported_version_gets_a_version_0_response_with_the_range_of_api_versions() -> None:
    request = decode_request(struct.pack(">hhih", 18, 5, 77, -1) + b"whatever")
    (frame,) = encode_response(request, api_versions(request, BROKER))
    assert frame == struct.pack(">iihihhh", 16, 77, ErrorCode.unsupported_version, 1, 18, 0, 4)


def test_version_3_response_has_the_expected_bytes() -> None:
    """A tagged response header here once made librdkafka ask for 34 GB."""
    response, request = answer(3, **SOFTWARE)
    (frame,) = encode_response(request, response)
    apis = b"".join(struct.pack(">hhhb", *served, 0) for served in ((0, 0, 13), (3, 0, 13), (18, 0, 4)))
    # Tag 0: the one feature that is supported from a higher level than 0 on. Tag 1, 8 bytes: the epoch of the
    # finalized features. Tag 2: six of them, with their levels.
    supported = b"\2\x11metadata.version" + struct.pack(">hhb", 7, 30, 0)
    finalized = b"\7"
    for name, level in (
        (b"group.version", 1),
        (b"metadata.version", 30),
        (b"share.version", 1),
        (b"streams.version", 1),
        (b"transaction.version", 2),
        (b"eligible.leader.replicas.version", 1),
    ):
        finalized += bytes((len(name) + 1,)) + name + struct.pack(">hhb", level, level, 0)
    tagged = bytes((3, 0, len(supported))) + supported + b"\1\x08" + bytes(8)
    tagged += b"\2" + uvarint(len(finalized)) + finalized
    body = struct.pack(">hb", 0, 4) + apis + struct.pack(">i", 0) + tagged
    assert frame == struct.pack(">ii", 4 + len(body), 1) + body
