"""Resources whose configuration clients describe and alter: their types, existence and required rights."""

from __future__ import annotations

import enum

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, DENIALS, Operation, ResourceType
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.storage.topic import Topic, check_topic_name

ALL_BROKERS = ""
"""Resource name of the configuration that all brokers share."""


class ConfigResourceType(enum.IntEnum):
    """Kafka's `ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_RIGHTS_BY_RESOURCE = {ConfigResourceType.TOPIC: ResourceType.TOPIC, ConfigResourceType.GROUP: ResourceType.GROUP}
"""Resource types whose configuration has rights of its own. All others need the right on the cluster."""


def known_resource_type(number: int) -> ConfigResourceType | None:
    """Return the resource type with this number, or None if Kafka 4.3 does not have it."""
    return ConfigResourceType(number) if number in ConfigResourceType._value2member_map_ else None


def authorize_config(request: Request, operation: Operation, resource_type: ConfigResourceType, name: str) -> None:
    """Raise BrokerError, with Kafka's message, if the sender may not perform `operation` on the configuration."""
    resource = _RIGHTS_BY_RESOURCE.get(resource_type, ResourceType.CLUSTER)
    if not request.may(operation, resource, CLUSTER_NAME if resource is ResourceType.CLUSTER else name):
        raise BrokerError(*DENIALS[resource])


def require_topic(broker: Broker, name: str, message: str = "") -> Topic:
    """Return the topic with this name.

    Args:
        broker: Owner of the topic.
        name: Topic name.
        message: Error message for a missing topic instead of Kafka's usual one.

    Raises:
        BrokerError: INVALID_TOPIC_EXCEPTION for an invalid name, UNKNOWN_TOPIC_OR_PARTITION for a missing topic.
    """
    topic = broker.topics.get(name)
    if topic is None:
        check_topic_name(name)
        raise BrokerError(ErrorCode.unknown_topic_or_partition, message or f"The topic '{name}' does not exist.")
    return topic


def require_this_broker(broker: Broker, name: str, *, subject: str = "Broker id", alternative: str = "") -> None:
    """Raise BrokerError (INVALID_REQUEST) unless `name` is the ID of this broker.

    `subject` and `alternative` are parts of Kafka's message, which differs between APIs: the kind of name that it
    expects, and another accepted name.
    """
    try:
        node_id = int(name)
    except ValueError:
        raise BrokerError(ErrorCode.invalid_request, f"{subject} must be an integer, but it is: {name}") from None
    if node_id != broker.node_id:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {broker.node_id}{alternative} but received {name}",
        )
