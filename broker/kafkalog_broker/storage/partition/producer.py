"""What is known of one producer that writes to a partition: its last five batches, its transaction, its row in a
snapshot (ProducerStateEntry)."""

from __future__ import annotations

from typing import NamedTuple

from kafkalog_spark.log.format.layout import MAX_INT32, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, ControlType
from kafkalog_spark.log.format.producer_snapshot import NO_TRANSACTION, ProducerEntry

BATCHES_KEPT = 5
"""A producer has at most five requests in flight (max.in.flight.requests.per.connection): a duplicate is among them.
"""

NO_COORDINATOR_EPOCH = -1


class KnownBatch(NamedTuple):
    """One of a producer's last batches. timestamp: ms, its largest."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_INT32

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Marker(NamedTuple):
    """What a control record that ends a transaction says.

    transaction_version: what its coordinator asks for, which is not in the log. From 2 on (KIP-890) a marker has a
    higher epoch than the transaction it ends.
    """

    control_type: ControlType
    coordinator_epoch: int
    transaction_version: int = 0


class LastRecord(NamedTuple):
    """What a producer wrote last. last_data_offset: -1 when only a marker is known."""

    last_data_offset: int
    producer_epoch: int


class Producer(NamedTuple):
    """One producer id. `epoch` and `coordinator_epoch` are -1 while unknown; `last_timestamp` in ms; `batches`: the
    last ones, oldest first.

    It never changes: each batch takes another one's place, so that a list of them is a picture of one moment that a
    thread may write to disk. And it is small, since anybody can invent producer ids: 0.4 kB each, all in all.
    """

    id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int = NO_TRANSACTION
    batches: tuple[KnownBatch, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> KnownBatch | None:
        """The known batch with exactly these sequences."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        return None

    def entry(self) -> ProducerEntry:
        """The row of a snapshot: of the batches only the last one survives."""
        last = self.batches[-1] if self.batches else None
        return ProducerEntry(
            self.id,
            self.epoch,
            NO_SEQUENCE if last is None else last.last_sequence,
            -1 if last is None else last.last_offset,
            0 if last is None else last.offset_delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.transaction_first_offset,
        )


class ProducerPicture(NamedTuple):
    """The producers of one moment, for a snapshot. java_table: decides their order."""

    producers: list[Producer]
    java_table: int

    def entries(self) -> list[ProducerEntry]:
        """The rows of the snapshot, in the order in which Kafka, which keeps them in a java.util.HashMap, writes them.
        Any thread: 3 us a producer."""
        return [producer.entry() for producer in self.ordered()]

    def ordered(self) -> list[Producer]:
        mask = self.java_table - 1
        return sorted(self.producers, key=lambda producer: _java_hash(producer.id) & mask)


def _java_hash(producer_id: int) -> int:
    """HashMap.hash(Long.hashCode()): its low bits choose the bucket."""
    code = (producer_id ^ (producer_id >> 32)) & 0xFFFFFFFF
    return code ^ (code >> 16)
