"""LogConfig: a topic's settings on the broker's defaults."""

from __future__ import annotations

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.log_config import LogConfig

BROKER = BrokerConfig.from_properties({"log.retention.hours": "24", "log.segment.bytes": "2000000"})


def test_defaults_come_from_the_broker_and_the_topic_wins():
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
def test_a_cleanup_policy_is_a_list(policy, compacted, deleted):
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
def test_a_mistake_is_told_in_kafkas_words(overrides, said):
    with pytest.raises(ConfigError, match=said):
        LogConfig.of(BROKER, overrides)
