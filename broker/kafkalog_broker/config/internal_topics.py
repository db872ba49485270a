"""The topics that coordinators keep their state in, and the overrides that brokers create them with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalog_spark.log.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC


def internal_topic_configs(broker_config: Any) -> Mapping[str, Mapping[str, str]]:
    """Name to overrides (GroupCoordinator.groupMetadataTopicConfigs, TransactionStateManager,
    ShareCoordinator.shareGroupStateTopicConfigs).

    broker_config: a BrokerConfig; of it the segment sizes.
    """
    return {
        OFFSETS_TOPIC: {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(broker_config.offsets_topic_segment_bytes),
        },
        TRANSACTION_TOPIC: {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(broker_config.transaction_state_log_segment_bytes),
        },
        SHARE_STATE_TOPIC: {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": "1",  # Kafka's share.coordinator.state.topic.min.isr; there is one replica here
            "segment.bytes": str(broker_config.share_coordinator_state_topic_segment_bytes),
            "retention.ms": "-1",
        },
    }
