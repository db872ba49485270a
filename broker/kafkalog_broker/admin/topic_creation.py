"""Create topics. The registry and the logs are on disk before a coroutine of this file returns."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkalog_broker.admin.new_partition_logs import NewLogs, create_logs, delete_created_logs
from kafkalog_broker.admin.partition_quota import Charge, free_of_charge
from kafkalog_broker.admin.registry_writes import write_registry
from kafkalog_broker.admin.topic_validation import NewTopic, log_configs, validate_new_topic, validate_total_partitions
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.log_config import LogConfig, served_topic_properties
from kafkalog_broker.config.property_names import unserved_note
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import Outcome
from kafkalog_spark.format.names import is_internal, metrics_name
from kafkalog_spark.format.partition_metadata import new_uuid

_log = logging.getLogger(__name__)


async def create_topics(
    broker: Broker, new_topics: Sequence[NewTopic], charge: Charge = free_of_charge, *, validate_only: bool = False
) -> list[Outcome]:
    """Create topics with empty logs, all in one write of the registry.

    Args:
        broker: Owner of the topics.
        new_topics: Topics to create, each name at most once.
        charge: Charges the partitions of each topic to a quota.
        validate_only: Check the topics without creating them.

    Returns:
        The created topic or the error of each element of `new_topics`, in order.
    """
    time_slice = TimeSlice()
    topics, configs, outcomes = await _validate(
        broker, new_topics, free_of_charge if validate_only else charge, time_slice, validate_only=validate_only
    )
    if validate_only:
        outcomes |= {topic.name: topic for topic in topics}
        return [outcomes[new.name] for new in new_topics]
    for topic in topics:
        # Wait until the directories of a deleted topic with this name are renamed.
        while (renamed := broker.directory_renames.get(topic.name)) is not None:
            await renamed.wait()
    registered = await write_registry(broker, broker.topics.create_all, topics)
    outcomes |= {topic.name: outcome for topic, outcome in zip(topics, registered, strict=True)}
    new_logs = [
        NewLogs(topic, range(topic.partitions), configs[topic.name]) for topic in registered if isinstance(topic, Topic)
    ]
    failed = await create_logs(broker, new_logs)
    if failed:
        deleted = [failure.logs.topic for failure in failed if await delete_created_logs(broker, failure.logs)]
        await broker.run_blocking(broker.topics.delete_registered, deleted)
        await broker.run_blocking(broker.logs.forget_deleted, deleted)  # their logs are already deleted
        for failure in failed:
            name = failure.logs.topic.name
            outcomes[name] = failure.response_error(f"topic {name} cannot be created")
    async for logs in time_slice.spread(new_logs):
        if outcomes[logs.topic.name] is logs.topic:
            unserved = unserved_note(logs.topic.configs, served_topic_properties())
            _log.info(
                "topic %s is created with %d partitions and %.1000s%s",
                logs.topic.name, logs.topic.partitions, logs.topic.configs or "default settings", unserved,
            )  # fmt: skip
    return [outcomes[new.name] for new in new_topics]


async def ensure_topic(broker: Broker, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
    """Return the internal topic with this name, and create it first if it does not exist.

    Concurrent calls create it once. It has one replica, whatever default.replication.factor is. Raises BrokerError.
    """
    async with broker.internal_topic_lock:
        topic = broker.topics.get(name)
        if topic is not None:
            return topic
        new = NewTopic(name, partitions, 1, configs=configs)
        validate_total_partitions(broker, [new])
        (created,) = await create_topics(broker, [new])
    if isinstance(created, BrokerError):
        raise created
    return created


class _ValidatedTopics(NamedTuple):
    """Valid topics with the configuration of their logs by name, and the errors of all others."""

    topics: list[Topic]
    configs: dict[str, LogConfig]
    outcomes: dict[str, Outcome]


async def _validate(
    broker: Broker, new_topics: Sequence[NewTopic], charge: Charge, time_slice: TimeSlice, *, validate_only: bool
) -> _ValidatedTopics:
    valid_topics = _ValidatedTopics([], {}, {})
    # Of two names that collide in metrics the registry refuses the second, which is therefore not charged.
    charged: set[str] = set()
    log_config_of = log_configs(broker)
    async for new in time_slice.spread(new_topics):
        try:
            if not (validate_only or is_internal(new.name)):
                broker.check_not_mirrored(f"topic {new.name} cannot be created")
            valid = validate_new_topic(broker, new, log_config_of)
            if metrics_name(new.name) not in charged:
                charge(valid.partitions)
                charged.add(metrics_name(new.name))
            overrides = {name: value for name, value in new.configs.items() if value is not None}
            valid_topics.topics.append(Topic(new.name, new_uuid(), valid.partitions, overrides))
            valid_topics.configs[new.name] = valid.config
        except BrokerError as error:
            valid_topics.outcomes[new.name] = error
    return valid_topics
