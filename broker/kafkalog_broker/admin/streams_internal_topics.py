"""Create the internal topics of a streams group (Kafka: `AutoTopicCreationManager`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kafkalog_broker.admin.partition_quota import Charge
from kafkalog_broker.admin.topic_creation import create_topics
from kafkalog_broker.admin.topic_validation import DEFAULT, NewTopic, validate_total_partitions
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.streams.streams_group import CreationFailure, StreamsGroup
from kafkalog_broker.groups.streams.topology import TopicInfo
from kafkalog_broker.storage.topic_registry import Outcome

_log = logging.getLogger(__name__)


async def create_internal_topics(
    broker: Broker, group: StreamsGroup, missing: Mapping[str, TopicInfo], charge: Charge, pause_ms: int
) -> None:
    """Create the missing topics of a group, except those that another request is creating.

    Args:
        broker: Owner of the topics.
        group: Group that needs them. It keeps the error of a topic that cannot be created.
        missing: Topics by name.
        charge: Charges the partitions of each topic to a quota.
        pause_ms: Time for which the group keeps an error, and the topic is not created again.
    """
    now_ms = broker.clock.now_ms()
    new = [
        NewTopic(topic.name, topic.partitions, topic.replication_factor or DEFAULT, configs=dict(topic.topic_configs))
        for topic in missing.values()
        if topic.name not in group.creating and not group.creation_failures([topic.name], now_ms)
    ]
    if not new:
        return
    names = {topic.name for topic in new}
    group.creating |= names
    outcomes: list[Outcome] = []
    try:
        validate_total_partitions(broker, new)
        outcomes += await create_topics(broker, new, charge)
    except BrokerError as error:
        outcomes += [error] * len(new)
    finally:
        group.creating -= names
    for topic, outcome in zip(new, outcomes, strict=True):
        if isinstance(outcome, BrokerError) and outcome.code is not ErrorCode.topic_already_exists:
            _log.info("group %.200r: topic %s is not created: %s", group.group_id, topic.name, outcome)
            group.failed_topics[topic.name] = CreationFailure(outcome.what, now_ms + pause_ms)
