"""LogConfig: a topic's properties over the defaults of the broker."""

from __future__ import annotations

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.config.property_list import TOPIC_PROPERTIES

BROKER = BrokerConfig.from_properties({"log.retention.hours": "24", "log.segment.bytes": "2000000"})


def test_topic_property_overrides_the_broker_default():
    config = LogConfig.of(BROKER, {"segment.bytes": "3000000"})
    assert (config.retention_ms, config.segment_bytes) == (86_400_000, 3_000_000)
    assert LogConfig.of(BROKER).segment_bytes == 2_000_000


def test_small_segments_need_the_internal_property():
    with pytest.raises(ConfigError, match="Value must be at least 1048576"):
        LogConfig.of(BROKER, {"segment.bytes": "1000"})
    assert LogConfig.of(BROKER, {"internal.segment.bytes": "1000", "segment.bytes": "3000000"}).segment_bytes == 1000
    assert LogConfig.of(BROKER, {"segment.bytes": "3000000", "internal.segment.bytes": "1000"}).segment_bytes == 1000


@pytest.mark.parametrize(
    ("policy", "compacted", "deleted"),
    [("compact", True, False), ("delete", False, True), ("compact,delete", True, True), ("", False, False)],
)
def test_cleanup_policy_is_parsed_as_a_list(policy, compacted, deleted):
    config = LogConfig.of(BROKER, {"cleanup.policy": policy})
    assert (config.is_compacted, "delete" in config.cleanup_policy) == (compacted, deleted)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"retention": "1"}, "Unknown topic config name: retention"),
        ({"retention.ms": "x"}, "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "3"}, "conflict topic config setting"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
    ],
)
def test_invalid_property_raises_kafkas_message(overrides, said):
    with pytest.raises(ConfigError, match=said):
        LogConfig.of(BROKER, overrides)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5f", 0.5), ("0.5D", 0.5), (" 5e-1 ", 0.5), (".5", 0.5), ("1.", 1.0), ("+0.25", 0.25)],
)
def test_ratio_is_parsed_as_a_java_double(text, value):
    assert LogConfig.of(BROKER, {"min.cleanable.dirty.ratio": text}).min_cleanable_dirty_ratio == value


@pytest.mark.parametrize("text", ["nan", "inf", "infinity", "0_5", "\u0660.\u0665", "0.5ff", ".", "", "e1"])
def test_ratio_that_java_cannot_parse_is_refused(text):
    with pytest.raises(ConfigError, match="Not a number of type DOUBLE"):
        LogConfig.of(BROKER, {"min.cleanable.dirty.ratio": text})


def test_values_are_described_as_kafka_formats_them():
    policy, ratio = (TOPIC_PROPERTIES[name] for name in ("cleanup.policy", "min.cleanable.dirty.ratio"))
    assert policy.text_of("compact,delete, compact") == "compact,delete"
    assert LogConfig.of(BROKER, {"cleanup.policy": "compact,compact"}).cleanup_policy == ("compact",)
    replicas = TOPIC_PROPERTIES["leader.replication.throttled.replicas"]
    assert replicas.text_of("1:1,1:1") == "1:1,1:1"
    assert ratio.text_of("NaN") == "NaN"
    assert ratio.text_of("0.5f") == "0.5"
