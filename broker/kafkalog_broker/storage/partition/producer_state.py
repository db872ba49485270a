"""Producer state of one log: the last five batches of each producer, and the open transactions (Kafka's
ProducerStateManager, ProducerStateEntry and ProducerAppendInfo). Nothing changes before the bytes are in the log:
`check_append` finds duplicates and refuses what is out of order, then `appended` takes the batch in."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.transaction_verification import Verifications
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

_log = logging.getLogger(__name__)

BATCHES_KEPT = 5  # a producer has at most five requests in flight: a duplicate is among them


class KnownBatch(NamedTuple):
    """Batch that a producer wrote lately. timestamp: ms, its largest."""

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
    """Content of a control record that ends a transaction. transaction_version: what its coordinator asks for, which is
    not in the log. From 2 on (KIP-890) a marker has a higher epoch than the transaction it ends."""

    control_type: ControlType
    coordinator_epoch: int
    transaction_version: int = 0


class Producer(NamedTuple):
    """State of a producer id. Epochs are -1 while unknown; `last_timestamp` in ms; `batches`: the last ones, oldest
    first. It never changes: each batch takes another one's place, so that a list of them is a picture of one moment
    that a thread may write to disk. And it is small, since anybody can invent producer ids: 0.4 kB each, all in all."""

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
        """The row of a snapshot: of the batches only the last one survives."""
        last = self.batches[-1] if self.batches else None
        sequence, offset, delta = (NO_SEQUENCE, -1, 0) if last is None else last[:3]
        return ProducerEntry(
            self.id, self.epoch, sequence, offset, delta, self.last_timestamp, self.coordinator_epoch,
            self.transaction_first_offset,
        )  # fmt: skip


_EPOCH_BUMP = 2  # the transaction version from which on the end of a transaction raises the epoch


class ProducerState:
    """All producers of one partition, for its one writer. `end_offset`: up to there batches have been taken in."""

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # first offset -> producer id, in the order of first offsets
        self._ended: list[tuple[int, int]] = []
        """(first offset, marker's offset) of transactions whose marker may still lie above the high watermark."""
        self.verifications = Verifications()

    def producers(self) -> list[Producer]:
        """All of them as they are now: 10 ns a producer."""
        return list(self._producers.values())

    # ---- appending

    def check_append(
        self, batch: BatchHeader, marker: Marker | None = None, *, from_client: bool = True
    ) -> KnownBatch | None:
        """The batch that this one repeats, or None when it may be appended. from_client=False leaves sequences
        unchecked: coordinators do not count. Raises BrokerError: invalid_producer_epoch, out_of_order_sequence_number,
        invalid_txn_state, transaction_coordinator_fenced."""
        producer = self._producers.get(batch.producer_id)
        if batch.is_control:
            if producer is not None and marker is not None:
                _check_marker(producer, batch, marker)
            return None
        if producer is not None:
            if from_client and batch.producer_epoch == producer.epoch:
                for sent in producer.batches:
                    if sent.last_sequence == batch.last_sequence and sent.first_sequence == batch.base_sequence:
                        return sent
            _check_epoch(producer, batch)
        if from_client:
            knows_batches = producer is not None and bool(producer.batches)
            self.verifications.check(batch.producer_id, batch.base_sequence, knows_batches=knows_batches)
        if producer is None:  # any first sequence: what was known may have been expired or deleted
            return None
        if from_client:
            _check_sequence(producer, batch)
        if producer.transaction_first_offset != NO_TRANSACTION and not batch.is_transactional:
            raise BrokerError(
                ErrorCode.invalid_txn_state,
                f"producer id {batch.producer_id} has a transaction open since offset "
                f"{producer.transaction_first_offset}, a batch outside of it cannot be written",
            )
        return None

    def appended(self, batch: BatchHeader, marker: Marker | None = None) -> AbortedTransaction | None:
        """Apply a batch that is in the log now; the transaction that it aborts, for the transaction index."""
        self.end_offset = batch.last_offset + 1
        if batch.producer_id < 0 or (batch.is_control and marker is None):
            return None
        self.verifications.clear(batch.producer_id)
        producer = self._producers.get(batch.producer_id) or Producer(batch.producer_id)
        batches = producer.batches if producer.epoch == batch.producer_epoch else ()
        coordinator_epoch, first = producer.coordinator_epoch, producer.transaction_first_offset
        aborted = None
        if marker is not None:
            coordinator_epoch, first = marker.coordinator_epoch, NO_TRANSACTION
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
            return None  # an empty transaction: the marker only moves epochs on
        # As ProducerStateManager.lastStableOffset(completedTxn): the LSO once this transaction has ended.
        others = (offset for offset, owner in self._open.items() if owner != producer.id)
        stable = min(others, default=last_offset + 1)
        self._open.pop(first, None)
        self._ended.append((first, last_offset))
        if marker.control_type != ControlType.ABORT:
            return None
        return AbortedTransaction(producer.id, first, last_offset, stable)

    # ---- transactions

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """True when the producer has written to this partition since it began its transaction, with that epoch."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_first_offset != NO_TRANSACTION and producer.epoch == epoch

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Of the oldest transaction that is open, or whose marker is not below the high watermark."""
        self.forget_ended(high_watermark)
        if not self._open and not self._ended:
            return None
        return min([*self._open, *(first for first, _ in self._ended)])

    def forget_ended(self, high_watermark: int) -> None:
        if self._ended:
            self._ended = [ended for ended in self._ended if ended[1] >= high_watermark]

    # ---- the log's beginning and end

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Records below are gone. Producers stay known; what ended below is stable."""
        self._ended = [ended for ended in self._ended if ended[1] >= log_start_offset]
        self.end_offset = max(self.end_offset, log_start_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction whose last batch is that old."""
        for one in self.producers():
            if one.transaction_first_offset == NO_TRANSACTION and now_ms - one.last_timestamp >= expiration_ms:
                del self._producers[one.id]
        self.verifications.expire(now_ms, expiration_ms)

    # ---- snapshots

    def entries(self) -> list[ProducerEntry]:
        return [producer.entry() for producer in self._producers.values()]

    def load(self, entries: Iterable[ProducerEntry], end_offset: int) -> None:
        """Replace the state by a snapshot taken at `end_offset`."""
        self.clear(end_offset)
        for entry in entries:
            batch = KnownBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            self._producers[entry.producer_id] = Producer(
                entry.producer_id, entry.producer_epoch, entry.coordinator_epoch, entry.timestamp,
                entry.transaction_first_offset, (batch,) if entry.last_offset >= 0 else (),
            )  # fmt: skip
            if entry.has_open_transaction:
                self._open[entry.transaction_first_offset] = entry.producer_id

    def become(self, other: ProducerState) -> None:
        self._producers, self._open, self._ended = other._producers, other._open, other._ended
        self.verifications, self.end_offset = other.verifications, other.end_offset

    def clear(self, end_offset: int) -> None:
        self._producers.clear()
        self._open.clear()
        self._ended.clear()
        self.verifications = Verifications()
        self.end_offset = end_offset


def _check_epoch(producer: Producer, batch: BatchHeader) -> None:
    if batch.producer_epoch < producer.epoch:
        raise BrokerError(
            ErrorCode.invalid_producer_epoch,
            f"producer id {batch.producer_id} writes with epoch {batch.producer_epoch}, the latest is {producer.epoch}",
        )


def _check_sequence(producer: Producer, batch: BatchHeader) -> None:
    """ProducerAppendInfo.checkSequence."""
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
    # The same epoch again, and nothing open: the marker was written before and its coordinator does not know it. No
    # epoch is above the largest: Kafka brokers could leave a transaction of that epoch open (KAFKA-20090).
    must_rise = is_open and batch.producer_epoch < MAX_PRODUCER_EPOCH
    if marker.transaction_version >= _EPOCH_BUMP and batch.producer_epoch == producer.epoch and must_rise:
        raise BrokerError(
            ErrorCode.invalid_producer_epoch,
            f"a marker with epoch {batch.producer_epoch} for producer id {batch.producer_id}, whose open transaction "
            f"was written with the same: in version {marker.transaction_version} it must be higher",
        )
    if marker.coordinator_epoch < producer.coordinator_epoch:
        raise BrokerError(
            ErrorCode.transaction_coordinator_fenced,
            f"a marker of coordinator epoch {marker.coordinator_epoch} for producer id {batch.producer_id}, the "
            f"latest is {producer.coordinator_epoch}",
        )
