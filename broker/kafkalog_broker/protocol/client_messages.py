"""Requests as clients write them, and responses as they read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.api_messages import api_name, reader, request_class, response_class, writer
from kafkalog_broker.protocol.headers import request_header, without_header
from kafkalog_broker.protocol.responses import entity
from kafkalog_spark.format.messages.reader import UNBOUNDED, Body
from kafkalog_spark.format.messages.wire import Malformed


def encode_client_request(request: Any, client_id: str) -> bytes:
    """Return the frame of a request with a header, without its size.

    Args:
        request: A request of `api_messages`, or anything else with the same attributes.
    """
    api_key, version = request.__api_key__, request.__version__
    head = bytearray(request_header(api_key, version, 1, client_id))
    return b"".join(writer(request_class(api_key, version))(request, head))


def request_body(api_key: int, version: int, **fields: Any) -> bytes:
    """Return the body of a request with those of `fields` that its version has, as `responses.entity` takes them."""
    kind = request_class(api_key, version)
    return b"".join(writer(kind)(entity(kind, **fields), bytearray()))


def decode_response(api_key: int, version: int, frame: bytes) -> Any:
    """Return the response in a frame without its size.

    Raises:
        MalformedRequest: If the bytes are not that response.
    """
    return read_response(api_key, version, without_header(frame, api_key, version))


def read_response(api_key: int, version: int, body: Body, most: int = UNBOUNDED) -> Any:
    """Return the response with this body.

    Args:
        body: Without the header.
        most: Number of elements that all arrays together may have.

    Raises:
        MalformedRequest: If the bytes are not that response.
    """
    try:
        return reader(response_class(api_key, version))(body, 0, most)[0]
    except Malformed as error:
        raise MalformedRequest(
            f"a response to {api_name(api_key)} version {version} cannot be read: {error}, at byte {error.position} of "
            f"{len(body)}"
        ) from None


def plain_login_requests(user: str, password: str) -> tuple[Any, Any]:
    token = f"\0{user}\0{password}".encode()
    return request_class(17, 1)(mechanism="PLAIN"), request_class(36, 2)(auth_bytes=token)


def create_acls_request(acls: Iterable[tuple[int, int, str, str, str, int, int]]) -> Any:
    """acls: resource, pattern type, name, principal, host, operation, permission."""
    names = ("resource_type", "resource_pattern_type", "resource_name", "principal", "host", "operation",
             "permission_type")  # fmt: skip
    return entity(request_class(30, 3), creations=[dict(zip(names, acl, strict=True)) for acl in acls])


def create_topic_request(name: str, partitions: int, configs: Mapping[str, object]) -> Any:
    topic = {
        "name": name, "num_partitions": partitions, "replication_factor": 1,
        "configs": [{"name": key, "value": str(value)} for key, value in configs.items()],
    }  # fmt: skip
    return entity(request_class(19, 7), topics=[topic])
