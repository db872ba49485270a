"""The other side of the codec: requests as a client writes them, and responses as it reads them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

from kio.schema.create_acls.v3 import request as create_acls
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8, i16, i32

from kafkalog_broker.protocol.codec import response_class


def encode_client_request(request: Any, client_id: str) -> bytes:
    """One of kio's request entities with a header, without the size in front."""
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=1,
        client_id=client_id,
    )
    frame = io.BytesIO()
    entity_writer(type(header))(frame, header)
    entity_writer(type(request))(frame, request)
    return frame.getvalue()


def decode_client_response(request: Any, body: bytes) -> Any:
    """The response entity to one of kio's request entities. body: from its header on."""
    return decode_response(request.__api_key__, request.__version__, body)


def decode_response(api_key: int, version: int, body: bytes) -> Any:
    """As decode_client_response, by API key and version."""
    response: Any = response_class(api_key, version)
    _, start = entity_reader(response.__header_schema__)(body, 0)
    return entity_reader(response)(body, start)[0]


def plain_login_requests(user: str, password: str) -> tuple[Any, Any]:
    """What authenticates with the mechanism PLAIN."""
    token = f"\0{user}\0{password}".encode()
    return SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=token)


def create_acls_request(acls: Iterable[tuple[int, int, str, str, str, int, int]]) -> Any:
    """acls: resource, pattern type, name, principal, host, operation, permission."""
    return create_acls.CreateAclsRequest(
        creations=tuple(
            create_acls.AclCreation(
                resource_type=i8(resource), resource_pattern_type=i8(pattern), resource_name=name, principal=principal,
                host=host, operation=i8(operation), permission_type=i8(permission),
            )
            for resource, pattern, name, principal, host, operation, permission in acls
        )
    )  # fmt: skip


def create_topic_request(name: str, partitions: int, configs: Mapping[str, object]) -> Any:
    topic = create_topics.CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(1),
        assignments=(),
        configs=tuple(create_topics.CreatableTopicConfig(name=key, value=str(value)) for key, value in configs.items()),
    )
    return create_topics.CreateTopicsRequest(topics=(topic,), validate_only=False)
