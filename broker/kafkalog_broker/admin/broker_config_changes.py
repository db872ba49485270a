"""Alter dynamic properties of this broker, or of all brokers (Kafka's `DynamicBrokerConfig`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from kafkalog_broker.admin.config_operations import ResourceChange
from kafkalog_broker.admin.config_resources import ALL_BROKERS, require_this_broker
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.broker_config import MIN_ISR, BrokerConfig, is_served
from kafkalog_broker.config.definition import ConfigError, Update
from kafkalog_broker.config.listener_security import LISTENER_PREFIX, listener_property
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.config.property_list import BROKER_PROPERTIES
from kafkalog_broker.config.property_names import unserved_note
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, run_in_slices

_log = logging.getLogger(__name__)

_THREAD_POOLS = (
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "background.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
"""Sizes of Kafka's thread pools. One change may at most double or halve each of them."""

_NOT_DYNAMIC = "Cannot update these configs dynamically"
_PER_BROKER_ONLY = "Cannot update these configs at default cluster level, broker id must be specified"
_PER_LISTENER_ONLY = "These security configs can be dynamically updated only per-listener using the listener prefix"
_NO_LISTENER_PROPERTIES = "these properties of listeners have no effect here"


async def alter_broker_config(broker: Broker, change: ResourceChange, time_slice: TimeSlice) -> None:
    """Check the change and, unless it is only validated, save and apply it.

    Raises:
        BrokerError: INVALID_REQUEST, INVALID_CONFIG or KAFKA_STORAGE_ERROR.
    """
    for_all_brokers = change.name == ALL_BROKERS
    if not for_all_brokers:
        require_this_broker(broker, change.name, subject="Node id", alternative=",")
    of_all, of_this = broker.config.dynamic_default, broker.config.dynamic_broker
    overrides = change.apply_to(of_all if for_all_brokers else of_this, BROKER_PROPERTIES)
    _check_dynamic(overrides, for_all_brokers=for_all_brokers)
    try:
        if for_all_brokers:
            config = broker.config.with_dynamic(overrides, of_this)
        else:
            config = broker.config.with_dynamic(of_all, overrides)
        async for topic in time_slice.spread(list(broker.topics)):
            if topic.configs:
                LogConfig.of(config, topic.configs)  # raises if the topic's overrides contradict the new configuration
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_request, error.what) from None
    try:
        tls = await broker.run_blocking(broker.tls.prepare, config.listener_security)
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_request, str(error)) from None
    _check_min_isr(change, overrides, for_all_brokers=for_all_brokers)
    _check_cleaner_threads(broker.config, config)
    _check_thread_pools(broker.config, config)
    if change.validate_only:
        return
    await broker.save("the change", broker.dynamic_configs.save, config.dynamic_default, config.dynamic_broker)
    broker.tls.use(tls)
    await run_in_slices(broker.updating_config(config), time_slice)
    # Only names are logged, because a value may be a password.
    names = ", ".join(sorted(overrides)) or "nothing is set"
    unserved = unserved_note(overrides, set(filter(is_served, overrides)))
    brokers = "all brokers" if for_all_brokers else f"broker {change.name}"
    _log.info("configuration of %s is changed: %s%s", brokers, names, unserved)


def _check_dynamic(overrides: Mapping[str, str], *, for_all_brokers: bool) -> None:
    """Raise BrokerError (INVALID_REQUEST) if a property cannot be changed dynamically, or not for all brokers.

    Security properties can be changed for single listeners only. Unknown properties of listeners are refused; Kafka
    accepts them for plugins.
    """
    defined = {name: BROKER_PROPERTIES[name] for name in overrides if name in BROKER_PROPERTIES}
    not_dynamic = [name for name, definition in defined.items() if definition.read_only or name.startswith("listener")]
    _refuse(_NOT_DYNAMIC, not_dynamic)
    per_broker = [name for name, definition in defined.items() if definition.update is Update.PER_BROKER]
    # Apart from cordoned.log.dirs, the properties of single brokers configure the security of listeners.
    _refuse(_PER_LISTENER_ONLY, [name for name in per_broker if not name.startswith("cordoned.")])
    _refuse(_PER_BROKER_ONLY, per_broker if for_all_brokers else ())
    prefixed = [name for name in overrides if name.startswith(LISTENER_PREFIX)]
    _refuse(_NO_LISTENER_PROPERTIES, [name for name in prefixed if listener_property(name) is None])
    _refuse(_NOT_DYNAMIC, [name for name in prefixed if BROKER_PROPERTIES[listener_property(name) or ""].read_only])
    _refuse(_PER_BROKER_ONLY, prefixed if for_all_brokers else ())


def _refuse(message: str, names: Iterable[str]) -> None:
    if names:
        raise BrokerError(ErrorCode.invalid_request, f"{message}: [{', '.join(sorted(names))}]")


def _check_min_isr(change: ResourceChange, overrides: Mapping[str, str], *, for_all_brokers: bool) -> None:
    """Keep min.insync.replicas a property of all brokers, which eligible leader replicas (KIP-966) require."""
    if for_all_brokers and MIN_ISR not in overrides:
        raise BrokerError(ErrorCode.invalid_config, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")
    if not for_all_brokers and any(changed.name == MIN_ISR for changed in change.properties):
        raise BrokerError(ErrorCode.invalid_config, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")


def _check_cleaner_threads(before: BrokerConfig, after: BrokerConfig) -> None:
    """Apply the rule of Kafka's `LogCleaner.validateReconfiguration`. Raises BrokerError (INVALID_REQUEST)."""
    current = before.log_cleaner_threads
    requested = after.log_cleaner_threads
    message = None
    if requested < 1 and requested != current:
        message = "should be at least 1"
    elif requested < current // 2:
        message = f"cannot be reduced to less than half the current value {current}"
    elif requested > current * 2:
        message = f"cannot be increased to more than double the current value {current}"
    if message is not None:
        raise BrokerError(ErrorCode.invalid_request, f"Log cleaner threads {message}")


def _check_thread_pools(before: BrokerConfig, after: BrokerConfig) -> None:
    """Apply `validateReconfiguration` of Kafka's DynamicThreadPool, DataPlaneAcceptor and DynamicRemoteLogConfig.

    Raises:
        BrokerError: INVALID_REQUEST.
    """
    for name in _THREAD_POOLS:
        current = int(before.text(name) or 0)
        requested = int(after.text(name) or 0)
        if not current // 2 <= requested <= current * 2:
            bound = "be at least half" if requested < current else "not be greater than double"
            raise BrokerError(
                ErrorCode.invalid_request,
                "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation "
                f"failed for {name}={requested}, value should {bound} the current value {current} for configuration "
                "Invalid dynamic configuration",
            )
