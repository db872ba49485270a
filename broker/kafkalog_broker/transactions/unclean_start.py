"""Transactions after an unclean start: logs and __transaction_state may have lost different tails in a power cut.

With the default flush policy a partition can reach the disk while the coordinator's records do not. Then a log holds an
open transaction that no coordinator will end (a hanging transaction, KIP-664), or producer epochs that the coordinator
would give out a second time. `settle` brings both together, before the broker serves and before a transaction is
completed:

- An open transaction that the coordinator will end with the right outcome is left to it.
- If the coordinator has it open without that partition, the partition is added to it again.
- Any other open transaction ends here. It is committed only if a record of __transaction_state, or a marker of the same
  transaction in another log, proves that it was committed. Otherwise it is aborted with a higher epoch, so that a
  producer that still writes it is fenced.
- The coordinator's epoch of a producer id is raised to the highest one in the logs. A repeated epoch would make new
  batches look like duplicates of those that were written with it before.

Versions: since KIP-890 an end raises the epoch, so that producer id and epoch name one transaction and its marker has
the next epoch. Before, all transactions of a producer have one epoch. There the time of the decision tells whether it
was for the open transaction or for an earlier one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.file_fault import is_transient
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_replay import read_marker
from kafkalog_broker.storage.partition.producer_state import Producer
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions.transaction_metadata import (
    CLASSIC,
    EPOCH_BUMP,
    MAX_EPOCH,
    NOT_STARTED,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
    read_transaction_value,
)
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.atomic_file import descriptor
from kafkalog_spark.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ControlType, H
from kafkalog_spark.format.names import TRANSACTION_TOPIC
from kafkalog_spark.format.producer_snapshot import NO_TRANSACTION
from kafkalog_spark.log.read.header_windows import header_windows
from kafkalog_spark.store.interface import DescriptorFile

_log = logging.getLogger(__name__)

_COMMITS = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class OpenTransaction(NamedTuple):
    """A transaction that a log holds open."""

    log: Log
    producer: Producer

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.log.topic, self.log.partition)

    @property
    def name(self) -> tuple[int, int]:
        """Producer id and epoch."""
        return self.producer.id, self.producer.epoch


class Decision(NamedTuple):
    """How a transaction ends, by a record of __transaction_state. epoch: of the transaction's batches. partitions: None
    in records that do not name them any more. decided_ms: by the broker's clock."""

    producer_id: int
    epoch: int
    commit: bool
    partitions: frozenset[TopicPartition] | None
    decided_ms: int
    raises_epoch: bool


def batch_epoch(metadata: TransactionMetadata) -> int:
    """The epoch of the batches of an open or ended transaction."""
    raised = metadata.client_version >= EPOCH_BUMP and metadata.state is not TransactionState.ONGOING
    return metadata.producer_epoch - raised


def decisions(batches: Iterable[CoordinatorBatch], producer_ids: set[int]) -> Iterator[Decision]:
    """All decisions for these producers in a partition of __transaction_state, in the order of the log."""
    for batch in batches:
        for _, value in batch.records:
            if value is None:
                continue
            try:
                found = read_transaction_value("", value)
            except KafkalogError:
                continue  # reported when the partition was loaded
            raises_epoch = found.client_version >= EPOCH_BUMP
            is_complete = raises_epoch and found.state in _COMPLETE
            if found.producer_id in producer_ids and (found.state.is_prepared or is_complete):
                yield Decision(
                    found.producer_id, batch_epoch(found), found.state in _COMMITS,
                    None if is_complete else found.partitions, found.last_update_ms, raises_epoch,
                )  # fmt: skip


class Written(NamedTuple):
    """A marker of a producer in a log, or a run of its batches with one epoch: then `commit` is None."""

    epoch: int
    commit: bool | None
    timestamp: int


def written_in(segment: LogSegment, producer_id: int) -> list[Written]:
    """What a producer wrote to a segment, in order. Blocks; raises OSError."""
    found = list[Written]()
    with descriptor(segment.log_path) as fd:
        for window, _ in header_windows(DescriptorFile(fd), min(segment.size, os.fstat(fd).st_size)):
            for row in (window.table[:, H.PRODUCER_ID] == producer_id).nonzero()[0].tolist():
                header = window.header(row)
                if not header.is_control:
                    if not found or found[-1][:2] != (header.producer_epoch, None):
                        found.append(Written(header.producer_epoch, None, header.max_timestamp))
                elif header.record_count > 0 and (marker := read_marker(window.batch(row))) is not None:
                    commit = marker.control_type is ControlType.COMMIT
                    found.append(Written(header.producer_epoch, commit, header.max_timestamp))
    return found


_CLOCK_SLACK_MS = 3600 * 1000
"""How far the clock of a file system may be behind the broker's."""


def last_marker(log: Log, producer_id: int, since_ms: int) -> Written | None:
    """The last marker of a producer in a log, if it was written at or after `since_ms`. Blocks; raises OSError.

    Reads back to the first segment that was not written to since then. The timestamps of records cannot tell that,
    because clients choose them.
    """
    for segment in reversed(log.segments):
        if os.stat(segment.log_path).st_mtime_ns // 1_000_000 + _CLOCK_SLACK_MS < since_ms:
            return None
        for written in reversed(written_in(segment, producer_id)):
            if written.commit is not None:
                return written if written.timestamp >= since_ms else None
    return None


def end_with_raised_epoch(log: Log, producer_id: int, epoch: int) -> bool | None:
    """True or False if the log holds the COMMIT or ABORT marker of the transaction with batches of `epoch`, by its next
    epoch; None without one. Reads back to the last of these batches. Blocks; raises OSError."""
    found = list[Written]()
    for segment in reversed(log.segments):
        found = written_in(segment, producer_id) + found
        if found and found[0].epoch <= epoch:
            break
    batches = NO_PRODUCER_EPOCH
    for written in found:
        if written.commit is None:
            batches = written.epoch
        elif (batches, written.epoch) == (epoch, epoch + 1):
            return written.commit
    return None


@dataclass(slots=True)
class _Facts:
    """What was read from the logs. entries: what they know of producers of transactions, by producer id."""

    open: list[OpenTransaction]
    entries: dict[int, list[tuple[Log, Producer]]]

    def highest_epoch(self, producer_id: int) -> int:
        entries = self.entries.get(producer_id, ())
        return max((producer.epoch for _, producer in entries), default=NO_PRODUCER_EPOCH)


def read_facts(logs: Iterable[Log], producer_ids: set[int]) -> _Facts:
    """producer_ids: of the coordinator. Those of open transactions come by themselves."""
    facts = _Facts([], {})
    others = [log for log in logs if not log.follows and log.topic != TRANSACTION_TOPIC]
    for log in others:
        for producer in log.producer_state.producers():
            if producer.transaction_first_offset != NO_TRANSACTION:
                facts.open.append(OpenTransaction(log, producer))
    wanted = producer_ids.union(one.producer.id for one in facts.open)
    for log in others:
        for producer in log.producer_state.producers():
            if producer.id in wanted:
                facts.entries.setdefault(producer.id, []).append((log, producer))
    return facts


class UncleanStart:
    """For one use, in the event loop, before the broker serves."""

    def __init__(self, coordinator: TransactionCoordinator, clock: Clock) -> None:
        """coordinator: with all partitions of __transaction_state that can be loaded."""
        self._coordinator = coordinator
        self._clock = clock

    async def settle(
        self, logs: Sequence[Log], run_blocking: Callable[..., Awaitable[None]], *, is_whole: bool = True
    ) -> None:
        """End, or give back to the coordinator, all open transactions of `logs`.

        Args:
            logs: All logs of this broker.
            run_blocking: Runs in a thread what reads from logs.
            is_whole: False if partitions of __transaction_state are missing, whose decisions are not known. Then open
                transactions are only reported.
        """
        by_producer = {one.producer_id: one for one in self._coordinator.served()}
        facts = read_facts(logs, set(by_producer))
        if not (is_whole and self._is_loaded()):
            for one in facts.open:
                _log.warning(
                    "%s holds a transaction of producer id %d, epoch %d, open since offset %d, and __transaction_state "
                    "is not here as a whole: read_committed consumers wait there. If no other broker ends it: "
                    "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic %s --partition %d "
                    "--start-offset %d",
                    one.partition, *one.name, one.producer.transaction_first_offset, *one.partition,
                    one.producer.transaction_first_offset,
                )  # fmt: skip
            return
        plan = _Plan(by_producer, facts)
        if facts.open or plan.lost_ends:
            producer_ids = {one.producer.id for one in facts.open}
            await run_blocking(plan.decide, self._scans(), producer_ids)
        for one, commit, epoch, why in plan.ends:
            self._end(one, commit=commit, epoch=epoch, why=why)
        for transactional_id, added in plan.added.items():
            self._try(transactional_id, self._add, added)
        for transactional_id, commit in plan.ended.items():
            self._try(transactional_id, self._finish, commit)
        self._raise_epochs(read_facts(logs, set(by_producer)))

    def _is_loaded(self) -> bool:
        owned = self._coordinator.runtime.log.owned()
        return bool(owned) and all(self._coordinator.runtime.if_open(partition) is not None for partition in owned)

    def _scans(self) -> Callable[[], Iterator[CoordinatorBatch]]:
        state = self._coordinator.runtime.log
        return lambda: (batch for partition in state.owned() for batch in state.scan(partition))

    def _end(self, one: OpenTransaction, *, commit: bool, epoch: int, why: str) -> None:
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        _log.warning(
            "%s: the transaction of producer id %d, epoch %d, open since offset %d gets the marker %s: %s",
            one.partition, *one.name, one.producer.transaction_first_offset, kind.name, why,
        )  # fmt: skip
        coordinator_epoch = max(one.producer.coordinator_epoch, 0)
        try:
            one.log.append_control(kind, one.producer.id, epoch, coordinator_epoch, self._clock.now_ms())
        except BrokerError as error:
            _log.error("%s: the marker cannot be written: %s", one.partition, error)

    def _try(self, transactional_id: str, step: Callable[..., None], *arguments: object) -> None:
        try:
            step(self._coordinator.describe(transactional_id), *arguments)
        except BrokerError as error:
            _log.error("%.200r is left as it is after the unclean start: %s", transactional_id, error)

    def _add(self, metadata: TransactionMetadata, added: set[TopicPartition]) -> None:
        _log.warning(
            "%.200r: its open transaction of producer id %d, epoch %d has records in %s, which are added to it again",
            metadata.transactional_id, *metadata.producer, ", ".join(map(str, sorted(added))),
        )  # fmt: skip
        self._coordinator.write(metadata.with_partitions(added, metadata.client_version, self._clock.now_ms()))

    def _finish(self, metadata: TransactionMetadata, commit: bool) -> None:
        _log.warning(
            "%.200r: the transaction of producer id %d, epoch %d is %s: it had ended, as logs of its partitions show",
            metadata.transactional_id, *metadata.producer, "committed" if commit else "aborted",
        )  # fmt: skip
        version = metadata.client_version if commit else EPOCH_BUMP
        self._coordinator.end(metadata.transactional_id, metadata.producer, commit=commit, client_version=version)

    def _raise_epochs(self, facts: _Facts) -> None:
        for metadata in self._coordinator.served():
            if facts.highest_epoch(metadata.producer_id) > metadata.producer_epoch:
                self._try(metadata.transactional_id, self._raise_epoch, facts.highest_epoch(metadata.producer_id))

    def _raise_epoch(self, metadata: TransactionMetadata, epoch: int) -> None:
        transactional_id = metadata.transactional_id
        if metadata.state is TransactionState.ONGOING:
            _log.error("%.200r has an open transaction that could not be ended, and keeps its epoch", transactional_id)
            return
        if metadata.state.is_prepared:
            marked = self._coordinator.write_markers(transactional_id)
            if not self._coordinator.complete(transactional_id, marked):
                _log.warning("%.200r keeps its epoch until its markers are written", transactional_id)
                return
            metadata = self._coordinator.describe(transactional_id)
            if epoch <= metadata.producer_epoch:
                return
        _log.warning(
            "%.200r: the epoch of producer id %d is raised from %d to %d, which is in the logs",
            transactional_id, *metadata.producer, epoch,
        )  # fmt: skip
        # Not as Complete: that would say, at the next unclean start, how a transaction of the epoch before has ended.
        raised = replace(
            metadata, state=TransactionState.EMPTY, producer_epoch=epoch, partitions=frozenset(), start_ms=NOT_STARTED,
            last_update_ms=self._clock.now_ms(), next_producer_id=NO_PRODUCER_ID, client_version=CLASSIC,
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )  # fmt: skip
        self._coordinator.write(raised)


@contextmanager
def _reported(subject: object) -> Iterator[None]:
    """What cannot be read leaves this transaction as it is, not the broker down. A lack of descriptors does end the
    start: read_committed consumers would wait for the transaction until the next one."""
    try:
        yield
    except (KafkalogError, OSError) as error:
        if is_transient(error):
            raise
        _log.error("%.200s: its open transaction is left as it is, since a log cannot be read: %s", subject, error)


class _Plan:
    """What to do. ends: (transaction, commit, epoch of the marker, why). added: partitions by transactional id. ended:
    outcome of open transactions of the coordinator that had ended already."""

    def __init__(self, by_producer: dict[int, TransactionMetadata], facts: _Facts) -> None:
        self._by_producer = by_producer
        self._facts = facts
        self._decisions: list[Decision] = []
        self.ends: list[tuple[OpenTransaction, bool, int, str]] = []
        self.added: dict[str, set[TopicPartition]] = {}
        self.ended: dict[str, bool] = {}
        self.lost_ends = [one for one in by_producer.values() if self._may_have_ended(one)]

    def _may_have_ended(self, metadata: TransactionMetadata) -> bool:
        """True for an open transaction of which a partition may hold a marker."""
        if metadata.state is not TransactionState.ONGOING:
            return False
        for log, producer in self._facts.entries.get(metadata.producer_id, ()):
            is_open = producer.transaction_first_offset != NO_TRANSACTION and producer.epoch == metadata.producer_epoch
            named = TopicPartition(log.topic, log.partition) in metadata.partitions
            if producer.epoch > metadata.producer_epoch or (named and not is_open):
                return True
        return False

    def decide(self, scan: Callable[[], Iterator[CoordinatorBatch]], producer_ids: set[int]) -> None:
        """Blocks; for a thread, while nothing is appended. Raises OSError and BrokerError for a lack of descriptors."""
        try:
            self._decisions = list(decisions(scan(), producer_ids)) if producer_ids else []
        except (KafkalogError, OSError) as error:
            if is_transient(error):
                raise
            _log.error("open transactions are left as they are, since decisions cannot be read: %s", error)
            return
        for metadata in self.lost_ends:
            with _reported(metadata.transactional_id):
                commit = self._lost_end(metadata)
                if commit is not None:
                    self.ended[metadata.transactional_id] = commit
        for one in self._facts.open:
            with _reported(one.partition):
                self._decide(one)

    def _lost_end(self, metadata: TransactionMetadata) -> bool | None:
        """Outcome of an open transaction that ended before the power cut; None if there is no sign of its end."""
        producer_id, epoch = metadata.producer
        commit = self._end_elsewhere(producer_id, epoch)
        if commit is not None:
            return commit
        # Before KIP-890 a marker has the epoch of all transactions of its producer. One that is newer than the
        # beginning of this transaction ended it.
        for log, producer in self._facts.entries[producer_id] if metadata.client_version < EPOCH_BUMP else ():
            if producer.epoch == epoch and TopicPartition(log.topic, log.partition) in metadata.partitions:
                marker = last_marker(log, producer_id, metadata.start_ms + 1)  # one of that time may be of the last end
                if marker is not None and marker.epoch == epoch:
                    return marker.commit
        return False if self._facts.highest_epoch(producer_id) > epoch else None

    def _decide(self, one: OpenTransaction) -> None:
        producer_id, epoch = one.name
        metadata = self._by_producer.get(producer_id)
        decision = self._decision_for(one)
        if metadata is not None and batch_epoch(metadata) == epoch:
            is_named = one.partition in metadata.partitions
            is_current = decision is not None and decision.decided_ms == metadata.last_update_ms
            if metadata.state.is_prepared and is_named and is_current:
                return  # the coordinator completes it
            if metadata.state is TransactionState.ONGOING and decision is None:
                if self._began_after(one, metadata):
                    why = "the coordinator's transaction of this epoch had ended before it began"
                    self.ends.append((one, False, min(epoch + 1, MAX_EPOCH), why))
                elif not is_named:
                    self.added.setdefault(metadata.transactional_id, set()).add(one.partition)
                return
        if decision is not None:
            marker_epoch = epoch + decision.raises_epoch
            self.ends.append((one, decision.commit, marker_epoch, "__transaction_state has decided so"))
        elif (commit := self._end_elsewhere(producer_id, epoch)) is not None:
            self.ends.append((one, commit, epoch + 1, "another partition has this marker"))
        else:
            why = "the coordinator does not know it, its records were lost"
            self.ends.append((one, False, min(epoch + 1, MAX_EPOCH), why))

    def _began_after(self, one: OpenTransaction, metadata: TransactionMetadata) -> bool:
        """True if the log holds a later transaction than the one of the coordinator, which had ended already.

        Only before KIP-890, where both have one epoch. Records in a partition that the ended transaction does not name
        may belong to either. They count for the later one: to commit them could show records that were never committed.
        """
        if metadata.transactional_id not in self.ended or metadata.client_version >= EPOCH_BUMP:
            return False
        if one.partition not in metadata.partitions:
            return True
        return last_marker(one.log, one.producer.id, metadata.start_ms + 1) is not None

    def _decision_for(self, one: OpenTransaction) -> Decision | None:
        """The decision for the transaction; None if there is none.

        Before KIP-890 several transactions have one epoch. Their markers follow their decisions in the same order, so
        the decision is the first one that is newer than the last marker in the log. One of the same millisecond is the
        marker's own: no producer begins and ends a transaction within one.
        """
        found = [
            decision
            for decision in self._decisions
            if (decision.producer_id, decision.epoch) == one.name
            and (decision.partitions is None or one.partition in decision.partitions)
        ]
        if not found or found[-1].raises_epoch:
            return found[-1] if found else None
        marker = last_marker(one.log, one.producer.id, found[0].decided_ms)
        later = found if marker is None else [one for one in found if one.decided_ms > marker.timestamp]
        return later[0] if later else None

    def _end_elsewhere(self, producer_id: int, epoch: int) -> bool | None:
        for log, producer in self._facts.entries.get(producer_id, ()):
            if producer.epoch > epoch:
                commit = end_with_raised_epoch(log, producer_id, epoch)
                if commit is not None:
                    return commit
        return None
