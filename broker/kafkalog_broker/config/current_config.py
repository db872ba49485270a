"""The configuration in force, which dynamic properties replace while the broker runs."""

from __future__ import annotations

from collections.abc import Callable

from kafkalog_broker.config.broker_config import BrokerConfig


class CurrentConfig:
    """Holder of the broker's configuration (Kafka: DynamicBrokerConfig)."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._subscribers: list[Callable[[BrokerConfig], None]] = []

    def get(self) -> BrokerConfig:
        """Return the configuration in force."""
        return self._config

    def subscribe(self, apply: Callable[[BrokerConfig], None]) -> None:
        """Call `apply` with each configuration that replaces the present one."""
        self._subscribers.append(apply)

    def replace(self, config: BrokerConfig) -> None:
        """Put another configuration in force and call the subscribers."""
        self._config = config
        for apply in self._subscribers:
            apply(config)
