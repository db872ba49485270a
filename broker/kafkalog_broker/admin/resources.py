"""Resources that configuration belongs to: a topic, this broker, all brokers, the loggers."""

from __future__ import annotations

import enum

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.topic_registry import check_topic_name
from kafkalog_broker.storage.topics_file import Topic

ALL_BROKERS = ""


class ResourceType(enum.IntEnum):
    """ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def resource_type(number: int) -> ResourceType | None:
    """None for a number that no release up to 4.3 knows."""
    return ResourceType(number) if number in ResourceType._value2member_map_ else None


def known_topic(broker: Broker, name: str, what: str = "") -> Topic:
    """Raises BrokerError: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION with the text `what`."""
    check_topic_name(name)
    topic = broker.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, what or f"The topic '{name}' does not exist.")
    return topic


def check_broker(broker: Broker, name: str, *, kind: str = "Broker id", or_all: str = "") -> None:
    """Raises BrokerError (INVALID_REQUEST) for a name that is not this broker's."""
    try:
        node = int(name)
    except ValueError:
        raise BrokerError(ErrorCode.invalid_request, f"{kind} must be an integer, but it is: {name}") from None
    if node != broker.node_id:
        raise BrokerError(
            ErrorCode.invalid_request, f"Unexpected broker id, expected {broker.node_id}{or_all} but received {name}"
        )
