"""Who may describe and alter the configuration of a resource."""

from __future__ import annotations

from kafkalog_broker.admin.resources import ResourceType as ConfigType
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.protocol.acls import CLUSTER_NAME, REFUSALS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request

_RESOURCES = {ConfigType.TOPIC: ResourceType.TOPIC, ConfigType.GROUP: ResourceType.GROUP}
"""What is none of these belongs to the cluster."""


def check_altering(request: Request, kind: ConfigType, name: str) -> None:
    """Raises BrokerError with Kafka's text where the sender may not alter it."""
    _check(request, Operation.ALTER_CONFIGS, kind, name)


def check_describing(request: Request, kind: ConfigType, name: str) -> None:
    """Raises BrokerError with Kafka's text where the sender may not have it described."""
    _check(request, Operation.DESCRIBE_CONFIGS, kind, name)


def _check(request: Request, operation: Operation, kind: ConfigType, name: str) -> None:
    resource = _RESOURCES.get(kind, ResourceType.CLUSTER)
    if not request.may(operation, resource, CLUSTER_NAME if resource is ResourceType.CLUSTER else name):
        raise BrokerError(*REFUSALS[resource])
