"""Batches that wait until the coordinator has verified their transaction (Kafka: `VerificationStateEntry`, KIP-890).

A producer has several requests in flight. If the verification of the first one fails and that of the second succeeds,
the second batch must not be appended, because every retry of the first would then be out of order. Therefore the lowest
sequence of the waiting batches is kept until a batch is appended.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_broker.errors import BrokerError, ErrorCode


@dataclass(slots=True)
class _Verification:
    epoch: int
    lowest_sequence: int
    adds_partitions: bool
    since_ms: int


class PendingVerifications:
    """Verification state by producer ID. An entry is removed when a batch is appended, or when it expires."""

    def __init__(self) -> None:
        self._entries: dict[int, _Verification] = {}

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds_partitions: bool) -> None:
        """Record that a batch is waiting to be verified by the coordinator. No-op for an older epoch than recorded.

        Args:
            adds_partitions: The producer uses transaction version 2, where Produce adds partitions to the transaction.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            self._entries[producer_id] = _Verification(epoch, sequence, adds_partitions, now_ms)
            return
        if epoch < entry.epoch:
            return
        entry.lowest_sequence = sequence if epoch > entry.epoch else min(entry.lowest_sequence, sequence)
        entry.epoch, entry.adds_partitions = epoch, adds_partitions

    def check(self, producer_id: int, sequence: int, *, has_batches_of_epoch: bool) -> None:
        """Raise BrokerError out_of_order_sequence_number if an earlier batch of the producer is still being verified.

        Args:
            has_batches_of_epoch: True if the partition has a batch of the producer's epoch. In transaction version 2
                every transaction has an epoch of its own, which begins with sequence 0.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if entry.adds_partitions and sequence != 0 and not has_batches_of_epoch:
            raise BrokerError(
                ErrorCode.out_of_order_sequence_number,
                f"producer id {producer_id} has no batch of its epoch in this partition; its first "
                f"sequence is {sequence}, expected 0",
            )
        if sequence > entry.lowest_sequence:
            raise BrokerError(
                ErrorCode.out_of_order_sequence_number,
                f"producer id {producer_id} sends sequence {sequence} before {entry.lowest_sequence}, which is not "
                "verified yet",
            )

    def clear(self, producer_id: int) -> None:
        """Forget a producer whose batch was appended."""
        self._entries.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers whose verification began at least `expiration_ms` ago."""
        for producer_id in [key for key, entry in self._entries.items() if now_ms - entry.since_ms >= expiration_ms]:
            del self._entries[producer_id]
