"""Transaction markers: the control records that end a transaction in each of its partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkalog_broker.coordinator.coordinator_log import LogOf
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.transactions.transaction_metadata import TopicPartition
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.names import OFFSETS_TOPIC


class EndMarker(NamedTuple):
    """A marker. With transaction version 2 its epoch must be above that of the transaction's batches (KIP-890)."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int

    @property
    def control_type(self) -> ControlType:
        return ControlType.COMMIT if self.commit else ControlType.ABORT


WriteMarker = Callable[[TopicPartition, EndMarker], None]
"""Writes a marker into a partition.

Raises BrokerError unknown_topic_or_partition if the partition does not exist, invalid_producer_epoch or
transaction_coordinator_fenced if a newer marker exists. After any other error the marker has to be written again.
"""


def marker_writer(offsets: GroupCoordinator, log_of: LogOf, clock: Clock) -> WriteMarker:
    """Return a function that writes markers into partitions of this broker.

    A marker in __consumer_offsets also commits or drops the offsets of the transaction.
    """

    def write(partition: TopicPartition, marker: EndMarker) -> None:
        is_offsets = partition.topic == OFFSETS_TOPIC
        if is_offsets:
            offsets.runtime.check_not_loading(partition.partition)
        log_of(*partition).append_control(
            marker.control_type, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, clock.now_ms(),
            transaction_version=marker.transaction_version,
        )  # fmt: skip
        if is_offsets:
            offsets.end_transaction(partition.partition, marker.producer_id, commit=marker.commit)

    return write
