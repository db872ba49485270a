"""Table of the rights that each API requires (Kafka: KafkaApis, ControllerApis)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from kafkalog_broker.protocol.request import Request


class Alternative(NamedTuple):
    """A right that suffices instead of another one. With `name` None, the right on any resource of the type does."""

    operation: Operation
    resource: ResourceType
    name: str | None


@dataclass(frozen=True, slots=True)
class Right:
    """A right on a resource.

    Attributes:
        name_field: Field of the request with the name of the resource; None for the cluster, and for rights on each
            resource that a request names.
        alternative: A right that suffices instead; its denial is not logged.
    """

    operation: Operation
    resource: ResourceType
    name_field: str | None = None
    alternative: Alternative | None = None


RequestRights = tuple[Right, ...]
"""Rights without which a whole request is denied."""


@dataclass(frozen=True, slots=True)
class ApiRights:
    """Rights that an API requires. The error of a denial depends on the resource type (`acls.DENIALS`).

    Attributes:
        on_request: Rights without which a whole request is denied.
        on_resource: Right on each resource that a request names. A resource without it gets an error in the response,
            or is left out.
    """

    on_request: RequestRights | Callable[[Request], RequestRights] = ()
    on_resource: Right | None = None

    def of_request(self, request: Request) -> RequestRights:
        """Return the rights without which this request is denied."""
        return self.on_request(request) if callable(self.on_request) else self.on_request


def _on_cluster(operation: Operation, *api_keys: int) -> dict[int, ApiRights]:
    """Return the same right on the cluster for several APIs."""
    return dict.fromkeys(api_keys, ApiRights((Right(operation, ResourceType.CLUSTER),)))


def _on_each(operation: Operation, resource: ResourceType, or_on_cluster: Operation | None = None) -> ApiRights:
    """Return the right on each named resource, for which an operation on the cluster may be an alternative."""
    alternative = None
    if or_on_cluster is not None:
        alternative = Alternative(or_on_cluster, ResourceType.CLUSTER, CLUSTER_NAME)
    return ApiRights(on_resource=Right(operation, resource, alternative=alternative))


def _init_producer_id(request: Request) -> RequestRights:
    if request.entity.transactional_id is not None:
        return (_WRITE_TRANSACTIONAL_ID,)
    alternative = Alternative(Operation.WRITE, ResourceType.TOPIC, None)
    return (Right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, alternative=alternative),)


def _add_partitions_to_txn(request: Request) -> RequestRights:
    if request.version >= 4:
        return (Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)
    return (Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "v3_and_below_transactional_id"),)


_READ_GROUP = Right(Operation.READ, ResourceType.GROUP, "group_id")
_DELETE_GROUP = Right(Operation.DELETE, ResourceType.GROUP, "group_id")
_WRITE_TRANSACTIONAL_ID = Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")
_READ_TOPIC = Right(Operation.READ, ResourceType.TOPIC)
_WRITE_TOPIC = Right(Operation.WRITE, ResourceType.TOPIC)

RIGHTS: Mapping[int, ApiRights] = {
    # Produce; with transactional batches also WRITE TRANSACTIONAL_ID
    0: ApiRights(on_resource=_WRITE_TOPIC),
    # Fetch; followers need CLUSTER_ACTION CLUSTER instead
    1: ApiRights(on_resource=_READ_TOPIC),
    # ListOffsets
    2: _on_each(Operation.DESCRIBE, ResourceType.TOPIC),
    # Metadata; to create a topic, CREATE TOPIC or CREATE CLUSTER
    3: _on_each(Operation.DESCRIBE, ResourceType.TOPIC),
    # OffsetCommit
    8: ApiRights((_READ_GROUP,), _READ_TOPIC),
    # OffsetFetch; and DESCRIBE TOPIC for each topic
    9: _on_each(Operation.DESCRIBE, ResourceType.GROUP),
    # FindCoordinator: DESCRIBE GROUP or DESCRIBE TRANSACTIONAL_ID for each key
    10: ApiRights(),
    # JoinGroup, Heartbeat, LeaveGroup, SyncGroup
    **dict.fromkeys((11, 12, 13, 14), ApiRights((_READ_GROUP,))),
    # DescribeGroups
    15: _on_each(Operation.DESCRIBE, ResourceType.GROUP),
    # ListGroups, whose response leaves denied groups out
    16: _on_each(Operation.DESCRIBE, ResourceType.GROUP, or_on_cluster=Operation.DESCRIBE),
    # SaslHandshake, ApiVersions, SaslAuthenticate
    **dict.fromkeys((17, 18, 36), ApiRights()),
    # CreateTopics; the response has the topic's configuration only with DESCRIBE_CONFIGS TOPIC
    19: _on_each(Operation.CREATE, ResourceType.TOPIC, or_on_cluster=Operation.CREATE),
    # DeleteTopics; by name also DESCRIBE TOPIC
    20: _on_each(Operation.DELETE, ResourceType.TOPIC, or_on_cluster=Operation.DELETE),
    # DeleteRecords
    21: _on_each(Operation.DELETE, ResourceType.TOPIC),
    # InitProducerId: WRITE TRANSACTIONAL_ID; without an ID, IDEMPOTENT_WRITE CLUSTER or WRITE on any TOPIC
    22: ApiRights(_init_producer_id),
    # OffsetForLeaderEpoch
    23: _on_each(Operation.DESCRIBE, ResourceType.TOPIC, or_on_cluster=Operation.CLUSTER_ACTION),
    # AddPartitionsToTxn: WRITE TRANSACTIONAL_ID; from version 4 on CLUSTER_ACTION CLUSTER
    24: ApiRights(_add_partitions_to_txn, _WRITE_TOPIC),
    # AddOffsetsToTxn
    25: ApiRights((_WRITE_TRANSACTIONAL_ID, _READ_GROUP)),
    # EndTxn
    26: ApiRights((_WRITE_TRANSACTIONAL_ID,)),
    # WriteTxnMarkers
    27: ApiRights(
        (
            Right(
                Operation.CLUSTER_ACTION,
                ResourceType.CLUSTER,
                alternative=Alternative(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME),
            ),
        )
    ),
    # TxnOffsetCommit
    28: ApiRights((_WRITE_TRANSACTIONAL_ID, _READ_GROUP), _READ_TOPIC),
    # DescribeAcls, DescribeLogDirs, ListPartitionReassignments, DescribeUserScramCredentials, DescribeQuorum
    **_on_cluster(Operation.DESCRIBE, 29, 35, 46, 50, 55),
    # CreateAcls, DeleteAcls, AlterReplicaLogDirs, ElectLeaders, AlterPartitionReassignments,
    # AlterUserScramCredentials, UpdateFeatures, UnregisterBroker, AddRaftVoter, RemoveRaftVoter
    **_on_cluster(Operation.ALTER, 30, 31, 34, 43, 45, 51, 57, 64, 80, 81),
    # DescribeConfigs: DESCRIBE_CONFIGS on each TOPIC and GROUP; on the CLUSTER for all other resources
    32: ApiRights(),
    # AlterConfigs, IncrementalAlterConfigs: ALTER_CONFIGS on each TOPIC and GROUP; on the CLUSTER for all others
    **dict.fromkeys((33, 44), ApiRights()),
    # CreatePartitions
    37: _on_each(Operation.ALTER, ResourceType.TOPIC),
    # CreateDelegationToken; for another owner CREATE_TOKENS USER
    38: ApiRights(),
    # RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken
    **dict.fromkeys((39, 40, 41), ApiRights()),
    # DeleteGroups
    42: _on_each(Operation.DELETE, ResourceType.GROUP),
    # OffsetDelete
    47: ApiRights((_DELETE_GROUP,), _READ_TOPIC),
    # DescribeClientQuotas, ListConfigResources
    **_on_cluster(Operation.DESCRIBE_CONFIGS, 48, 74),
    # AlterClientQuotas
    **_on_cluster(Operation.ALTER_CONFIGS, 49),
    # DescribeCluster; the response has the authorized operations only with DESCRIBE CLUSTER
    60: ApiRights(),
    # DescribeProducers
    61: _on_each(Operation.READ, ResourceType.TOPIC),
    # DescribeTransactions, whose response leaves out topics without DESCRIBE TOPIC
    65: _on_each(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    # ListTransactions, whose response leaves denied IDs out
    66: _on_each(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    # ConsumerGroupHeartbeat; DESCRIBE TOPIC for each topic that is subscribed to by name
    68: ApiRights((_READ_GROUP,)),
    # ConsumerGroupDescribe; and DESCRIBE TOPIC for each topic that is assigned to its members
    69: _on_each(Operation.DESCRIBE, ResourceType.GROUP),
    # GetTelemetrySubscriptions, PushTelemetry
    **dict.fromkeys((71, 72), ApiRights()),
    # DescribeTopicPartitions
    75: _on_each(Operation.DESCRIBE, ResourceType.TOPIC),
    # ShareGroupHeartbeat; DESCRIBE TOPIC for each topic that is subscribed to
    76: ApiRights((_READ_GROUP,)),
    # ShareGroupDescribe; and DESCRIBE TOPIC for each topic that is assigned to its members
    77: _on_each(Operation.DESCRIBE, ResourceType.GROUP),
    # ShareFetch, ShareAcknowledge, AlterShareGroupOffsets
    **dict.fromkeys((78, 79, 91), ApiRights((_READ_GROUP,), _READ_TOPIC)),
    # InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState,
    # ReadShareGroupStateSummary
    **_on_cluster(Operation.CLUSTER_ACTION, 83, 84, 85, 86, 87),
    # StreamsGroupHeartbeat; DESCRIBE TOPIC for the topology's topics, CREATE CLUSTER or TOPIC for internal ones
    88: ApiRights((_READ_GROUP,)),
    # StreamsGroupDescribe; and DESCRIBE TOPIC for each topic of the topology
    89: _on_each(Operation.DESCRIBE, ResourceType.GROUP),
    # DescribeShareGroupOffsets; and DESCRIBE TOPIC for each topic
    90: _on_each(Operation.DESCRIBE, ResourceType.GROUP),
    # DeleteShareGroupOffsets; and READ TOPIC for each topic
    92: ApiRights((_DELETE_GROUP,)),
}
"""Rights by API key. Handlers check the rights that only a comment mentions, because those depend on the request."""
