"""Table of the rights that each API requires (Kafka: KafkaApis, ControllerApis)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from kafkalog_broker.protocol.request import Request

Cluster = tuple[Operation, ResourceType, str]
"""An operation on the cluster: operation, resource type, name."""

_O, _R = Operation, ResourceType


@dataclass(frozen=True, slots=True)
class Right:
    """A right on a resource.

    Attributes:
        of: For rights that a whole request requires, the request's field with the resource's name; None for the
            cluster.
        unless: A right that suffices instead; its refusal is not logged.
    """

    operation: Operation
    resource: ResourceType
    of: str | None = None
    unless: Cluster | tuple[Operation, ResourceType, None] | None = None


Whole = tuple[Right, ...]
"""Rights that a whole request requires."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Rights of an API. The error of a refusal depends on the resource (`acls.DENIALS`).

    Attributes:
        whole: Rights that the whole request requires.
        each: Right on each resource that the request names; a refused one gets an error or is left out of the response.
    """

    whole: Whole | Callable[[Request], Whole] = ()
    each: Right | None = None

    def of(self, request: Request) -> Whole:
        """Return the rights that a whole request requires."""
        return self.whole(request) if callable(self.whole) else self.whole


def cluster(operation: Operation) -> Cluster:
    """Return an operation on the cluster."""
    return operation, _R.CLUSTER, CLUSTER_NAME


def _on_cluster(operation: Operation, *keys: int) -> dict[int, Rights]:
    return dict.fromkeys(keys, Rights((Right(operation, _R.CLUSTER),)))


def _each(operation: Operation, resource: ResourceType, unless: Operation | None = None) -> Rights:
    return Rights(each=Right(operation, resource, None, None if unless is None else cluster(unless)))


_READ_GROUP = Right(_O.READ, _R.GROUP, "group_id")
_WRITE_ID = Right(_O.WRITE, _R.TRANSACTIONAL_ID, "transactional_id")
_TOPIC = {operation: Right(operation, _R.TOPIC) for operation in Operation}


def _init_producer_id(request: Request) -> Whole:
    if request.entity.transactional_id is not None:
        return (_WRITE_ID,)
    return (Right(_O.IDEMPOTENT_WRITE, _R.CLUSTER, None, (_O.WRITE, _R.TOPIC, None)),)


def _add_partitions(request: Request) -> Whole:
    if request.version >= 4:
        return (Right(_O.CLUSTER_ACTION, _R.CLUSTER),)
    return (Right(_O.WRITE, _R.TRANSACTIONAL_ID, "v3_and_below_transactional_id"),)


RIGHTS: Mapping[int, Rights] = {
    **dict.fromkeys((17, 18, 36, 39, 40, 41, 71, 72), Rights()),
    **_on_cluster(_O.ALTER, 30, 31, 34, 43, 45, 51, 57, 64, 80, 81),
    **_on_cluster(_O.DESCRIBE, 29, 35, 46, 50, 55),
    **_on_cluster(_O.ALTER_CONFIGS, 49),
    **_on_cluster(_O.DESCRIBE_CONFIGS, 48, 74),
    **_on_cluster(_O.CLUSTER_ACTION, 83, 84, 85, 86, 87),
    **dict.fromkeys((11, 12, 13, 14), Rights((_READ_GROUP,))),
    **dict.fromkeys((78, 79, 91), Rights((_READ_GROUP,), _TOPIC[_O.READ])),
    0: Rights(each=_TOPIC[_O.WRITE]),  # with transactional batches also WRITE TRANSACTIONAL_ID
    1: Rights(each=_TOPIC[_O.READ]),  # followers: CLUSTER_ACTION CLUSTER instead
    2: Rights(each=_TOPIC[_O.DESCRIBE]),
    3: Rights(each=_TOPIC[_O.DESCRIBE]),  # to create one: CREATE TOPIC or CREATE CLUSTER
    8: Rights((_READ_GROUP,), _TOPIC[_O.READ]),
    9: Rights(each=Right(_O.DESCRIBE, _R.GROUP)),  # and DESCRIBE TOPIC for each topic
    10: Rights(),  # DESCRIBE GROUP or DESCRIBE TRANSACTIONAL_ID for each key
    15: _each(_O.DESCRIBE, _R.GROUP),
    16: _each(_O.DESCRIBE, _R.GROUP, _O.DESCRIBE),  # refused groups are left out
    19: _each(_O.CREATE, _R.TOPIC, _O.CREATE),  # DESCRIBE_CONFIGS TOPIC to be shown its configuration
    20: _each(_O.DELETE, _R.TOPIC, _O.DELETE),  # by name DESCRIBE TOPIC too
    21: _each(_O.DELETE, _R.TOPIC),
    22: Rights(_init_producer_id),  # WRITE TRANSACTIONAL_ID; without an id IDEMPOTENT_WRITE CLUSTER or WRITE some TOPIC
    23: _each(_O.DESCRIBE, _R.TOPIC, _O.CLUSTER_ACTION),
    24: Rights(_add_partitions, _TOPIC[_O.WRITE]),  # WRITE TRANSACTIONAL_ID; from version 4 on CLUSTER_ACTION CLUSTER
    25: Rights((_WRITE_ID, _READ_GROUP)),
    26: Rights((_WRITE_ID,)),
    27: Rights((Right(_O.CLUSTER_ACTION, _R.CLUSTER, None, cluster(_O.ALTER)),)),
    28: Rights((_WRITE_ID, _READ_GROUP), _TOPIC[_O.READ]),
    32: Rights(),  # DESCRIBE_CONFIGS of each TOPIC and GROUP; of the CLUSTER for everything else
    33: Rights(),  # ALTER_CONFIGS of each TOPIC and GROUP; of the CLUSTER for everything else
    37: _each(_O.ALTER, _R.TOPIC),
    38: Rights(),  # for another owner CREATE_TOKENS USER
    42: _each(_O.DELETE, _R.GROUP),
    44: Rights(),  # as AlterConfigs
    47: Rights((Right(_O.DELETE, _R.GROUP, "group_id"),), _TOPIC[_O.READ]),
    60: Rights(),  # authorized operations with DESCRIBE CLUSTER only
    61: _each(_O.READ, _R.TOPIC),
    65: _each(_O.DESCRIBE, _R.TRANSACTIONAL_ID),  # topics without DESCRIBE TOPIC are left out
    66: _each(_O.DESCRIBE, _R.TRANSACTIONAL_ID),  # refused IDs are left out
    68: Rights((_READ_GROUP,)),  # DESCRIBE TOPIC for each topic that is subscribed to by its name
    69: _each(_O.DESCRIBE, _R.GROUP),  # and DESCRIBE TOPIC for each topic that its members are assigned
    75: _each(_O.DESCRIBE, _R.TOPIC),
    76: Rights((_READ_GROUP,)),  # DESCRIBE TOPIC for each topic it subscribes to
    77: _each(_O.DESCRIBE, _R.GROUP),  # and DESCRIBE TOPIC for each topic that is assigned
    88: Rights((_READ_GROUP,)),  # DESCRIBE TOPIC for the topology's topics; CREATE CLUSTER or TOPIC for internal ones
    89: _each(_O.DESCRIBE, _R.GROUP),  # and DESCRIBE TOPIC for each topic of the topology
    90: Rights(each=Right(_O.DESCRIBE, _R.GROUP)),  # and DESCRIBE TOPIC for each topic
    92: Rights((Right(_O.DELETE, _R.GROUP, "group_id"),)),  # and READ TOPIC for each topic
}
