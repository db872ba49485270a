"""The other side of the codec: requests as a client writes them, and responses as it reads them."""

from __future__ import annotations

import dataclasses
import io
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from kio.schema.create_acls.v3 import request as create_acls
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8, i16, i32

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.codec import api_name, request_class, response_class
from kafkalog_broker.protocol.entity_parser import DAMAGE, entity_parser


def encode_client_request(request: Any, client_id: str) -> bytes:
    """Encode a request entity of kio with a header, without the size in front."""
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
    """Requests that authenticate with the mechanism PLAIN."""
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
    return _encoded(
        METADATA, version, topics=None, allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
    )  # fmt: skip


def read_metadata(body: memoryview, version: int) -> SourceCluster:
    """Topics that have an error are left out, as if they were not there just now."""
    entity = _decoded(METADATA, version, body)
    topics = {}
    for topic in entity.topics:
        if not topic.error_code.value and topic.name is not None:
            partitions = {
                int(one.partition_index): SourcePartition(int(one.leader_id), int(getattr(one, "leader_epoch", -1)))
                for one in topic.partitions
            }
            topic_id = getattr(topic, "topic_id", None) or _ZERO
            topics[topic.name] = SourceTopic(str(topic.name), topic_id, topic.is_internal, partitions)
    nodes = {int(node.node_id): (node.host, int(node.port)) for node in entity.brokers}
    return SourceCluster(entity.cluster_id, nodes, topics)


def list_offsets_body(keys: Iterable[tuple[str, int]], timestamp: int, version: int) -> bytes:
    """timestamp: EARLIEST or LATEST, which is the high watermark."""
    from_module = _nested(LIST_OFFSETS, version)
    topics = _grouped(
        keys,
        lambda partition: from_module["ListOffsetsPartition"](partition_index=partition, timestamp=timestamp),
        lambda name, partitions: from_module["ListOffsetsTopic"](name=name, partitions=partitions),
    )
    return _encoded(LIST_OFFSETS, version, replica_id=_CONSUMER, isolation_level=0, topics=topics)


def read_list_offsets(body: memoryview, version: int) -> dict[tuple[str, int], Asked]:
    entity = _decoded(LIST_OFFSETS, version, body)
    return {
        (topic.name, int(one.partition_index)): Asked(one.error_code.value, int(one.offset))
        for topic in entity.topics
        for one in topic.partitions
    }


def epoch_ends_body(epochs: Mapping[tuple[str, int], int], version: int) -> bytes:
    """Where the epoch of each partition ends at its leader."""
    from_module = _nested(OFFSET_FOR_LEADER_EPOCH, version)
    topics = []
    for (name, partition), epoch in epochs.items():
        one = from_module["OffsetForLeaderPartition"](partition=partition, current_leader_epoch=-1, leader_epoch=epoch)
        topics.append(from_module["OffsetForLeaderTopic"](topic=name, partitions=(one,)))
    return _encoded(OFFSET_FOR_LEADER_EPOCH, version, replica_id=_CONSUMER, topics=tuple(topics))


def read_epoch_ends(body: memoryview, version: int) -> dict[tuple[str, int], Asked]:
    entity = _decoded(OFFSET_FOR_LEADER_EPOCH, version, body)
    return {
        (topic.topic, int(one.partition)): Asked(one.error_code.value, int(one.end_offset), int(one.leader_epoch))
        for topic in entity.topics
        for one in topic.partitions
    }


def is_flexible(api_key: int, version: int) -> bool:
    """True if request and response have tagged headers."""
    return bool(getattr(request_class(api_key, version), "__flexible__", False))


def _grouped(keys: Iterable[tuple[str, int]], partition: Any, topic: Any) -> tuple[Any, ...]:
    by_topic: dict[str, list[Any]] = {}
    for name, index in keys:
        by_topic.setdefault(name, []).append(partition(index))
    return tuple(topic(name, tuple(partitions)) for name, partitions in by_topic.items())


def _nested(api_key: int, version: int) -> dict[str, Any]:
    """The classes of a request's module, each taking only the fields that its version has."""
    module = sys.modules[request_class(api_key, version).__module__]
    return {name: _lenient(found) for name, found in vars(module).items() if dataclasses.is_dataclass(found)}


def _lenient(entity: Any) -> Any:
    names = {field.name for field in dataclasses.fields(entity)}
    return lambda **fields: entity(**{name: value for name, value in fields.items() if name in names})


def _encoded(api_key: int, version: int, **fields: Any) -> bytes:
    entity: Any = request_class(api_key, version)
    body = io.BytesIO()
    entity_writer(entity)(body, _lenient(entity)(**fields))
    return body.getvalue()


def _decoded(api_key: int, version: int, body: memoryview) -> Any:
    try:
        return _parser(api_key, version)(bytes(body), 0)
    except DAMAGE as error:
        raise MalformedRequest(f"a response to {api_name(api_key)} version {version} cannot be read: {error}") from None


@cache
def _parser(api_key: int, version: int) -> Callable[[bytes, int], Any]:
    return entity_parser(response_class(api_key, version))
