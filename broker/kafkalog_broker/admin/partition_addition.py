"""Add partitions to topics. The registry and the logs are on disk before the coroutine returns."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kafkalog_broker.admin.new_partition_logs import NewLogs, create_logs, delete_created_logs
from kafkalog_broker.admin.partition_quota import Charge, charge_each, free_of_charge
from kafkalog_broker.admin.registry_writes import write_registry
from kafkalog_broker.admin.topic_validation import log_configs
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import Outcome

_log = logging.getLogger(__name__)


async def add_partitions(broker: Broker, totals: Mapping[str, int], charge: Charge = free_of_charge) -> list[Outcome]:
    """Increase the number of partitions of topics, in one write of the registry.

    Args:
        broker: Owner of the topics.
        totals: New number of partitions by topic name.
        charge: Charges the added partitions of each topic to a quota.

    Returns:
        The changed topic or the error of each element of `totals`, in order.
    """
    try:
        broker.check_not_mirrored("partitions cannot be added")
    except BrokerError as error:
        return [error] * len(totals)
    before = {name: topic.partitions for name in totals if (topic := broker.topics.get(name)) is not None}
    over_quota = await charge_each(charge, {name: totals[name] - partitions for name, partitions in before.items()})
    admitted = {name: total for name, total in totals.items() if name not in over_quota}
    registered = await write_registry(broker, broker.topics.add_all_partitions, admitted)
    log_config_of = log_configs(broker)
    new_logs = [
        NewLogs(topic, range(before[topic.name], topic.partitions), log_config_of(topic.configs))
        for topic in registered
        if isinstance(topic, Topic)
    ]
    failed = await create_logs(broker, new_logs)
    if failed:
        deleted = [
            (failure.logs.topic, failure.logs.partitions.start)
            for failure in failed
            if await delete_created_logs(broker, failure.logs)
        ]
        await broker.run_blocking(broker.topics.undo_add_partitions, deleted)
    outcomes: dict[str, Outcome] = {**dict(zip(admitted, registered, strict=True)), **over_quota}
    for failure in failed:
        topic = failure.logs.topic
        outcomes[topic.name] = failure.response_error(f"partitions cannot be added to topic {topic.name}")
    for logs in new_logs:
        topic = logs.topic
        if outcomes[topic.name] is topic:
            _log.info("topic %s has %d partitions now; it had %d", topic.name, topic.partitions, logs.partitions.start)
    return [outcomes[name] for name in totals]
