"""Producers whose first batch of a transaction waits for the coordinator (Kafka's VerificationStateEntry, KIP-890).

A producer has several requests in flight. If the coordinator cannot verify the first one but verifies the second, the
second batch must not be appended, because the first would be out of order for ever. Therefore the lowest sequence seen
counts until a batch has been appended.
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


class Verifications:
    """By producer id. Forgotten with the first batch, or as old producers are."""

    def __init__(self) -> None:
        self._entries: dict[int, _Verification] = {}

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds_partitions: bool) -> None:
        """A batch waits for the coordinator's word. adds_partitions: its producer speaks the second version."""
        known = self._entries.get(producer_id)
        if known is None:
            self._entries[producer_id] = _Verification(epoch, sequence, adds_partitions, now_ms)
            return
        known.adds_partitions = adds_partitions
        if epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)

    def check(self, producer_id: int, sequence: int, *, knows_batches: bool) -> None:
        """Raise BrokerError out_of_order_sequence_number for a batch that comes before its predecessor. knows_batches:
        the partition knows a batch of the producer's epoch; in the second version each transaction has one of its own,
        and begins with sequence 0."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if entry.adds_partitions and sequence != 0 and not knows_batches:
            raise BrokerError(
                ErrorCode.out_of_order_sequence_number,
                f"producer id {producer_id} begins with sequence {sequence} where nothing is known of it, expected 0",
            )
        if sequence > entry.lowest_sequence:
            raise BrokerError(
                ErrorCode.out_of_order_sequence_number,
                f"producer id {producer_id} sends sequence {sequence}, but {entry.lowest_sequence} is still to come",
            )

    def clear(self, producer_id: int) -> None:
        self._entries.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        for producer_id in [key for key, entry in self._entries.items() if now_ms - entry.since_ms >= expiration_ms]:
            del self._entries[producer_id]
