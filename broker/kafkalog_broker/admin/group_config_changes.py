"""Alter the configuration of a group (KIP-848, KIP-932)."""

from __future__ import annotations

import logging

from kafkalog_broker.admin.config_operations import ResourceChange
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.dynamic_configs import GROUPS
from kafkalog_broker.config.group_properties import GROUP_PROPERTIES, check_group_properties
from kafkalog_broker.errors import BrokerError, ErrorCode

_log = logging.getLogger(__name__)


async def alter_group_config(broker: Broker, change: ResourceChange) -> None:
    """Check the change and, unless it is only validated, save and apply it.

    Raises:
        BrokerError: INVALID_REQUEST, INVALID_CONFIG or KAFKA_STORAGE_ERROR.
    """
    if not change.name:
        raise BrokerError(ErrorCode.invalid_request, "Default group resources are not allowed.")
    overrides = change.apply_to(broker.dynamic_configs.group_overrides(change.name), GROUP_PROPERTIES)
    try:
        check_group_properties(overrides, config=broker.config)
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_config, error.what) from None
    if not change.validate_only:
        await broker.save("the change", broker.dynamic_configs.save_resource, GROUPS, change.name, overrides)
        _log.info("configuration of %s %.200s is now %.1000s", GROUPS, change.name, overrides)
