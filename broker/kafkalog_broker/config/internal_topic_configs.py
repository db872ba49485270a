"""Configuration with which a broker creates the topics of its coordinators."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC


def internal_topic_configs(broker_config: BrokerConfig) -> Mapping[str, Mapping[str, str]]:
    """Return the overrides of each topic by its name.

    In Kafka: GroupCoordinator.groupMetadataTopicConfigs, TransactionStateManager,
    ShareCoordinator.shareGroupStateTopicConfigs.
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
