"""The client side of the protocol: writing requests and reading responses, for mirrors, tests and tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.api_messages import api_name, reader, request_class, response_class, writer
from kafkalog_broker.protocol.headers import request_header, without_header
from kafkalog_broker.protocol.responses import build_struct
from kafkalog_spark.format.messages.reader import UNBOUNDED, Body
from kafkalog_spark.format.messages.wire import Malformed


def encode_client_request(request: Any, client_id: str) -> bytes:
    """Return the frame of a request: header and body, without the size.

    Args:
        request: A request of `api_messages`, or an object with the same attributes.
        client_id: Client ID for the header.
    """
    api_key, version = request.__api_key__, request.__version__
    head = bytearray(request_header(api_key, version, 1, client_id))
    return b"".join(writer(request_class(api_key, version))(request, head))


def request_body(api_key: int, version: int, **fields: Any) -> bytes:
    """Return the body of a request. As in `responses.entity`, fields that the version lacks are ignored."""
    struct_class = request_class(api_key, version)
    return b"".join(writer(struct_class)(build_struct(struct_class, **fields), bytearray()))


def decode_response(api_key: int, version: int, frame: bytes) -> Any:
    """Read the response in a frame, which does not include the size.

    Raises:
        MalformedRequest: If the bytes are not a response of this API and version.
    """
    return read_response(api_key, version, without_header(frame, api_key, version))


def read_response(api_key: int, version: int, body: Body, max_elements: int = UNBOUNDED) -> Any:
    """Read the body of a response.

    Args:
        api_key: API of the response.
        version: Its version.
        body: Bytes after the header.
        max_elements: Limit on the number of elements of all arrays together.

    Raises:
        MalformedRequest: If the bytes are not a response of this API and version.
    """
    try:
        return reader(response_class(api_key, version))(body, 0, max_elements)[0]
    except Malformed as error:
        raise MalformedRequest(
            f"a response to {api_name(api_key)} version {version} cannot be read: {error}, at byte {error.position} of "
            f"{len(body)}"
        ) from None


def plain_login_requests(user: str, password: str) -> tuple[Any, Any]:
    """Return the SaslHandshake and SaslAuthenticate requests of a login by SASL/PLAIN."""
    sasl_handshake, sasl_authenticate = request_class(17, 1), request_class(36, 2)
    token = f"\0{user}\0{password}".encode()
    return sasl_handshake(mechanism="PLAIN"), sasl_authenticate(auth_bytes=token)


def create_acls_request(acls: Iterable[tuple[int, int, str, str, str, int, int]]) -> Any:
    """Return a CreateAcls request.

    Args:
        acls: Resource type, pattern type, resource name, principal, host, operation and permission of each ACL.
    """
    names = ("resource_type", "resource_pattern_type", "resource_name", "principal", "host", "operation",
             "permission_type")  # fmt: skip
    return build_struct(request_class(30, 3), creations=[dict(zip(names, acl, strict=True)) for acl in acls])


def create_topic_request(name: str, partitions: int, configs: Mapping[str, object]) -> Any:
    """Return a CreateTopics request for one topic with one replica."""
    topic = {
        "name": name, "num_partitions": partitions, "replication_factor": 1,
        "configs": [{"name": key, "value": str(value)} for key, value in configs.items()],
    }  # fmt: skip
    return build_struct(request_class(19, 7), topics=[topic])
