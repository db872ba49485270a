"""The other side of the codec: requests as a client writes them, and responses as it reads them."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from kio.schema.create_acls.v3.request import CreateAclsRequest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.serial import entity_reader

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.codec import api_name, request_class, response_class
from kafkalog_broker.protocol.entity_parser import DAMAGE, entity_parser
from kafkalog_broker.protocol.entity_writer import entity_writer
from kafkalog_broker.protocol.response_entity import entity


def request_header(api_key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    name = client_id.encode()
    tags = b"\0" if is_flexible(api_key, version) else b""
    return struct.pack(">hhih", api_key, version, correlation_id, len(name)) + name + tags


def encode_client_request(request: Any, client_id: str) -> bytes:
    """Encode a request entity of kio with a header, without the size in front."""
    head = request_header(request.__api_key__, request.__version__, 1, client_id)
    kind: Any = type(request)
    return b"".join(entity_writer(kind)(request, bytearray(head)))


def request_body(api_key: int, version: int, **fields: Any) -> bytes:
    """Body of a request with those of `fields` that its version has, as response_entity.entity takes them."""
    kind: Any = request_class(api_key, version)
    return b"".join(entity_writer(kind)(entity(kind, **fields), bytearray()))


def decode_client_response(request: Any, body: bytes) -> Any:
    """The response entity to one of kio's request entities. body: from its header on."""
    return decode_response(request.__api_key__, request.__version__, body)


def decode_response(api_key: int, version: int, body: bytes) -> Any:
    """As decode_client_response, by API key and version."""
    response: Any = response_class(api_key, version)
    _, start = entity_reader(response.__header_schema__)(body, 0)
    return entity_reader(response)(body, start)[0]


def plain_login_requests(user: str, password: str) -> tuple[Any, Any]:
    """Requests that authenticate with the mechanism PLAIN."""
    token = f"\0{user}\0{password}".encode()
    return SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=token)


def create_acls_request(acls: Iterable[tuple[int, int, str, str, str, int, int]]) -> Any:
    """acls: resource, pattern type, name, principal, host, operation, permission."""
    names = ("resource_type", "resource_pattern_type", "resource_name", "principal", "host", "operation",
             "permission_type")  # fmt: skip
    return entity(CreateAclsRequest, creations=[dict(zip(names, acl, strict=True)) for acl in acls])


def create_topic_request(name: str, partitions: int, configs: Mapping[str, object]) -> Any:
    topic = {
        "name": name, "num_partitions": partitions, "replication_factor": 1,
        "configs": [{"name": key, "value": str(value)} for key, value in configs.items()],
    }  # fmt: skip
    return entity(CreateTopicsRequest, topics=[topic])


# What a mirror asks a cluster besides Fetch: Metadata, ListOffsets, OffsetForLeaderEpoch, through kio.

METADATA, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 3, 2, 23
VERSIONS: Mapping[int, tuple[int, int]] = {METADATA: (4, 12), LIST_OFFSETS: (2, 7), OFFSET_FOR_LEADER_EPOCH: (2, 4)}
"""Versions spoken by this client, by API key: 0.11 knows the lowest ones (OffsetForLeaderEpoch: 2.1), 4.3 the highest
ones."""
EARLIEST, LATEST = -2, -1
_CONSUMER = -1
_ZERO = uuid.UUID(int=0)


class SourcePartition(NamedTuple):
    """leader: node id, -1 without one. leader_epoch: -1 where it is not known (before 2.1)."""

    leader: int
    leader_epoch: int


class SourceTopic(NamedTuple):
    """A topic of the cluster. id: zero before 2.8."""

    name: str
    id: uuid.UUID
    is_internal: bool
    partitions: Mapping[int, SourcePartition]


class SourceCluster(NamedTuple):
    """Cluster as Metadata describes it. nodes: (host, port) by node id."""

    cluster_id: str | None
    nodes: Mapping[int, tuple[str, int]]
    topics: Mapping[str, SourceTopic]


class Asked(NamedTuple):
    """A partition's answer. error: Kafka's code."""

    error: int
    offset: int
    epoch: int = -1


def metadata_body(version: int) -> bytes:
    """Body of a Metadata request for all topics."""
    return request_body(
        METADATA, version, topics=None, allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
    )  # fmt: skip


def read_metadata(body: memoryview, version: int) -> SourceCluster:
    """Topics that have an error are left out, as if they were not there just now."""
    answer = _decoded(METADATA, version, body)
    topics = {}
    for topic in answer.topics:
        if not topic.error_code.value and topic.name is not None:
            partitions = {
                int(one.partition_index): SourcePartition(int(one.leader_id), int(getattr(one, "leader_epoch", -1)))
                for one in topic.partitions
            }
            topic_id = getattr(topic, "topic_id", None) or _ZERO
            topics[topic.name] = SourceTopic(str(topic.name), topic_id, topic.is_internal, partitions)
    nodes = {int(node.node_id): (node.host, int(node.port)) for node in answer.brokers}
    return SourceCluster(answer.cluster_id, nodes, topics)


def list_offsets_body(keys: Iterable[tuple[str, int]], timestamp: int, version: int) -> bytes:
    """timestamp: EARLIEST or LATEST, which is the high watermark."""
    by_topic: dict[str, list[Any]] = {}
    for name, index in keys:
        by_topic.setdefault(name, []).append({"partition_index": index, "timestamp": timestamp})
    topics = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
    return request_body(LIST_OFFSETS, version, replica_id=_CONSUMER, topics=topics)


def read_list_offsets(body: memoryview, version: int) -> dict[tuple[str, int], Asked]:
    answer = _decoded(LIST_OFFSETS, version, body)
    return {
        (topic.name, int(one.partition_index)): Asked(one.error_code.value, int(one.offset))
        for topic in answer.topics
        for one in topic.partitions
    }


def epoch_ends_body(epochs: Mapping[tuple[str, int], int], version: int) -> bytes:
    """Where the epoch of each partition ends at its leader."""
    topics = [
        {"topic": name, "partitions": [{"partition": index, "current_leader_epoch": -1, "leader_epoch": epoch}]}
        for (name, index), epoch in epochs.items()
    ]
    return request_body(OFFSET_FOR_LEADER_EPOCH, version, replica_id=_CONSUMER, topics=topics)


def read_epoch_ends(body: memoryview, version: int) -> dict[tuple[str, int], Asked]:
    answer = _decoded(OFFSET_FOR_LEADER_EPOCH, version, body)
    return {
        (topic.topic, int(one.partition)): Asked(one.error_code.value, int(one.end_offset), int(one.leader_epoch))
        for topic in answer.topics
        for one in topic.partitions
    }


def is_flexible(api_key: int, version: int) -> bool:
    """True if request and response have tagged headers."""
    return bool(getattr(request_class(api_key, version), "__flexible__", False))


def _decoded(api_key: int, version: int, body: memoryview) -> Any:
    try:
        return _parser(api_key, version)(bytes(body), 0)
    except DAMAGE as error:
        raise MalformedRequest(f"a response to {api_name(api_key)} version {version} cannot be read: {error}") from None


@cache
def _parser(api_key: int, version: int) -> Callable[[bytes, int], Any]:
    return entity_parser(response_class(api_key, version))
