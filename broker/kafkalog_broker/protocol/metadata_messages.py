"""Responses to Metadata, built without the classes of `api_messages` (see `fetch_messages`).

DescribeTopicPartitions and others use the structs of topics, partitions and nodes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

AUTHORIZED_OPERATIONS_OMITTED = -(2**31)
"""Authorized operations in a response whose request does not include them (KIP-430)."""

ZERO_ID = UUID(int=0)
"""Topic ID in a response for a topic without one."""


class NodeEndpoint(NamedTuple):
    """A broker with the address that is advertised to clients."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(NamedTuple):
    """A partition with the node IDs of its leader and replicas."""

    partition_index: int
    leader_id: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    leader_epoch: int = 0
    offline_replicas: Sequence[int] = ()
    error_code: int = 0
    eligible_leader_replicas: Sequence[int] = ()
    last_known_elr: Sequence[int] = ()


class TopicMetadata(NamedTuple):
    """A topic, or the error of one. `name` is None only for an unknown topic ID (from version 12 on)."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[PartitionMetadata]
    error_code: int = 0
    is_internal: bool = False
    topic_authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


class MetadataResponse(NamedTuple):
    """A whole response. The operations are those on the cluster, as a bit field."""

    brokers: Sequence[NodeEndpoint]
    topics: Sequence[TopicMetadata]
    cluster_id: str | None
    controller_id: int
    cluster_authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED
    throttle_time: int = 0
    error_code: int = 0
