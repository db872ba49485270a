"""Decisions how to end each open transaction after an unclean start, see `unclean_start.py`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.storage.file_fault import is_transient
from kafkalog_broker.transactions.transaction_evidence import (
    Outcome,
    ProducerInLog,
    ProducerStates,
    epoch_of_batches,
    last_marker,
    outcome_by_next_epoch,
    read_outcomes,
)
from kafkalog_broker.transactions.transaction_metadata import (
    EPOCH_BUMP,
    MAX_EPOCH,
    TopicPartition,
    TransactionMetadata,
)
from kafkalog_broker.transactions.transaction_state import TransactionState
from kafkalog_spark.errors import KafkalogError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedMarker:
    """A marker that ends an open transaction in one log."""

    producer_in_log: ProducerInLog
    commit: bool
    epoch: int
    reason: str


class UncleanStartPlan:
    """The actions that bring __transaction_state and the logs of partitions into agreement.

    Attributes:
        lost_ends: Open transactions of the coordinator that may have ended before the power cut.
        markers: Markers to write.
        added_partitions: By transactional ID, partitions to add to the open transaction.
        ended: By transactional ID, whether the open transaction of the coordinator was committed before.
    """

    def __init__(self, metadata_by_producer: dict[int, TransactionMetadata], states: ProducerStates) -> None:
        """Create an empty plan; `decide` adds actions to it."""
        self._metadata_by_producer = metadata_by_producer
        self._states = states
        self._outcomes: list[Outcome] = []
        self.markers: list[PlannedMarker] = []
        self.added_partitions: dict[str, set[TopicPartition]] = {}
        self.ended: dict[str, bool] = {}
        self.lost_ends = [metadata for metadata in metadata_by_producer.values() if self._may_have_ended(metadata)]

    def decide(self, scan: Callable[[], Iterator[CoordinatorBatch]], producer_ids: set[int]) -> None:
        """Read the outcomes of transactions, and decide. Blocks; run it in a thread while nothing is appended.

        A log that cannot be read leaves its transactions as they are.

        Args:
            scan: Yields the batches of all partitions of __transaction_state.
            producer_ids: The producers whose outcomes are read.

        Raises:
            OSError, BrokerError: If no file descriptor is available.
        """
        try:
            self._outcomes = list(read_outcomes(scan(), producer_ids)) if producer_ids else []
        except (KafkalogError, OSError) as error:
            if is_transient(error):
                raise
            _log.error("open transactions stay open, because __transaction_state cannot be read: %s", error)
            return
        for metadata in self.lost_ends:
            with _log_read_errors(metadata.transactional_id):
                commit = self._lost_outcome(metadata)
                if commit is not None:
                    self.ended[metadata.transactional_id] = commit
        for state in self._states.with_open_transaction:
            with _log_read_errors(state.partition):
                self._decide_open(state)

    def _may_have_ended(self, metadata: TransactionMetadata) -> bool:
        """Return whether a partition of an open transaction may contain its marker."""
        if metadata.state is not TransactionState.ONGOING:
            return False
        for state in self._states.of_producer(metadata.producer_id):
            is_open = state.has_open_transaction and state.producer.epoch == metadata.producer_epoch
            is_listed = state.partition in metadata.partitions
            if state.producer.epoch > metadata.producer_epoch or (is_listed and not is_open):
                return True
        return False

    def _lost_outcome(self, metadata: TransactionMetadata) -> bool | None:
        """Return whether an open transaction was committed before the power cut; None if nothing proves its end."""
        producer_id, epoch = metadata.producer
        commit = self._outcome_in_other_logs(producer_id, epoch)
        if commit is not None:
            return commit
        if metadata.client_version < EPOCH_BUMP:
            # All transactions of the producer have one epoch. A marker newer than the start of this one has ended it.
            for state in self._states.of_producer(producer_id):
                if state.producer.epoch == epoch and state.partition in metadata.partitions:
                    # A marker of the same millisecond may have ended the previous transaction.
                    marker = last_marker(state.log, producer_id, metadata.start_ms + 1)
                    if marker is not None and marker.epoch == epoch:
                        return marker.commit
        return False if self._states.highest_epoch(producer_id) > epoch else None

    def _decide_open(self, state: ProducerInLog) -> None:
        producer_id, epoch = state.id_and_epoch
        metadata = self._metadata_by_producer.get(producer_id)
        outcome = self._outcome_of(state)
        if metadata is not None and epoch_of_batches(metadata) == epoch:
            is_listed = state.partition in metadata.partitions
            is_current = outcome is not None and outcome.decided_ms == metadata.last_update_ms
            if metadata.state.is_prepared and is_listed and is_current:
                return  # the coordinator completes it
            if metadata.state is TransactionState.ONGOING and outcome is None:
                self._decide_ongoing(state, metadata, is_listed=is_listed)
                return
        if outcome is not None:
            marker_epoch = epoch + outcome.bumps_epoch
            self._plan_marker(state, outcome.commit, marker_epoch, "this is its outcome in __transaction_state")
        elif (commit := self._outcome_in_other_logs(producer_id, epoch)) is not None:
            self._plan_marker(state, commit, epoch + 1, "another partition has this marker")
        else:
            reason = "the coordinator has no record of it, because the record was lost"
            self._plan_marker(state, False, min(epoch + 1, MAX_EPOCH), reason)

    def _decide_ongoing(self, state: ProducerInLog, metadata: TransactionMetadata, *, is_listed: bool) -> None:
        if self._started_after(state, metadata):
            epoch = min(state.producer.epoch + 1, MAX_EPOCH)
            reason = "the coordinator's transaction with this epoch had ended before it started"
            self._plan_marker(state, False, epoch, reason)
        elif not is_listed:
            self.added_partitions.setdefault(metadata.transactional_id, set()).add(state.partition)

    def _plan_marker(self, state: ProducerInLog, commit: bool, epoch: int, reason: str) -> None:
        self.markers.append(PlannedMarker(state, commit, epoch, reason))

    def _started_after(self, state: ProducerInLog, metadata: TransactionMetadata) -> bool:
        """Return whether the log contains a later transaction than the coordinator's, which has ended.

        This is possible only before KIP-890, where both have the same epoch. Records in a partition that the ended
        transaction does not name may belong to either one. They count as records of the later one, because committing
        them could expose records that were never committed.
        """
        if metadata.transactional_id not in self.ended or metadata.client_version >= EPOCH_BUMP:
            return False
        if state.partition not in metadata.partitions:
            return True
        return last_marker(state.log, state.producer.id, metadata.start_ms + 1) is not None

    def _outcome_of(self, state: ProducerInLog) -> Outcome | None:
        """Return the outcome of an open transaction in __transaction_state; None if there is none.

        Before KIP-890 several transactions have the same epoch. Their markers have the order of their outcomes, so the
        outcome is the first one that is newer than the last marker in the log. An outcome of the same millisecond
        belongs to the marker: no producer starts and ends a transaction within one
        millisecond.
        """
        outcomes = [
            outcome
            for outcome in self._outcomes
            if outcome.producer == state.id_and_epoch
            and (outcome.partitions is None or state.partition in outcome.partitions)
        ]
        if not outcomes or outcomes[-1].bumps_epoch:
            return outcomes[-1] if outcomes else None
        marker = last_marker(state.log, state.producer.id, outcomes[0].decided_ms)
        later = (
            outcomes if marker is None else [outcome for outcome in outcomes if outcome.decided_ms > marker.timestamp]
        )
        return later[0] if later else None

    def _outcome_in_other_logs(self, producer_id: int, epoch: int) -> bool | None:
        for state in self._states.of_producer(producer_id):
            if state.producer.epoch > epoch:
                commit = outcome_by_next_epoch(state.log, producer_id, epoch)
                if commit is not None:
                    return commit
        return None


@contextmanager
def _log_read_errors(subject: object) -> Iterator[None]:
    """Log read errors, so that only the transaction concerned stays open.

    A lack of file descriptors is raised and ends the start, because otherwise read_committed consumers would wait for
    the transaction until the next start.
    """
    try:
        yield
    except (KafkalogError, OSError) as error:
        if is_transient(error):
            raise
        _log.error("%.200s: its open transaction stays open, because a log cannot be read: %s", subject, error)
