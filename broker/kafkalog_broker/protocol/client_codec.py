"""The other side of the codec: requests as a client writes them, and responses as it reads them. What a mirror asks a
cluster: Metadata, ListOffsets, OffsetForLeaderEpoch and Fetch 5 (that of Kafka 0.11) to 13 (topic ids, served since
3.1)."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from kio.schema.create_acls.v3.request import CreateAclsRequest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.codec import MAX_ELEMENTS, api_name, request_class, response_class
from kafkalog_broker.protocol.entity_codec import UNBOUNDED, Body, entity_reader, entity_writer, skip_tagged_fields
from kafkalog_broker.protocol.response_entity import entity

B = TypeVar("B", bytes, memoryview)


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
    """With those of `fields` that its version has, as response_entity.entity takes them."""
    kind: Any = request_class(api_key, version)
    return b"".join(entity_writer(kind)(entity(kind, **fields), bytearray()))


def decode_response(api_key: int, version: int, body: bytes) -> Any:
    """The response entity. body: from its header on."""
    kind: Any = response_class(api_key, version)
    return read_response(api_key, version, without_header(body, has_tags=kind.__header_schema__.__version__ >= 1))


def without_header(response: B, *, has_tags: bool) -> B:
    return response[skip_tagged_fields(response, 4) if has_tags else 4 :]


def read_response(api_key: int, version: int, body: Body, most: int = UNBOUNDED) -> Any:
    """The response entity. body: without its header. most: elements of all its arrays. Raises MalformedRequest."""
    try:
        return entity_reader(response_class(api_key, version))(body, 0, most)
    except MalformedRequest as error:
        error.what = f"a response to {api_name(api_key)} version {version} cannot be read: {error.what}"
        raise


def plain_login_requests(user: str, password: str) -> tuple[Any, Any]:
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


FETCH, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH = 1, 2, 3, 23
VERSIONS: Mapping[int, tuple[int, int]] = {
    FETCH: (5, 13), LIST_OFFSETS: (2, 7), METADATA: (4, 12), OFFSET_FOR_LEADER_EPOCH: (2, 4),
}  # fmt: skip
"""By API key: 0.11 knows the lowest ones (OffsetForLeaderEpoch: 2.1), 4.3 the highest."""
SESSIONS, TOPIC_IDS = 7, 13  # versions of Fetch from which on there are such
EARLIEST, LATEST = -2, -1
CONSUMER = -1  # as replica id
NO_ID = uuid.UUID(int=0)


Key = tuple[str, int]  # topic and partition


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
    """A partition's answer. error: an ErrorCode, or the number of one of a later release."""

    error: int
    offset: int
    epoch: int = -1


ALL_TOPICS: Mapping[str, Any] = {
    "topics": None, "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}  # fmt: skip
"""Fields of a Metadata request for all topics."""


def cluster_of(answer: Any) -> SourceCluster:
    """Of a response to Metadata. Topics that have an error are left out, as if they were not there just now."""
    topics = {}
    for topic in answer.topics:
        if not topic.error_code and topic.name is not None:
            partitions = {
                int(one.partition_index): SourcePartition(int(one.leader_id), int(getattr(one, "leader_epoch", -1)))
                for one in topic.partitions
            }
            topic_id = getattr(topic, "topic_id", None) or NO_ID
            topics[topic.name] = SourceTopic(str(topic.name), topic_id, topic.is_internal, partitions)
    nodes = {int(node.node_id): (node.host, int(node.port)) for node in answer.brokers}
    return SourceCluster(answer.cluster_id, nodes, topics)


def listed_offsets(answer: Any) -> dict[Key, Asked]:
    return {
        (topic.name, int(one.partition_index)): Asked(one.error_code, int(one.offset))
        for topic in answer.topics
        for one in topic.partitions
    }


def epoch_ends(answer: Any) -> dict[Key, Asked]:
    """Of a response to OffsetForLeaderEpoch."""
    return {
        (topic.topic, int(one.partition)): Asked(one.error_code, int(one.end_offset), int(one.leader_epoch))
        for topic in answer.topics
        for one in topic.partitions
    }


def is_flexible(api_key: int, version: int) -> bool:
    """True if request and response have tagged headers."""
    return bool(getattr(request_class(api_key, version), "__flexible__", False))


# ---- Fetch: records stay where they lie in the response


class FetchFrom(NamedTuple):
    """A partition in the request, in the protocol's words. topic_id: zero where it is not known; epochs: -1."""

    topic_id: uuid.UUID
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class FetchCall(NamedTuple):
    """A request. session: (id, epoch), (0, -1) without one. Sizes in bytes."""

    session: tuple[int, int]
    partitions: Sequence[tuple[Key, FetchFrom]]
    forgotten: Sequence[tuple[Key, uuid.UUID]]
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0


class Fetched(NamedTuple):
    """Answer for a partition. topic: its name or, from version 13 on, its id. error: as in Asked.
    diverging: (epoch, end offset) of the leader's log where it is not what the client says it has."""

    topic: str | uuid.UUID
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging: tuple[int, int] | None


class FetchAnswer(NamedTuple):
    """A response. throttle_ms: for so long the client is to be quiet."""

    throttle_ms: int
    error: int
    session_id: int
    partitions: list[Fetched]


def encode_fetch(call: FetchCall, version: int) -> bytes:
    """The body of the request, which reads committed and uncommitted records alike."""
    wanted: dict[tuple[str, uuid.UUID], list[FetchFrom]] = {}
    for (name, _), fetch in call.partitions:
        wanted.setdefault((name, fetch.topic_id), []).append(fetch)
    forgotten: dict[tuple[str, uuid.UUID], list[int]] = {}
    for (name, partition), topic_id in call.forgotten:
        forgotten.setdefault((name, topic_id), []).append(partition)
    topics, forgotten_topics = (
        [{"topic": name, "topic_id": topic_id, "partitions": partitions} for (name, topic_id), partitions in of.items()]
        for of in (wanted, forgotten)
    )
    session_id, session_epoch = call.session
    return request_body(
        FETCH, version, replica_id=CONSUMER, max_wait=call.max_wait_ms, min_bytes=call.min_bytes,
        max_bytes=call.max_bytes, session_id=session_id, session_epoch=session_epoch, topics=topics,
        forgotten_topics_data=forgotten_topics,
    )  # fmt: skip


def decode_fetch(body: memoryview, version: int, most: int) -> FetchAnswer:
    """Read a response. most: partitions that it may have. Raises MalformedRequest for what is none."""
    answer = read_response(FETCH, version, body, 2 * most + MAX_ELEMENTS)
    partitions = [
        Fetched(
            topic.topic_id or NO_ID if version >= TOPIC_IDS else topic.topic, one.partition_index, one.error_code,
            one.high_watermark, one.log_start_offset, body[:0] if one.records is None else one.records, _diverging(one),
        )
        for topic in answer.responses
        for one in topic.partitions
    ]  # fmt: skip
    if len(partitions) > most:
        raise MalformedRequest(f"a response to Fetch has more than the {most} partitions that were asked for")
    throttle_ms = answer.throttle_time // timedelta(milliseconds=1)
    return FetchAnswer(throttle_ms, getattr(answer, "error_code", 0), getattr(answer, "session_id", 0), partitions)


def _diverging(partition: Any) -> tuple[int, int] | None:
    end = getattr(partition, "diverging_epoch", None)
    return None if end is None or end.epoch < 0 else (end.epoch, end.end_offset)
