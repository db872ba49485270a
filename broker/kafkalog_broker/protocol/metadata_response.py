"""Nodes, topics and partitions as responses have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

OPERATIONS_NOT_ASKED_FOR = -(2**31)

ZERO_ID = UUID(int=0)


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(NamedTuple):
    """A partition in responses to Metadata and DescribeTopicPartitions, all versions; fields are named as in these."""

    partition_index: int
    leader_id: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    leader_epoch: int = 0
    offline_replicas: Sequence[int] = ()
    error_code: int = 0
    eligible_leader_replicas: Sequence[int] = ()
    last_known_elr: Sequence[int] = ()


class MetadataResponse(NamedTuple):
    brokers: Sequence[NodeEndpoint]
    topics: Sequence[TopicMetadata]
    cluster_id: str | None
    controller_id: int
    cluster_authorized_operations: int = OPERATIONS_NOT_ASKED_FOR
    throttle_time: int = 0
    error_code: int = 0


class TopicMetadata(NamedTuple):
    """Topic in them. `name` None only with an id that is not known (Metadata 12 and later)."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[PartitionMetadata]
    error_code: int = 0
    is_internal: bool = False
    topic_authorized_operations: int = OPERATIONS_NOT_ASKED_FOR
