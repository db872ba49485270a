"""Producer state of one log: the last five batches of each producer, and open transactions.

Corresponds to Kafka's `ProducerStateManager`, `ProducerStateEntry` and `ProducerAppendInfo`. State changes only after
the bytes are in the log: `check_append` detects duplicates and refuses batches that are out of order; `apply` is called
after the append.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.transaction_verification import PendingVerifications
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import (
    MAX_INT32,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    ControlType,
)
from kafkalog_spark.format.producer_snapshot import NO_TRANSACTION, ProducerEntry
from kafkalog_spark.format.transaction_index import AbortedTransaction

BATCHES_KEPT = 5  # a producer has at most five requests in flight, so a duplicate is among its last five batches


class KnownBatch(NamedTuple):
    """One of the last batches of a producer (Kafka: `BatchMetadata`).

    Attributes:
        offset_delta: Last offset minus base offset.
        timestamp: Largest timestamp, in ms.
    """

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
    """Control record that ends a transaction (Kafka: `EndTransactionMarker`).

    Attributes:
        transaction_version: Version in the coordinator's request; the log does not contain it. From version 2 on
            (KIP-890) a marker has a higher epoch than the transaction that it ends.
    """

    control_type: ControlType
    coordinator_epoch: int
    transaction_version: int = 0


class Producer(NamedTuple):
    """State of one producer ID.

    Immutable: each batch replaces the object. A list of producers is therefore a consistent snapshot that another
    thread can write to disk. The object is small, because clients can invent any number of producer IDs.

    Attributes:
        epoch, coordinator_epoch: -1 if unknown.
        last_timestamp: In ms.
        batches: The last batches, oldest first.
    """

    id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int = NO_TRANSACTION
    batches: tuple[KnownBatch, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def entry(self) -> ProducerEntry:
        """Return the row of a producer snapshot, which contains only the last batch."""
        last = self.batches[-1] if self.batches else None
        sequence, offset, delta = (NO_SEQUENCE, -1, 0) if last is None else last[:3]
        return ProducerEntry(
            self.id, self.epoch, sequence, offset, delta, self.last_timestamp, self.coordinator_epoch,
            self.transaction_first_offset,
        )  # fmt: skip


_EPOCH_BUMP_VERSION = 2  # transaction version from which on the end of a transaction raises the producer epoch


class ProducerState:
    """All producers of one partition. Belongs to the thread that owns the log.

    Attributes:
        end_offset: Offset up to which batches are applied.
        verifications: Producers whose first batch waits for the transaction coordinator.
    """

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # first offset -> producer id, in the order of first offsets
        self._ended: list[tuple[int, int]] = []
        """(first offset, marker's offset) of transactions whose marker may be at or above the high watermark."""
        self.verifications = PendingVerifications()

    def producers(self) -> list[Producer]:
        """Return all producers as of now."""
        return list(self._producers.values())

    def check_append(
        self, batch: BatchHeader, marker: Marker | None = None, *, is_from_client: bool = True
    ) -> KnownBatch | None:
        """Check a batch before it is appended.

        Args:
            is_from_client: False leaves sequences unchecked, because batches of coordinators have none.

        Returns:
            The earlier batch if this one is a duplicate; None if it may be appended.

        Raises:
            BrokerError: invalid_producer_epoch, out_of_order_sequence_number, invalid_txn_state,
                transaction_coordinator_fenced.
        """
        producer = self._producers.get(batch.producer_id)
        if batch.is_control:
            if producer is not None and marker is not None:
                _check_marker(producer, batch, marker)
            return None
        if producer is not None:
            if is_from_client and batch.producer_epoch == producer.epoch:
                for sent in producer.batches:
                    if sent.last_sequence == batch.last_sequence and sent.first_sequence == batch.base_sequence:
                        return sent
            _check_epoch(producer, batch)
        if is_from_client:
            has_batches_of_epoch = producer is not None and bool(producer.batches)
            self.verifications.check(batch.producer_id, batch.base_sequence, has_batches_of_epoch=has_batches_of_epoch)
        if producer is None:  # any first sequence is allowed, because the state may have expired or been deleted
            return None
        if is_from_client:
            _check_sequence(producer, batch)
        if producer.transaction_first_offset != NO_TRANSACTION and not batch.is_transactional:
            raise BrokerError(
                ErrorCode.invalid_txn_state,
                f"producer id {batch.producer_id} cannot write a batch outside of its transaction, which is open since "
                f"offset {producer.transaction_first_offset}",
            )
        return None

    def apply(self, batch: BatchHeader, marker: Marker | None = None) -> AbortedTransaction | None:
        """Apply a batch that was appended. Return the transaction that it aborts, for the transaction index."""
        self.end_offset = batch.last_offset + 1
        if batch.producer_id < 0 or (batch.is_control and marker is None):
            return None
        self.verifications.clear(batch.producer_id)
        producer = self._producers.get(batch.producer_id) or Producer(batch.producer_id)
        batches = producer.batches if producer.epoch == batch.producer_epoch else ()
        coordinator_epoch, first = producer.coordinator_epoch, producer.transaction_first_offset
        aborted = None
        if marker is not None:
            coordinator_epoch = marker.coordinator_epoch
            first = NO_TRANSACTION
            aborted = self._end_transaction(producer, batch.last_offset, marker)
        else:
            latest = KnownBatch(
                batch.last_sequence, batch.last_offset, batch.last_offset - batch.base_offset, batch.max_timestamp
            )
            batches = (*batches[1 - BATCHES_KEPT :], latest)
            if batch.is_transactional and first == NO_TRANSACTION:
                first = batch.base_offset
                self._open[first] = producer.id
        self._producers[producer.id] = Producer(
            producer.id, batch.producer_epoch, coordinator_epoch, batch.max_timestamp, first, batches
        )
        return aborted

    def _end_transaction(self, producer: Producer, last_offset: int, marker: Marker) -> AbortedTransaction | None:
        first = producer.transaction_first_offset
        if first == NO_TRANSACTION:
            return None  # an empty transaction: the marker only raises epochs
        # Kafka's ProducerStateManager.lastStableOffset(completedTxn): the LSO after this transaction has ended.
        others = (offset for offset, owner in self._open.items() if owner != producer.id)
        stable = min(others, default=last_offset + 1)
        self._open.pop(first, None)
        self._ended.append((first, last_offset))
        if marker.control_type != ControlType.ABORT:
            return None
        return AbortedTransaction(producer.id, first, last_offset, stable)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer has written to this partition in its current transaction, with that epoch."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_first_offset != NO_TRANSACTION and producer.epoch == epoch

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction that is not stable; None if all are.

        A transaction is not stable while it is open or its marker is at or above the high watermark.
        """
        self.forget_ended(high_watermark)
        if not self._open and not self._ended:
            return None
        return min([*self._open, *(first for first, _ in self._ended)])

    def forget_ended(self, high_watermark: int) -> None:
        """Forget ended transactions whose marker is below the high watermark."""
        if self._ended:
            self._ended = [ended for ended in self._ended if ended[1] >= high_watermark]

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Apply a higher log start offset: forget ended transactions below it. Producers are kept."""
        self._ended = [ended for ended in self._ended if ended[1] >= log_start_offset]
        self.end_offset = max(self.end_offset, log_start_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction whose last batch is at least `expiration_ms` old."""
        for producer in self.producers():
            is_old = now_ms - producer.last_timestamp >= expiration_ms
            if is_old and producer.transaction_first_offset == NO_TRANSACTION:
                del self._producers[producer.id]
        self.verifications.expire(now_ms, expiration_ms)

    def entries(self) -> list[ProducerEntry]:
        """Return the rows of a snapshot."""
        return [producer.entry() for producer in self._producers.values()]

    def load(self, entries: Iterable[ProducerEntry], end_offset: int) -> None:
        """Replace the state with a snapshot taken at `end_offset`."""
        self.clear(end_offset)
        for entry in entries:
            batch = KnownBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            self._producers[entry.producer_id] = Producer(
                entry.producer_id, entry.producer_epoch, entry.coordinator_epoch, entry.timestamp,
                entry.transaction_first_offset, (batch,) if entry.last_offset >= 0 else (),
            )  # fmt: skip
            if entry.has_open_transaction:
                self._open[entry.transaction_first_offset] = entry.producer_id

    def replace_with(self, other: ProducerState) -> None:
        """Take over the state of `other`, which must not be used afterwards."""
        self._producers, self._open, self._ended = other._producers, other._open, other._ended
        self.verifications, self.end_offset = other.verifications, other.end_offset

    def clear(self, end_offset: int) -> None:
        self._producers.clear()
        self._open.clear()
        self._ended.clear()
        self.verifications = PendingVerifications()
        self.end_offset = end_offset


def _check_epoch(producer: Producer, batch: BatchHeader) -> None:
    if batch.producer_epoch < producer.epoch:
        raise BrokerError(
            ErrorCode.invalid_producer_epoch,
            f"producer id {batch.producer_id} has epoch {batch.producer_epoch}, the current one is {producer.epoch}",
        )


def _check_sequence(producer: Producer, batch: BatchHeader) -> None:
    """Raise BrokerError out_of_order_sequence_number unless the batch continues the producer's sequence.

    Matches Kafka's `ProducerAppendInfo.checkSequence`.
    """
    if batch.producer_epoch != producer.epoch:
        if batch.base_sequence != 0 and producer.epoch != NO_PRODUCER_EPOCH:
            raise BrokerError(
                ErrorCode.out_of_order_sequence_number,
                f"producer id {batch.producer_id} begins epoch {batch.producer_epoch} with sequence "
                f"{batch.base_sequence}, expected 0",
            )
        return
    last = producer.last_sequence
    expected = (last + 1) & MAX_INT32
    if batch.base_sequence != expected:
        raise BrokerError(
            ErrorCode.out_of_order_sequence_number,
            f"producer id {batch.producer_id} of epoch {batch.producer_epoch} sends sequence {batch.base_sequence}, "
            f"expected {expected}",
        )


def _check_marker(producer: Producer, batch: BatchHeader, marker: Marker) -> None:
    _check_epoch(producer, batch)
    is_open = producer.transaction_first_offset != NO_TRANSACTION
    # Without an open transaction the same epoch is allowed: the coordinator repeats a marker because it does not know
    # that it was written. The largest epoch cannot rise; Kafka could leave a transaction of it open (KAFKA-20090).
    must_rise = is_open and batch.producer_epoch < MAX_PRODUCER_EPOCH
    if marker.transaction_version >= _EPOCH_BUMP_VERSION and batch.producer_epoch == producer.epoch and must_rise:
        raise BrokerError(
            ErrorCode.invalid_producer_epoch,
            f"a marker for producer id {batch.producer_id} has epoch {batch.producer_epoch}, that of the open "
            f"transaction; in transaction version {marker.transaction_version} it must be higher",
        )
    if marker.coordinator_epoch < producer.coordinator_epoch:
        raise BrokerError(
            ErrorCode.transaction_coordinator_fenced,
            f"a marker for producer id {batch.producer_id} has coordinator epoch {marker.coordinator_epoch}, the "
            f"latest is {producer.coordinator_epoch}",
        )
