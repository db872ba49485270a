"""Group properties: validation of those of the broker and of those of a single group, with Kafka's messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.dynamic_configs import GROUPS, DynamicConfigs
from kafkalog_broker.config.group_properties import check_group_properties
from kafkalog_broker.config.reset_duration import reset_duration_ms
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_settings import GroupSettings, consumer_group_settings, share_group_settings
from tests.broker.groups.consumer.test_consumer_group_machine import Groups

P = "group.consumer."
MAX_SIZE = 2**31 - 1


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({P + "session.timeout.ms": 44_999}, f"{P}session.timeout.ms must be greater than or equal to {P}min.session"),
        ({P + "session.timeout.ms": 60_001}, f"{P}session.timeout.ms must be less than or equal to {P}max.session"),
        ({P + "max.session.timeout.ms": 1}, f"{P}max.session.timeout.ms must be greater than or equal to {P}min.sess"),
        ({P + "heartbeat.interval.ms": 4999}, f"{P}heartbeat.interval.ms must be greater than or equal to {P}min."),
        (
            {P + "heartbeat.interval.ms": 45_000, P + "max.heartbeat.interval.ms": 50_000},
            f"{P}heartbeat.interval.ms must be less than {P}session.timeout.ms",
        ),
        ({P + "assignment.interval.ms": 15_001}, f"{P}assignment.interval.ms must be less than or equal to {P}max."),
        (
            {"group.share.session.timeout.ms": 44_999},
            "group.share.session.timeout.ms must be greater than or equal to group.share.min.session",
        ),
        (
            {"group.share.record.lock.duration.ms": 60_001},
            "group.share.max.record.lock.duration.ms must be greater than or equal to group.share.record",
        ),
        (
            {"group.share.max.share.sessions": 500, "group.share.max.size": 501},
            "group.share.max.share.sessions must be greater than or equal to group.share.max.size",
        ),
        ({P + "assignors": "uniform,com.example.Mine"}, "this broker has uniform and range"),
    ],
)
def test_contradictory_group_properties_of_the_broker_are_refused(properties: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties({"log.dirs": "/x", **properties})
    assert why in str(refused.value)


def test_group_property_outside_the_limits_of_the_broker_is_refused() -> None:
    config = BrokerConfig.from_properties({"log.dirs": "/x"})
    assert consumer_group_settings(config, {}) == GroupSettings(45_000, 5_000, 1_000, MAX_SIZE)
    own = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}
    check_group_properties(own, config)
    assert consumer_group_settings(config, own) == GroupSettings(50_000, 6_000, 1_000, MAX_SIZE)
    beyond = {"consumer.session.timeout.ms": "1", "consumer.assignment.interval.ms": "99999"}
    assert consumer_group_settings(config, beyond) == GroupSettings(
        45_000, 5_000, 15_000, MAX_SIZE
    )  # the limits were other ones


@pytest.mark.parametrize(
    ("reset", "duration_ms"),
    [
        ("by_duration:P1D", 86_400_000),
        ("by_duration:PT1H2M3.5S", 3_723_500),
        ("by_duration:pt1h", 3_600_000),
        ("by_duration:P-1DT48H", 86_400_000),
        ("by_duration:-PT-1H", 3_600_000),
        ("by_duration:PT+1H", 3_600_000),
        ("by_duration:PT1,25S", 1_250),
        ("by_duration:PT1.S", 1_000),
        ("by_duration:PT0S", 0),
    ],
)
def test_share_auto_offset_reset_by_duration_is_parsed(reset: str, duration_ms: int) -> None:
    config = BrokerConfig.from_properties({"log.dirs": "/x"})
    check_group_properties({"share.auto.offset.reset": reset}, config)
    assert reset_duration_ms(reset) == duration_ms


@pytest.mark.parametrize(
    "reset",
    [
        "EARLIEST", "Latest", "none", "by_duration:", "BY_DURATION:PT1H", "by_duration:P", "by_duration:PT",
        "by_duration:PT-1H", "by_duration:-PT1H", "by_duration:P1W", "by_duration: P1D", "by_duration:PT.5S",
        "by_duration:P" + "9" * 5_000 + "D",
    ],
)  # fmt: skip
def test_invalid_share_auto_offset_reset_is_refused(reset: str) -> None:
    config = BrokerConfig.from_properties({"log.dirs": "/x"})
    with pytest.raises(ConfigError, match="must be either 'earliest', 'latest' or of the format 'by_duration:"):
        check_group_properties({"share.auto.offset.reset": reset}, config)


@pytest.mark.parametrize(
    ("name", "beyond", "bound", "limit"),
    [
        ("share.session.timeout.ms", "60000", "group.share.max.session.timeout.ms", 55_000),
        ("share.heartbeat.interval.ms", "5000", "group.share.min.heartbeat.interval.ms", 5_500),
        ("share.assignment.interval.ms", "1500", "group.share.max.assignment.interval.ms", 1_400),
        ("share.record.lock.duration.ms", "60000", "group.share.max.record.lock.duration.ms", 50_000),
        ("share.delivery.count.limit", "10", "group.share.max.delivery.count.limit", 9),
        ("share.partition.max.record.locks", "3000", "group.share.max.partition.max.record.locks", 2_500),
    ],
)
def test_share_group_property_is_limited_by_the_current_broker_property(
    name: str, beyond: str, bound: str, limit: int
) -> None:
    usual = {"group.share.heartbeat.interval.ms": 6_000}
    check_group_properties({name: beyond}, BrokerConfig.from_properties({"log.dirs": "/x", **usual}))
    settings = share_group_settings(
        BrokerConfig.from_properties({"log.dirs": "/x", **usual, bound: limit}), {name: beyond}
    )
    found = {
        "share.session.timeout.ms": settings.session_timeout_ms,
        "share.heartbeat.interval.ms": settings.heartbeat_interval_ms,
        "share.assignment.interval.ms": settings.assignment_interval_ms,
        "share.record.lock.duration.ms": settings.limits.lock_ms,
        "share.delivery.count.limit": settings.limits.max_deliveries,
        "share.partition.max.record.locks": settings.limits.max_in_flight,
    }
    assert found[name] == limit


def test_group_properties_survive_a_restart(tmp_path: Path) -> None:
    configs = DynamicConfigs([tmp_path], 1)
    configs.save({"log.retention.ms": "7"}, {})
    configs.save_resource(GROUPS, "g", {"consumer.session.timeout.ms": "50000"})
    again = DynamicConfigs([tmp_path], 1)
    again.load()
    assert again.group_overrides("g") == {"consumer.session.timeout.ms": "50000"}
    assert again.default == {"log.retention.ms": "7"}
    again.save_resource(GROUPS, "g", {})
    last = DynamicConfigs([tmp_path], 1)
    last.load()
    assert again.resources[GROUPS] == {}


def test_members_of_a_disabled_group_protocol_are_refused() -> None:
    world = Groups()
    world.coordinator.context.config = BrokerConfig.from_properties(
        {"group.coordinator.rebalance.protocols": "classic"}
    )
    with pytest.raises(BrokerError) as refused:
        world.join("a", "orders")
    assert refused.value.code is ErrorCode.unsupported_version
    with pytest.raises(BrokerError, match="leaves the consumer protocol out"):
        world.coordinator.consumer_groups("g")
