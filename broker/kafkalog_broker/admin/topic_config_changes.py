"""Alter the configuration of topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kafkalog_broker.admin.config_operations import ResourceChange
from kafkalog_broker.admin.config_resources import require_topic
from kafkalog_broker.admin.registry_writes import write_registry
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.log_config import LogConfig, check_remote_storage_stays, served_topic_properties
from kafkalog_broker.config.property_list import TOPIC_PROPERTIES
from kafkalog_broker.config.property_names import unserved_note
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

_log = logging.getLogger(__name__)


def checked_topic_config(broker: Broker, change: ResourceChange) -> Mapping[str, str]:
    """Return the topic's overrides after the change, without applying them.

    Raises:
        BrokerError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST or INVALID_CONFIG.
    """
    current = require_topic(broker, change.name).configs
    overrides = change.apply_to(current, TOPIC_PROPERTIES)
    try:
        config = LogConfig.of(broker.config, overrides)
        config.check_remote_storage()
        check_remote_storage_stays(LogConfig.of(broker.config, current), config)
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_config, error.what) from None
    return overrides


async def apply_topic_configs(
    broker: Broker, overrides_by_topic: Mapping[str, Mapping[str, str]], time_slice: TimeSlice
) -> list[BrokerError | None]:
    """Save the overrides of all topics in one write and apply them to their logs.

    Returns:
        The error of each topic in the order of the mapping; None if it was altered.
    """
    outcomes = await write_registry(broker, broker.topics.set_all_configs, overrides_by_topic)
    errors: list[BrokerError | None] = []
    async for (name, overrides), outcome in time_slice.spread(zip(overrides_by_topic.items(), outcomes, strict=True)):
        if isinstance(outcome, BrokerError):
            errors.append(outcome)
            continue
        broker.logs.update_topic_config(name)
        if broker.remote is not None:
            broker.remote.topic_changed(outcome)
        unserved = unserved_note(overrides, served_topic_properties())
        _log.info("configuration of topic %s is now %.1000s%s", name, dict(overrides), unserved)
        errors.append(None)
    return errors
