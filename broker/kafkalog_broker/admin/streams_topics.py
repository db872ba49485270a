"""The internal topics of streams groups, repartition topics and changelogs, which are made when a member needs them
(Kafka's AutoTopicCreationManager)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kafkalog_broker.admin.topic_changes import Charge, create_topics
from kafkalog_broker.admin.topic_checks import DEFAULT, NewTopic, check_totals
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.streams.streams_group_manager import StreamsGroup
from kafkalog_broker.groups.streams.topology import TopicInfo
from kafkalog_broker.storage.topic_registry import Outcome

log = logging.getLogger(__name__)


async def create_internal_topics(
    broker: Broker, group: StreamsGroup, missing: Mapping[str, TopicInfo], charge: Charge, pause_ms: int
) -> None:
    """Make those that nobody is making. Why one could not be made is kept for `pause_ms`, and it is not tried again as
    long."""
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
        check_totals(broker, ((topic.partitions, 0) for topic in new))
        outcomes += await create_topics(broker, new, charge)
    except BrokerError as error:
        outcomes += [error] * len(new)
    finally:
        group.creating -= names
    for topic, outcome in zip(new, outcomes, strict=True):
        if isinstance(outcome, BrokerError) and outcome.code is not ErrorCode.topic_already_exists:
            log.info("group %.200r: topic %s is not created: %s", group.group_id, topic.name, outcome)
            group.failed_topics[topic.name] = outcome.what, now_ms + pause_ms
