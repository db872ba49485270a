"""What the transaction coordinator takes from the broker's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_broker.config.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Times in ms. The defaults are Kafka 4.3's."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000

    @classmethod
    def of(cls, broker_config: BrokerConfig) -> TransactionConfig:
        """`transaction.*`, `transactional.id.expiration.ms`."""
        return cls(
            max_timeout_ms=broker_config.transaction_max_timeout_ms,
            id_expiration_ms=broker_config.transactional_id_expiration_ms,
            abort_timed_out_interval_ms=broker_config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            remove_expired_interval_ms=broker_config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
