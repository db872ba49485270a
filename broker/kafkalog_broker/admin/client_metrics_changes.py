"""Alter subscriptions to client metrics (KIP-714)."""

from __future__ import annotations

import logging

from kafkalog_broker.admin.config_operations import ResourceChange
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.dynamic_configs import CLIENT_METRICS
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.telemetry.subscriptions import MAX_SUBSCRIPTIONS, check_subscription

_log = logging.getLogger(__name__)


async def alter_client_metrics(broker: Broker, change: ResourceChange) -> None:
    """Check the change and, unless it is only validated, save and apply it.

    Raises:
        BrokerError: POLICY_VIOLATION for a subscription beyond MAX_SUBSCRIPTIONS, INVALID_REQUEST, INVALID_CONFIG or
            KAFKA_STORAGE_ERROR.
    """
    subscriptions = broker.dynamic_configs.resources[CLIENT_METRICS]
    if change.name not in subscriptions and len(subscriptions) >= MAX_SUBSCRIPTIONS:
        raise BrokerError(
            ErrorCode.policy_violation,
            f"There are {len(subscriptions)} subscriptions to client metrics, and at most {MAX_SUBSCRIPTIONS} are "
            "allowed: delete one first.",
        )
    # As in Kafka, APPEND and SUBTRACT are refused: without definitions, no property counts as a list.
    overrides = change.apply_to(subscriptions.get(change.name, {}), definitions={})
    try:
        check_subscription(change.name, overrides)
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_config, error.what) from None
    if not change.validate_only:
        await broker.save("the change", broker.dynamic_configs.save_resource, CLIENT_METRICS, change.name, overrides)
        _log.info("configuration of %s %.200s is now %.1000s", CLIENT_METRICS, change.name, overrides)
