"""What a log knows of its producers: the last five batches of each, and which transactions are open.

Kafka's ProducerStateManager and ProducerAppendInfo. Plain data: files are read and written by
whoever owns the log's directory (`entries` and `load` speak in rows of a producer snapshot).

An append goes in two steps, so that nothing changes before the bytes are in the log: `check_append` finds duplicates
and refuses what is out of order, `appended` takes the batch in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.producer import (
    BATCHES_KEPT,
    KnownBatch,
    LastRecord,
    Marker,
    Producer,
    ProducerPicture,
)
from kafkalog_broker.storage.partition.verifications import Verifications
from kafkalog_spark.log.format.batch_header import BatchHeader
from kafkalog_spark.log.format.layout import MAX_INT32, NO_PRODUCER_EPOCH, ControlType
from kafkalog_spark.log.format.producer_snapshot import NO_TRANSACTION, ProducerEntry
from kafkalog_spark.log.format.transaction_index import AbortedTransaction

_EPOCH_BUMP = 2
"""The transaction version from which on the end of a transaction raises the epoch."""

_JAVA_TABLE = 16  # the size of a fresh java.util.HashMap, which is doubled when it is three quarters full


class _EndedTransaction(NamedTuple):
    """A transaction whose marker has been written, but may lie above the high watermark."""

    first_offset: int
    marker_offset: int


class ProducerState:
    """All producers of one partition. Not thread-safe: it belongs to the log's one writer.

    `end_offset`: up to there the batches of the log have been taken in.
    """

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # first offset -> producer id, in the order of first offsets
        self._ended: list[_EndedTransaction] = []
        self._java_table = _JAVA_TABLE
        self.verifications = Verifications()

    def __len__(self) -> int:
        return len(self._producers)

    def producer(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def producers(self) -> list[Producer]:
        """In the order of snapshots."""
        return self.picture().ordered()

    def picture(self) -> ProducerPicture:
        """All of them as they are now: 10 ns a producer."""
        return ProducerPicture(list(self._producers.values()), self._java_table)

    def last_records(self) -> dict[int, LastRecord]:
        """What each producer wrote last, by its id (UnifiedLog.lastRecordsOfActiveProducers)."""
        return {
            producer.id: LastRecord(producer.batches[-1].last_offset if producer.batches else -1, producer.epoch)
            for producer in self._producers.values()
        }

    # ---- appending

    def check_append(
        self, batch: BatchHeader, marker: Marker | None = None, *, from_client: bool = True
    ) -> KnownBatch | None:
        """The batch that this one repeats, or None when it may be appended. Changes nothing. marker: what a batch that
        ends a transaction says.

        Raises BrokerError: invalid_producer_epoch, out_of_order_sequence_number, invalid_txn_state,
        transaction_coordinator_fenced. from_client=False leaves sequences unchecked: coordinators do not count.
        """
        known = self._producers.get(batch.producer_id)
        if batch.is_control:
            if known is not None and marker is not None:
                _check_marker(known, batch, marker)
            return None
        if known is not None:
            if from_client:
                duplicate = known.duplicate_of(batch.producer_epoch, batch.base_sequence, batch.last_sequence)
                if duplicate is not None:
                    return duplicate
            _check_epoch(known, batch)
        if from_client:
            knows_batches = known is not None and bool(known.batches)
            self.verifications.check(batch.producer_id, batch.base_sequence, knows_batches=knows_batches)
        if known is None:  # any first sequence: what was known may have been expired or deleted
            return None
        if from_client:
            _check_sequence(known, batch)
        if known.transaction_first_offset != NO_TRANSACTION and not batch.is_transactional:
            raise BrokerError(
                ErrorCode.invalid_txn_state,
                f"producer id {batch.producer_id} has a transaction open since offset "
                f"{known.transaction_first_offset}, a batch outside of it cannot be written",
            )
        return None

    def appended(self, batch: BatchHeader, marker: Marker | None = None) -> AbortedTransaction | None:
        """Take in a batch that is in the log now; the transaction that it aborts, for the transaction index."""
        self.end_offset = batch.last_offset + 1
        if batch.producer_id < 0 or (batch.is_control and marker is None):
            return None
        self.verifications.clear(batch.producer_id)
        known = self._producers.get(batch.producer_id) or Producer(batch.producer_id)
        batches = known.batches if known.epoch == batch.producer_epoch else ()
        coordinator_epoch, first = known.coordinator_epoch, known.transaction_first_offset
        aborted = None
        if marker is not None:
            coordinator_epoch, first = marker.coordinator_epoch, NO_TRANSACTION
            aborted = self._end_transaction(known, batch.last_offset, marker)
        else:
            latest = KnownBatch(
                batch.last_sequence, batch.last_offset, batch.last_offset - batch.base_offset, batch.max_timestamp
            )
            batches = (*batches[1 - BATCHES_KEPT :], latest)
            if batch.is_transactional and first == NO_TRANSACTION:
                first = batch.base_offset
                self._open[first] = known.id
        self._put(Producer(known.id, batch.producer_epoch, coordinator_epoch, batch.max_timestamp, first, batches))
        return aborted

    def _end_transaction(self, producer: Producer, last_offset: int, marker: Marker) -> AbortedTransaction | None:
        first = producer.transaction_first_offset
        if first == NO_TRANSACTION:
            return None  # an empty transaction: the marker only moves epochs on
        # As ProducerStateManager.lastStableOffset(completedTxn): the LSO once this transaction has ended.
        others = (offset for offset, owner in self._open.items() if owner != producer.id)
        stable = min(others, default=last_offset + 1)
        self._open.pop(first, None)
        self._ended.append(_EndedTransaction(first, last_offset))
        if marker.control_type != ControlType.ABORT:
            return None
        return AbortedTransaction(producer.id, first, last_offset, stable)

    # ---- transactions

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has written to this partition since it began its transaction, with that epoch."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_first_offset != NO_TRANSACTION and producer.epoch == epoch

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open, or whose marker is not below the high watermark."""
        self.forget_ended(high_watermark)
        if not self._open and not self._ended:
            return None
        return min([*self._open, *(ended.first_offset for ended in self._ended)])

    def forget_ended(self, high_watermark: int) -> None:
        """What ended below the high watermark is stable."""
        if self._ended:
            self._ended = [ended for ended in self._ended if ended.marker_offset >= high_watermark]

    # ---- the log's beginning and end

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Records below are gone. Producers stay known; what ended below is stable."""
        self._ended = [ended for ended in self._ended if ended.marker_offset >= log_start_offset]
        self.end_offset = max(self.end_offset, log_start_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction whose last batch is that old; returns how many."""
        expired = [
            producer.id
            for producer in self._producers.values()
            if producer.transaction_first_offset == NO_TRANSACTION and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        self.verifications.expire(now_ms, expiration_ms)
        return len(expired)

    # ---- snapshots

    def entries(self) -> list[ProducerEntry]:
        """The rows of a snapshot, in Kafka's order."""
        return self.picture().entries()

    def load(self, entries: Iterable[ProducerEntry], end_offset: int) -> None:
        """Become what a snapshot taken at `end_offset` says."""
        self.clear(end_offset)
        for entry in entries:
            batch = KnownBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            self._put(
                Producer(
                    entry.producer_id,
                    entry.producer_epoch,
                    entry.coordinator_epoch,
                    entry.timestamp,
                    entry.transaction_first_offset,
                    (batch,) if entry.last_offset >= 0 else (),
                )
            )
            if entry.has_open_transaction:
                self._open[entry.transaction_first_offset] = entry.producer_id

    def become(self, other: ProducerState) -> None:
        """Know what `other` knows, which is not used any more."""
        self._producers, self._open, self._ended = other._producers, other._open, other._ended
        self._java_table, self.verifications = other._java_table, other.verifications
        self.end_offset = other.end_offset

    def clear(self, end_offset: int) -> None:
        """Forget all producers and transactions."""
        self._producers.clear()
        self._open.clear()
        self._ended.clear()
        self._java_table = _JAVA_TABLE
        self.verifications = Verifications()
        self.end_offset = end_offset

    def _put(self, producer: Producer) -> None:
        self._producers[producer.id] = producer
        while 4 * len(self._producers) > 3 * self._java_table:
            self._java_table *= 2


def _check_epoch(known: Producer, batch: BatchHeader) -> None:
    if batch.producer_epoch < known.epoch:
        raise BrokerError(
            ErrorCode.invalid_producer_epoch,
            f"producer id {batch.producer_id} writes with epoch {batch.producer_epoch}, the latest is {known.epoch}",
        )


def _check_sequence(known: Producer, batch: BatchHeader) -> None:
    """ProducerAppendInfo.checkSequence."""
    if batch.producer_epoch != known.epoch:
        if batch.base_sequence != 0 and known.epoch != NO_PRODUCER_EPOCH:
            raise BrokerError(
                ErrorCode.out_of_order_sequence_number,
                f"producer id {batch.producer_id} begins epoch {batch.producer_epoch} with sequence "
                f"{batch.base_sequence}, expected 0",
            )
        return
    last = known.last_sequence
    expected = (last + 1) & MAX_INT32
    if batch.base_sequence != expected:
        raise BrokerError(
            ErrorCode.out_of_order_sequence_number,
            f"producer id {batch.producer_id} of epoch {batch.producer_epoch} sends sequence {batch.base_sequence}, "
            f"expected {expected}",
        )


def _check_marker(known: Producer, batch: BatchHeader, marker: Marker) -> None:
    _check_epoch(known, batch)
    is_open = known.transaction_first_offset != NO_TRANSACTION
    # The same epoch again, and nothing open: the marker was written before and its coordinator does not know it.
    if marker.transaction_version >= _EPOCH_BUMP and batch.producer_epoch == known.epoch and is_open:
        raise BrokerError(
            ErrorCode.invalid_producer_epoch,
            f"a marker with epoch {batch.producer_epoch} for producer id {batch.producer_id}, whose open transaction "
            f"was written with the same: in version {marker.transaction_version} it must be higher",
        )
    if marker.coordinator_epoch < known.coordinator_epoch:
        raise BrokerError(
            ErrorCode.transaction_coordinator_fenced,
            f"a marker of coordinator epoch {marker.coordinator_epoch} for producer id {batch.producer_id}, the "
            f"latest is {known.coordinator_epoch}",
        )
