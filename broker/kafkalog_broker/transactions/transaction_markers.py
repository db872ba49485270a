"""Markers: the control records that end a transaction in each of its partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkalog_broker.transactions.transaction_metadata import TopicPartition
from kafkalog_spark.log.format.layout import ControlType


class EndMarker(NamedTuple):
    """transaction_version: 2 asks for an epoch above the one that wrote the transaction (KIP-890)."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int

    @property
    def control_type(self) -> ControlType:
        return ControlType.COMMIT if self.commit else ControlType.ABORT


WriteMarker = Callable[[TopicPartition, EndMarker], None]
"""Writes a marker. Raises BrokerError: unknown_topic_or_partition for one that does not exist, invalid_producer_epoch
and transaction_coordinator_fenced for a marker that comes too late, and any other code when it is to be tried again."""
