"""Writing the marker that ends a transaction into a partition that is here."""

from __future__ import annotations

from typing import Protocol

from kafkalog_broker.clock import Clock
from kafkalog_broker.coordinators.coordinator_log import LogOf
from kafkalog_broker.transactions.transaction_markers import EndMarker
from kafkalog_broker.transactions.transaction_metadata import TopicPartition
from kafkalog_spark.log.format.names import OFFSETS_TOPIC


class PendingOffsets(Protocol):
    """The group coordinator: offsets that wait for their transaction to end."""

    def check_loaded(self, partition: int) -> None:
        """Raises BrokerError while a partition of __consumer_offsets is read."""

    def end_transaction(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """A marker has been written into that partition."""


class MarkerWriter:
    """offsets: counts what a transaction has committed, once its marker is in __consumer_offsets."""

    def __init__(self, offsets: PendingOffsets, log_of: LogOf, clock: Clock) -> None:
        self._offsets = offsets
        self._log_of = log_of
        self._clock = clock

    def write(self, partition: TopicPartition, marker: EndMarker) -> None:
        """Append a marker to a partition that is here; offsets that it commits count from then on. Raises BrokerError,
        see transaction_markers.WriteMarker."""
        is_offsets = partition.topic == OFFSETS_TOPIC
        if is_offsets:
            self._offsets.check_loaded(partition.partition)
        self._log_of(*partition).append_control(
            marker.control_type, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch,
            self._clock.now_ms(), transaction_version=marker.transaction_version,
        )  # fmt: skip
        if is_offsets:
            self._offsets.end_transaction(partition.partition, marker.producer_id, commit=marker.commit)
