"""Changing configuration: what AlterConfigs and IncrementalAlterConfigs ask for becomes a new set of overrides, on disk
and in force for all logs before it is answered. A request that changes many topics is one write."""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from kafkalog_broker.admin.config_listing import (
    ALL_BROKERS,
    ROOT,
    ConfigResourceType,
    check_broker,
    check_level,
    check_rights,
    known_topic,
    resource_type,
    set_level,
)
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.broker_config import MIN_ISR, BrokerConfig, is_served
from kafkalog_broker.config.definition import (
    BROKER_PROPERTIES,
    TOPIC_PROPERTIES,
    ConfigError,
    Property,
    PropertyType,
    Update,
)
from kafkalog_broker.config.dynamic_configs import CLIENT_METRICS, GROUPS
from kafkalog_broker.config.group_properties import GROUP_PROPERTIES, check_group_properties
from kafkalog_broker.config.listener_security import LISTENER_PREFIX, listener_property
from kafkalog_broker.config.log_config import LogConfig, check_remote_storage_stays, served_topic_properties
from kafkalog_broker.config.properties import note_of_unserved
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import Operation
from kafkalog_broker.protocol.api_registry import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, run_in_slices
from kafkalog_broker.storage.topic_registry import Outcome as Changed
from kafkalog_broker.telemetry.subscriptions import MAX_SUBSCRIPTIONS, check_subscription

_log = logging.getLogger(__name__)


class ConfigOperation(enum.IntEnum):
    """AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


THREAD_POOLS = (
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
"""Sizes of Kafka's pools of threads: one change may at most double or halve them."""

Change = tuple[str, ConfigOperation, str | None]
Outcome = tuple[ErrorCode, str | None]
ALTER_CONFIGS = 33  # what it does not set is removed


async def alter_each(request: Request, broker: Broker) -> list[Outcome]:
    """Carry out AlterConfigs or IncrementalAlterConfigs resource by resource: what became of each, in order. One that
    fails says nothing of the others. All topics are changed together, at the end."""
    asked, turn = request.entity, TimeSlice()
    outcomes: list[Outcome] = []
    topics: dict[str, Mapping[str, str]] = {}
    places: list[int] = []  # of the topics' outcomes
    times = Counter((one.resource_type, one.resource_name) for one in asked.resources)
    async with broker.altering:  # one request at a time: a change begins with what is set now
        async for resource in turn.spread(asked.resources):
            number, name = resource.resource_type, resource.resource_name
            try:
                kind = resource_type(number)
                if times[number, name] > 1:
                    raise BrokerError(ErrorCode.invalid_request, "Each resource must appear at most once.")
                if kind is None:
                    raise BrokerError(ErrorCode.invalid_request, f"Unknown resource type {number}")
                check_rights(request, Operation.ALTER_CONFIGS, kind, name)
                overrides = await _altered(
                    broker, kind, name, _changes(resource), turn, replace=request.api_key == ALTER_CONFIGS,
                    validate_only=asked.validate_only,
                )  # fmt: skip
                if kind is ConfigResourceType.TOPIC and not asked.validate_only:
                    topics[name] = overrides
                    places.append(len(outcomes))
                outcomes.append((ErrorCode.none, None))
            except BrokerError as error:
                outcomes.append((error.code, error.what))
        if topics:
            for place, outcome in zip(places, await _apply_to_topics(broker, topics, turn), strict=True):
                outcomes[place] = outcome
    return outcomes


def _changes(resource: Any) -> list[Change]:
    changes = []
    for config in resource.configs:
        operation = getattr(config, "config_operation", ConfigOperation.SET)
        if operation not in ConfigOperation._value2member_map_:
            raise BrokerError(ErrorCode.invalid_request, f"Unknown operation {operation} for {config.name}")
        changes.append((config.name, ConfigOperation(operation), config.value))
    return changes


async def _altered(
    broker: Broker, kind: ConfigResourceType, name: str, changes: list[Change], turn: TimeSlice, *, replace: bool,
    validate_only: bool,
) -> Mapping[str, str]:  # fmt: skip
    """The resource's new overrides, in force but for a topic's and where they are only validated. Raises BrokerError:
    UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, INVALID_REQUEST, KAFKA_STORAGE_ERROR."""
    if kind is ConfigResourceType.BROKER_LOGGER:
        check_broker(broker, name)
        if replace:
            raise BrokerError(ErrorCode.invalid_request, f"Unsupported resource type {kind.name}")
        levels = _levels(changes)
        for logger, level in {} if validate_only else levels.items():
            set_level(logger, level)
        return {}
    if kind is ConfigResourceType.BROKER:
        return await _broker_altered(broker, name, changes, turn, replace=replace, validate_only=validate_only)
    check: Callable[[Mapping[str, str]], object]
    known: Mapping[str, Property] = {}
    kept_as = None
    if kind is ConfigResourceType.TOPIC:
        own, known = known_topic(broker, name).configs, TOPIC_PROPERTIES
        check = partial(_check_topic, broker.config, own)
    elif kind is ConfigResourceType.GROUP:
        if not name:
            raise BrokerError(ErrorCode.invalid_request, "Default group resources are not allowed.")
        own, known, kept_as = broker.dynamic_configs.of_group(name), GROUP_PROPERTIES, GROUPS
        check = partial(check_group_properties, config=broker.config)
    else:  # nothing can be appended to the lists of client metrics, as in Kafka
        subscriptions, kept_as = broker.dynamic_configs.of[CLIENT_METRICS], CLIENT_METRICS
        if name not in subscriptions and len(subscriptions) >= MAX_SUBSCRIPTIONS:
            what = (
                f"There are {len(subscriptions)} subscriptions to client metrics, at most {MAX_SUBSCRIPTIONS} are kept"
            )
            raise BrokerError(ErrorCode.policy_violation, what)
        own = subscriptions.get(name, {})
        check = partial(check_subscription, name)
    overrides = _changed({} if replace else own, changes, known)
    try:
        check(overrides)
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_config, error.what) from None
    if kept_as is not None and not validate_only:
        await broker.save("the change", broker.dynamic_configs.save_of, kept_as, name, overrides)
        _log.info("configuration of %s %.200s is now %.1000s", kept_as, name, overrides)
    return overrides


async def _broker_altered(
    broker: Broker, name: str, changes: list[Change], turn: TimeSlice, *, replace: bool, validate_only: bool
) -> Mapping[str, str]:
    for_all = name == ALL_BROKERS
    if not for_all:
        check_broker(broker, name, kind="Node id", or_all=",")
    default, own = broker.config.dynamic_default, broker.config.dynamic_broker
    overrides = _changed({} if replace else default if for_all else own, changes, BROKER_PROPERTIES)
    _check_dynamic(overrides, for_all=for_all)
    try:
        config = broker.config.with_dynamic(*((overrides, own) if for_all else (default, overrides)))
        async for topic in turn.spread(list(broker.topics)):
            if topic.configs:
                LogConfig.of(config, topic.configs)  # which must not contradict it
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_request, error.what) from None
    try:
        tls = await broker.run_blocking(broker.tls.prepared, config.listener_security)
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_request, str(error)) from None
    if for_all and MIN_ISR not in overrides:  # it stays one of all brokers (KIP-966)
        raise BrokerError(ErrorCode.invalid_config, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")
    if not for_all and any(changed == MIN_ISR for changed, _, _ in changes):
        raise BrokerError(ErrorCode.invalid_config, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
    _check_threads(broker.config, config)
    if validate_only:
        return overrides
    await broker.save("the change", broker.dynamic_configs.save, config.dynamic_default, config.dynamic_broker)
    broker.tls.use(tls)
    await run_in_slices(broker.updating_config(config), turn)
    # Names only: a value may be a password.
    names = ", ".join(sorted(overrides)) or "nothing is set"
    unserved = note_of_unserved(overrides, set(filter(is_served, overrides)))
    _log.info("configuration of %s is changed: %s%s", f"broker {name}" if name else "all brokers", names, unserved)
    return overrides


def _check_topic(config: BrokerConfig, before: Mapping[str, str], overrides: Mapping[str, str]) -> None:
    after = LogConfig.of(config, overrides)
    after.check_remote_storage()
    check_remote_storage_stays(LogConfig.of(config, before), after)


async def _apply_to_topics(
    broker: Broker, overrides: Mapping[str, Mapping[str, str]], turn: TimeSlice
) -> list[Outcome]:
    try:
        found: list[Changed] = await broker.run_blocking(broker.topics.set_all_configs, overrides)
    except BrokerError as error:
        found = [error] * len(overrides)
    outcomes: list[Outcome] = []
    async for name, changed in turn.spread(zip(overrides, found, strict=True)):
        if isinstance(changed, BrokerError):
            outcomes.append((changed.code, changed.what))
            continue
        broker.logs.update_topic_config(name)
        if broker.remote is not None:
            broker.remote.topic_changed(changed)
        unserved = note_of_unserved(overrides[name], served_topic_properties())
        _log.info("configuration of topic %s is now %.1000s%s", name, dict(overrides[name]), unserved)
        outcomes.append((ErrorCode.none, None))
    return outcomes


def _changed(now: Mapping[str, str], changes: list[Change], known: Mapping[str, Property]) -> dict[str, str]:
    names = [name for name, _, _ in changes]
    if len(set(names)) != len(names):
        raise BrokerError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    nulls = [name for name, operation, value in changes if value is None and operation is not ConfigOperation.DELETE]
    if nulls:
        raise BrokerError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(nulls)}")
    after = dict(now)
    for name, operation, value in changes:
        if operation is ConfigOperation.DELETE:
            after.pop(name, None)
        elif operation is ConfigOperation.SET:
            after[name] = value or ""
        else:
            after[name] = _list_changed(name, operation, value or "", after.get(name), known)
    return after


def _list_changed(
    name: str, operation: ConfigOperation, value: str, now: str | None, known: Mapping[str, Property]
) -> str:
    entry = known.get(name)
    if entry is None or entry.type is not PropertyType.LIST:
        why = f"Can't {operation.name} to key {name} because its type is not LIST."
        raise BrokerError(ErrorCode.invalid_config, why)
    # Where nothing is set, Kafka begins with the property's own default, whatever the broker's is.
    items = list(_items(entry.default or "" if now is None else now))
    for item in _items(value):
        if operation is ConfigOperation.APPEND and item not in items:
            items.append(item)
        elif operation is ConfigOperation.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_dynamic(overrides: Mapping[str, str], *, for_all: bool) -> None:
    """Raises BrokerError (INVALID_REQUEST): a property that only counts at start, one of a listener, or one of a single
    broker that is changed for all. Kafka takes unknown names, for plugins; here a mistake is worth an error."""
    known = {name: BROKER_PROPERTIES[name] for name in overrides if name in BROKER_PROPERTIES}
    _refuse(_ONLY_AT_START, [n for n, entry in known.items() if entry.read_only or n.startswith("listener")])
    single = [name for name, entry in known.items() if entry.update is Update.PER_BROKER]
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        [name for name in single if not name.startswith("cordoned.")],  # else of security
    )
    _refuse(_ONLY_OF_ONE, single if for_all else ())
    prefixed = [name for name in overrides if name.startswith(LISTENER_PREFIX)]
    _refuse("these properties of listeners have no effect here", [n for n in prefixed if listener_property(n) is None])
    _refuse(_ONLY_AT_START, [n for n in prefixed if BROKER_PROPERTIES[listener_property(n) or ""].read_only])
    _refuse(_ONLY_OF_ONE, prefixed if for_all else ())


_ONLY_AT_START = "Cannot update these configs dynamically"
_ONLY_OF_ONE = "Cannot update these configs at default cluster level, broker id must be specified"


def _refuse(why: str, names: Iterable[str]) -> None:
    if names:
        raise BrokerError(ErrorCode.invalid_request, f"{why}: [{', '.join(sorted(names))}]")


def _check_threads(before: BrokerConfig, after: BrokerConfig) -> None:
    """Rules of `validateReconfiguration` in Kafka's LogCleaner, DynamicThreadPool, DataPlaneAcceptor and
    DynamicRemoteLogConfig. Raises BrokerError (INVALID_REQUEST)."""
    now, wanted = before.log_cleaner_threads, after.log_cleaner_threads
    for wrong, what in (
        (wanted < 1 and wanted != now, "should be at least 1"),
        (wanted < now // 2, f"cannot be reduced to less than half the current value {now}"),
        (wanted > now * 2, f"cannot be increased to more than double the current value {now}"),
    ):
        if wrong:
            raise BrokerError(ErrorCode.invalid_request, f"Log cleaner threads {what}")
    for name in THREAD_POOLS:
        now, wanted = int(before.text(name) or 0), int(after.text(name) or 0)
        if not now // 2 <= wanted <= now * 2:
            bound = "be at least half" if wanted < now else "not be greater than double"
            raise BrokerError(
                ErrorCode.invalid_request,
                "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation "
                f"failed for {name}={wanted}, value should {bound} the current value {now} for configuration Invalid "
                "dynamic configuration",
            )


def _levels(changes: list[Change]) -> dict[str, int]:
    levels = {}
    for name, operation, value in changes:
        if operation is ConfigOperation.DELETE:
            if name == ROOT:
                raise BrokerError(ErrorCode.invalid_request, "Removing the log level of the root logger is not allowed")
            check_level(name, "INFO")
            levels[name] = logging.NOTSET
        elif operation is ConfigOperation.SET:
            levels[name] = check_level(name, value)
        else:
            why = f"Can't {operation.name} the level of a logger, only SET and DELETE it"
            raise BrokerError(ErrorCode.invalid_request, why)
    return levels
