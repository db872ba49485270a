"""Evidence about transactions in the logs after an unclean start: the states of producers, open transactions, the
outcomes in __transaction_state, and markers.

Functions that read segments block, and raise OSError.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_replay import read_marker
from kafkalog_broker.storage.partition.producer_state import Producer
from kafkalog_broker.transactions.transaction_metadata import EPOCH_BUMP, TopicPartition, TransactionMetadata
from kafkalog_broker.transactions.transaction_records import decode_value
from kafkalog_broker.transactions.transaction_state import TransactionState
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.layout import NO_PRODUCER_EPOCH, ControlType, HeaderColumn
from kafkalog_spark.format.names import TRANSACTION_TOPIC
from kafkalog_spark.format.producer_snapshot import NO_TRANSACTION
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.log.read.header_windows import header_windows
from kafkalog_spark.store.local_store import DescriptorFile

_CLOCK_SLACK_MS = 3600 * 1000  # largest assumed delay of a file system's clock behind the broker's clock

_COMMIT_STATES = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_COMPLETE_STATES = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class ProducerInLog(NamedTuple):
    """State of a producer in one log."""

    log: Log
    producer: Producer

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.log.topic, self.log.partition)

    @property
    def id_and_epoch(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer.id, self.producer.epoch)

    @property
    def has_open_transaction(self) -> bool:
        return self.producer.transaction_first_offset != NO_TRANSACTION


@dataclass(slots=True)
class ProducerStates:
    """States of transactional producers in all logs: those with an open transaction, and all states by producer ID."""

    with_open_transaction: list[ProducerInLog] = field(default_factory=list)
    by_producer_id: dict[int, list[ProducerInLog]] = field(default_factory=dict)

    @classmethod
    def collect(cls, logs: Iterable[Log], producer_ids: set[int]) -> ProducerStates:
        """Collect the states of these producers, and of all producers with an open transaction."""
        states = cls()
        considered = [log for log in logs if not log.is_follower and log.topic != TRANSACTION_TOPIC]
        for log in considered:
            for producer in log.producer_state.producers():
                if producer.transaction_first_offset != NO_TRANSACTION:
                    states.with_open_transaction.append(ProducerInLog(log, producer))
        wanted = producer_ids.union(state.producer.id for state in states.with_open_transaction)
        for log in considered:
            for producer in log.producer_state.producers():
                if producer.id in wanted:
                    states.by_producer_id.setdefault(producer.id, []).append(ProducerInLog(log, producer))
        return states

    def of_producer(self, producer_id: int) -> list[ProducerInLog]:
        return self.by_producer_id.get(producer_id, [])

    def highest_epoch(self, producer_id: int) -> int:
        """Return the highest epoch of a producer ID in any log, or NO_PRODUCER_EPOCH."""
        return max((state.producer.epoch for state in self.of_producer(producer_id)), default=NO_PRODUCER_EPOCH)


class Outcome(NamedTuple):
    """Outcome of a transaction according to a record of __transaction_state.

    Attributes:
        producer: Producer ID and epoch in the batches of the transaction.
        partitions: Partitions of the transaction; None if the record does not contain them any more.
        decided_ms: Time of the record, by the broker's clock.
        bumps_epoch: Whether the marker has the next epoch (KIP-890).
    """

    producer: ProducerIdAndEpoch
    commit: bool
    partitions: frozenset[TopicPartition] | None
    decided_ms: int
    bumps_epoch: bool


def epoch_of_batches(metadata: TransactionMetadata) -> int:
    """Return the epoch of the batches of an open or ended transaction."""
    is_bumped = metadata.client_version >= EPOCH_BUMP and metadata.state is not TransactionState.ONGOING
    return metadata.producer_epoch - is_bumped


def read_outcomes(batches: Iterable[CoordinatorBatch], producer_ids: set[int]) -> Iterator[Outcome]:
    """Yield all outcomes for these producers in a partition of __transaction_state, in the order of the log."""
    for batch in batches:
        for _, value in batch.records:
            if value is None:
                continue
            try:
                metadata = decode_value("", value)
            except KafkalogError:
                continue  # logged when the partition was loaded
            bumps_epoch = metadata.client_version >= EPOCH_BUMP
            is_complete = bumps_epoch and metadata.state in _COMPLETE_STATES
            if metadata.producer_id in producer_ids and (metadata.state.is_prepared or is_complete):
                yield Outcome(
                    ProducerIdAndEpoch(metadata.producer_id, epoch_of_batches(metadata)),
                    metadata.state in _COMMIT_STATES, None if is_complete else metadata.partitions,
                    metadata.last_update_ms, bumps_epoch,
                )  # fmt: skip


class MarkerOrBatches(NamedTuple):
    """A marker of a producer in a log; or consecutive batches with the same epoch, if `commit` is None."""

    epoch: int
    commit: bool | None
    timestamp: int


def last_marker(log: Log, producer_id: int, since_ms: int) -> MarkerOrBatches | None:
    """Return the last marker of a producer in a log, if it was written at or after `since_ms`.

    Reads segments backwards until one whose file was not modified since then. The timestamps of records are not used
    for this, because clients choose them.
    """
    for segment in reversed(log.segments):
        if os.stat(segment.log_path).st_mtime_ns // 1_000_000 + _CLOCK_SLACK_MS < since_ms:
            return None
        for entry in reversed(_markers_and_batches(segment, producer_id)):
            if entry.commit is not None:
                return entry if entry.timestamp >= since_ms else None
    return None


def outcome_by_next_epoch(log: Log, producer_id: int, epoch: int) -> bool | None:
    """Return whether the transaction with batches of `epoch` was committed, according to its marker with the next epoch
    (KIP-890); None if the log does not contain the marker.

    Reads backwards up to the last batch with this epoch.
    """
    entries: list[MarkerOrBatches] = []
    for segment in reversed(log.segments):
        entries = _markers_and_batches(segment, producer_id) + entries
        if entries and entries[0].epoch <= epoch:
            break
    epoch_of_last_batches = NO_PRODUCER_EPOCH
    for entry in entries:
        if entry.commit is None:
            epoch_of_last_batches = entry.epoch
        elif (epoch_of_last_batches, entry.epoch) == (epoch, epoch + 1):
            return entry.commit
    return None


def _markers_and_batches(segment: LogSegment, producer_id: int) -> list[MarkerOrBatches]:
    """Return the markers and batches of a producer in a segment, in order."""
    entries: list[MarkerOrBatches] = []
    with descriptor(segment.log_path) as fd:
        for window, _ in header_windows(DescriptorFile(fd), min(segment.size, os.fstat(fd).st_size)):
            for row in (window.table[:, HeaderColumn.PRODUCER_ID] == producer_id).nonzero()[0].tolist():
                header = window.header(row)
                if not header.is_control:
                    if not entries or entries[-1][:2] != (header.producer_epoch, None):
                        entries.append(MarkerOrBatches(header.producer_epoch, None, header.max_timestamp))
                elif header.record_count > 0 and (marker := read_marker(window.batch(row))) is not None:
                    is_commit = marker.control_type is ControlType.COMMIT
                    entries.append(MarkerOrBatches(header.producer_epoch, is_commit, header.max_timestamp))
    return entries
