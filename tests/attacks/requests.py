"""Requests of a hostile client. Each is the bytes of a whole frame, with its size in front.

They are built by hand from the protocol guide, because a library would refuse or correct some of them. Tests use them
too. Batches for Produce are in batches.py; delivery.py sends the frames.
"""

from __future__ import annotations

import struct

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FETCH, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 9, 18, 19
DELETE_TOPICS, WRITE_TXN_MARKERS, DESCRIBE_CONFIGS, CREATE_PARTITIONS = 20, 27, 32, 37
INCREMENTAL_ALTER_CONFIGS, DESCRIBE_PRODUCERS = 44, 61
FIND_COORDINATOR, STREAMS_GROUP_HEARTBEAT = 10, 88
GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 71, 72
BROKER, TOPIC = 4, 2
"""Resource types of the config requests."""
GIB = 1 << 30


def framed(api_key: int, version: int, body: bytes, *, flexible: bool = False, client_id: bytes = b"attack") -> bytes:
    """Size, request header (version 2 when `flexible`, else 1) and body."""
    header = struct.pack(">hhih", api_key, version, 1, len(client_id)) + client_id + (b"\0" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def string(text: str) -> bytes:
    """A string with a length of 2 bytes."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def uvarint(number: int) -> bytes:
    """An unsigned varint, as flexible versions write lengths (plus one) and tags."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def compact(text: str) -> bytes:
    """A string of a flexible version."""
    data = text.encode()
    return uvarint(len(data) + 1) + data


def array(parts: list[bytes]) -> bytes:
    """An array with a length of 4 bytes."""
    return struct.pack(">i", len(parts)) + b"".join(parts)


def api_versions() -> bytes:
    """ApiVersions 0, the smallest request."""
    return framed(API_VERSIONS, 0, b"")


def fetch_with_a_lying_tag() -> bytes:
    """Fetch 17 whose partition has the tagged field 0 (a UUID, 16 bytes) with a size that says 60.

    A parser that trusts the size finds a valid request; one that reads 16 bytes and continues finds 2^32-2 forgotten
    topics. Java reads 16 bytes and refuses the array.
    """
    honest = b"\0" + b"\1" + b"\1" + b"\0"  # no tags of the topic, no forgotten topics, an empty rack, no tags
    lie = b"\0" + uvarint(2**32 - 1)  # no tags of the topic, the forgotten topics
    tag = uvarint(1) + uvarint(0) + uvarint(60) + bytes(16) + lie.ljust(44, b"\0")
    partition = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1 << 20) + tag
    topic = bytes(16) + uvarint(2) + partition
    return framed(FETCH, 17, struct.pack(">iiibii", 0, 0, GIB, 0, 0, -1) + uvarint(2) + topic + honest, flexible=True)


def fetch(
    topic: str, partitions: list[int], *, max_wait_ms: int = 0, min_bytes: int = 0, offset: int = 0,
    partition_bytes: int = 1 << 20,
) -> bytes:  # fmt: skip
    """Fetch 4 of these partitions of one topic, from `offset` on, named as often as they are listed."""
    named = [struct.pack(">iqi", partition, offset, partition_bytes) for partition in partitions]
    head = struct.pack(">iiiib", -1, max_wait_ms, min_bytes, GIB, 0)
    return framed(FETCH, 4, head + array([string(topic) + array(named)]))


def long_poll(topic: str, times: int, *, max_wait_ms: int, partitions: int = 1) -> bytes:
    """Fetch 4 that names the same partitions many times and waits for more bytes than ever come."""
    return fetch(topic, list(range(partitions)) * times, max_wait_ms=max_wait_ms, min_bytes=GIB)


def list_offsets(topic: str, partitions: int) -> bytes:
    """ListOffsets 1 of `partitions` different partitions of a topic that has fewer."""
    named = [struct.pack(">iq", partition, -1) for partition in range(partitions)]
    return framed(LIST_OFFSETS, 1, struct.pack(">i", -1) + array([string(topic) + array(named)]))


def list_offsets_by_time(topic: str, times: int) -> bytes:
    """ListOffsets 1 for timestamp 1, the same partition named `times` times."""
    one = string(topic) + array([struct.pack(">iq", 0, 1)])
    return framed(LIST_OFFSETS, 1, struct.pack(">i", -1) + array([one] * times))


def create_topics(count: int, prefix: str = "made") -> bytes:
    """CreateTopics 2 of `count` names, only to be validated."""
    topics = [string(f"{prefix}-{n:05}") + struct.pack(">ihii", 1, 1, 0, 0) for n in range(count)]
    return framed(CREATE_TOPICS, 2, array(topics) + struct.pack(">i?", 10_000, True))


def create_topic_with_assignments(partitions: int) -> bytes:
    """CreateTopics 2 of one topic whose partitions are assigned by hand to broker 1, only to be validated."""
    assigned = array([struct.pack(">iii", n, 1, 1) for n in range(partitions)])
    topic = string("assigned") + struct.pack(">ih", -1, -1) + assigned + array([])
    return framed(CREATE_TOPICS, 2, array([topic]) + struct.pack(">i?", 10_000, True))


def delete_topics(count: int, prefix: str = "gone") -> bytes:
    """DeleteTopics 1 of `count` names that do not exist."""
    return framed(
        DELETE_TOPICS, 1, array([string(f"{prefix}-{n:05}") for n in range(count)]) + struct.pack(">i", 10_000)
    )


def create_partitions(count: int, prefix: str = "gone") -> bytes:
    """CreatePartitions 1 of `count` topics that do not exist."""
    topics = [string(f"{prefix}-{n:05}") + struct.pack(">ii", 2, -1) for n in range(count)]
    return framed(CREATE_PARTITIONS, 1, array(topics) + struct.pack(">i?", 10_000, False))


def describe_configs(times: int) -> bytes:
    """DescribeConfigs 1 that names broker 1 `times` times: 8 bytes of request for some kilobytes of answer."""
    return framed(DESCRIBE_CONFIGS, 1, array([struct.pack(">b", BROKER) + string("1") + b"\xff" * 4] * times) + b"\0")


def incremental_alter_configs(count: int) -> bytes:
    """IncrementalAlterConfigs 0 of `count` topics that do not exist, each with one property, only to be validated."""
    change = array([string("retention.ms") + b"\0" + string("1000")])
    resources = [struct.pack(">b", TOPIC) + string(f"gone-{n:05}") + change for n in range(count)]
    return framed(INCREMENTAL_ALTER_CONFIGS, 0, array(resources) + b"\1")


def offset_fetch(partitions: int) -> bytes:
    """OffsetFetch 1 of `partitions` different partitions."""
    named = array([struct.pack(">i", partition) for partition in range(partitions)])
    return framed(OFFSET_FETCH, 1, string("attackers") + array([string("gone") + named]))


def offset_fetch_with_an_unknown_tag(partitions: int) -> bytes:
    """OffsetFetch 7 of `partitions` different partitions, with a tagged field behind it that no guide knows."""
    named = b"".join(struct.pack(">i", partition) for partition in range(partitions))
    topic = compact("gone") + uvarint(partitions + 1) + named + b"\0"
    unknown = uvarint(1) + uvarint(9_999) + uvarint(1) + b"x"
    return framed(OFFSET_FETCH, 7, compact("attackers") + uvarint(2) + topic + b"\0" + unknown, flexible=True)


def describe_producers(topic: str, times: int) -> bytes:
    """DescribeProducers 0 that names one partition `times` times."""
    named = uvarint(2) + compact(topic) + uvarint(times + 1) + bytes(4) * times + b"\0"
    return framed(DESCRIBE_PRODUCERS, 0, named + b"\0", flexible=True)


def write_txn_markers(topic: str, times: int) -> bytes:
    """WriteTxnMarkers 1: one marker for one partition, named `times` times."""
    named = uvarint(2) + compact(topic) + uvarint(times + 1) + bytes(4) * times + b"\0"
    marker = struct.pack(">qh?", 4_242, 0, True) + named + struct.pack(">i", 0) + b"\0"
    return framed(WRITE_TXN_MARKERS, 1, uvarint(2) + marker + b"\0", flexible=True)


def produce(topic: str, batches: bytes, *, acks: int = 1, partition: int = 0) -> bytes:
    """Produce 3 of some batches to one partition."""
    data = struct.pack(">ii", partition, len(batches)) + batches
    return framed(PRODUCE, 3, struct.pack(">hhi", -1, acks, 30_000) + array([string(topic) + array([data])]))


def half_sent(size: int, sent: int) -> bytes:
    """The size of a Produce frame and the first `sent` bytes of it: zeros behind a good header."""
    return struct.pack(">i", size) + produce("held", b"")[4:18].ljust(sent, b"\0")


def compact_array(parts: list[bytes]) -> bytes:
    """An array of a flexible version."""
    return uvarint(len(parts) + 1) + b"".join(parts)


def _topic_info(name: str, partitions: int = 0) -> bytes:
    """A TopicInfo of a streams topology, without configs."""
    return compact(name) + struct.pack(">ih", partitions, 0) + compact_array([]) + b"\0"


def _streams_heartbeat(subtopologies: list[bytes]) -> bytes:
    """StreamsGroupHeartbeat 0 of a member that joins with this topology."""
    topology = b"\1" + struct.pack(">i", 1) + compact_array(subtopologies) + b"\0"
    body = compact("streams") + compact("member") + struct.pack(">ii", 0, 0) + b"\0\0" + struct.pack(">i", 60_000)
    body += topology + compact_array([]) * 3 + compact("process") + b"\xff" + compact_array([]) + bytes(4)
    return framed(STREAMS_GROUP_HEARTBEAT, 0, body, flexible=True)


def find_coordinator() -> bytes:
    """FindCoordinator 0 of a group, upon which the broker creates __consumer_offsets."""
    return framed(FIND_COORDINATOR, 0, string("streams"))


def streams_chain(source: str, length: int) -> bytes:
    """A topology whose subtopologies write to each other in a chain. The one that reads `source` is the last."""
    chain = [
        compact(f"s{n:05}") + compact_array([compact(source)] if n == 0 else []) + compact_array([]) * 2
        + compact_array([compact(f"r{n:05}")] if n + 1 < length else [])
        + compact_array([_topic_info(f"r{n - 1:05}")] if n else []) + compact_array([]) + b"\0"
        for n in reversed(range(length))
    ]  # fmt: skip
    return _streams_heartbeat(chain)


def streams_copartition_groups(source: str, groups: int, fixed: int) -> bytes:
    """A topology with empty copartition groups and repartition topics of one partition."""
    subtopology = (
        compact("s") + compact_array([compact(source)]) + compact_array([]) * 3
        + compact_array([_topic_info(f"r{n:05}", 1) for n in range(fixed)])
        + compact_array([compact_array([]) * 3 + b"\0"] * groups) + b"\0"
    )  # fmt: skip
    return _streams_heartbeat([subtopology])


def get_telemetry_subscriptions(*, client_id: bytes = b"attack") -> bytes:
    """GetTelemetrySubscriptions 0 of a client without an instance id."""
    return framed(GET_TELEMETRY_SUBSCRIPTIONS, 0, bytes(16) + b"\0", flexible=True, client_id=client_id)


def instance_and_subscription(answer: bytes) -> tuple[bytes, bytes]:
    """Instance id and subscription id of an answer to GetTelemetrySubscriptions."""
    at = 4 + 4 + 1 + 4 + 2  # size, correlation id, tags, throttle time, error
    return answer[at : at + 16], answer[at + 16 : at + 20]


def push_telemetry(instance: bytes, subscription: bytes, metrics: bytes) -> bytes:
    """PushTelemetry 0 of metrics that are compressed with zstd."""
    body = instance + subscription + b"\0" + b"\4" + uvarint(len(metrics) + 1) + metrics + b"\0"
    return framed(PUSH_TELEMETRY, 0, body, flexible=True)


def _field(number: int, data: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    return uvarint(number << 3 | 2) + uvarint(len(data)) + data


def empty_points(count: int) -> bytes:
    """OpenTelemetry's MetricsData of one metric with so many empty points."""
    gauge = _field(1, b"a") + _field(5, b"\x0a\x00" * count)
    return _field(1, _field(2, _field(2, gauge)))


def empty_attributes(count: int) -> bytes:
    """OpenTelemetry's MetricsData of one metric whose point has so many empty attributes."""
    gauge = _field(1, b"a") + _field(5, _field(1, b"\x3a\x00" * count))
    return _field(1, _field(2, _field(2, gauge)))
