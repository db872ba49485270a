"""The transaction coordinator: which transactional ids there are, and what may be done to them (TransactionCoordinator
and TransactionStateManager).

Ids are spread over the partitions of __transaction_state. One process need not own all of them: an id whose partition
is another's is answered NOT_COORDINATOR.

What changes is in __transaction_state before it is in memory. A transaction ends in three steps: it is prepared (how it
ends is written down), its markers are written into its partitions, and it is completed. `prepared` are those between
the first and the last step; TransactionEnds does the rest, as often as it takes. After a crash they are found in
__transaction_state, and go the same way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_errors import coordinator_error_code
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog, LogOf
from kafkalog_broker.coordinator.coordinator_record import MAX_TOMBSTONES_PER_BATCH, ProducerIdAndEpoch
from kafkalog_broker.coordinator.coordinator_runtime import CoordinatorRuntime
from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition.log import EVERY_APPEND, Log
from kafkalog_broker.transactions.transaction_metadata import (
    EPOCH_BUMP,
    LAST_EPOCH,
    EndMarker,
    TopicPartition,
    TransactionMetadata,
    Transactions,
    TransactionState,
    WriteMarker,
    ends,
    load,
    transaction_key,
    transaction_value,
)
from kafkalog_spark.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kafkalog_spark.format.names import OFFSETS_TOPIC

log = logging.getLogger(__name__)


class TransactionCoordinator:
    """All calls come from one thread (the event loop's). Nothing here waits. new_producer_id: one that nobody had
    before; raises OSError."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        state_log: CoordinatorLog,
        write_marker: WriteMarker,
        new_producer_id: Callable[[], int],
        flushes: LogFlushes | None = None,
    ) -> None:
        """flushes: those of the state log, None where it is never flushed."""
        self.config = config
        self._clock = clock
        self.runtime: CoordinatorRuntime[Transactions, Transactions] = CoordinatorRuntime(state_log, load, self._serve)
        self._prepared: dict[str, None] = {}  # the oldest first
        self._flushes = flushes
        self._unflushed_ends: dict[str, int] = {}
        """By transactional id, the offset up to which its partition must be flushed; empty without flush.messages=1."""
        self._write_marker = write_marker
        self._new_producer_id = new_producer_id
        started_ms = clock.monotonic_ms()
        self._next_abort_ms = started_ms + config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._next_expiry_ms = started_ms + config.transaction_remove_expired_transaction_cleanup_interval_ms

    # ---- transactional ids, in memory and in __transaction_state

    def _serve(self, partition: int, loaded: Transactions) -> Transactions:
        if self._flushes is not None and self._flushes.registered:
            end = self.runtime.log.log(partition).log_end_offset
            self._unflushed_ends.update(dict.fromkeys(loaded, end))
        for metadata in loaded.values():
            if metadata.state.is_prepared:
                log.info("%.200r was %s when the broker stopped", metadata.transactional_id, metadata.state.label)
                self._prepared[metadata.transactional_id] = None
        return loaded

    def close_all(self) -> None:
        """The topic is gone: its ids are unknown."""
        for partition in self.runtime.served():
            self.runtime.remove(partition)
        self._prepared.clear()

    def shutdown(self) -> None:
        """Afterwards all ids are COORDINATOR_NOT_AVAILABLE. What is prepared is completed at the next start."""
        self.runtime.stop()
        self.close_all()

    def _partition(self, transactional_id: str) -> tuple[int, Transactions]:
        """Raises BrokerError: coordinator_load_in_progress, not_coordinator, coordinator_not_available."""
        partition = self.runtime.partition_for(transactional_id)
        if partition not in self.runtime.log.owned():
            self.runtime.check_running()
            raise BrokerError(ErrorCode.not_coordinator, f"__transaction_state-{partition} is not here")
        return partition, self.runtime.get(partition)

    def _known(self, transactional_id: str) -> TransactionMetadata:
        """Raises BrokerError: invalid_request, invalid_producer_id_mapping, and those of _partition."""
        if not transactional_id:
            raise BrokerError(ErrorCode.invalid_request, "the transactional id is empty")
        metadata = self._partition(transactional_id)[1].get(transactional_id)
        if metadata is None:
            raise BrokerError(
                ErrorCode.invalid_producer_id_mapping, f"there is no transactional id {transactional_id!r}"
            )
        return metadata

    def write(self, metadata: TransactionMetadata, *, is_awaited: bool = True) -> None:
        """Raises BrokerError; then nothing has changed. is_awaited: as for CoordinatorLog.append."""
        transactional_id = metadata.transactional_id
        partition, transactions = self._partition(transactional_id)
        record = transaction_key(transactional_id), transaction_value(metadata)
        offset = self.runtime.append(partition, [record], is_awaited=is_awaited)
        transactions[transactional_id] = metadata
        if is_awaited and self._flushes is not None and self._flushes.registered:
            self._unflushed_ends[transactional_id] = offset + 1
        if metadata.state.is_prepared:
            self._prepared[transactional_id] = None
        else:
            self._prepared.pop(transactional_id, None)

    def unflushed(self, transactional_id: str) -> tuple[Log, int] | None:
        """What to flush before the last record of an id is on disk: its log, and up to which offset.

        None if it is on disk, or if flush.messages is not 1. A batch or a marker of a transaction must not be appended
        before: a flush of its log could put it on disk while the record that owns it is lost in a power cut.

        Raises:
            BrokerError: coordinator_not_available, if the log is not here.
        """
        end = self._unflushed_ends.get(transactional_id)
        if end is None:
            return None
        state = self.runtime.log.log(self.runtime.partition_for(transactional_id))
        if state.config.flush_messages == EVERY_APPEND and state.recovery_point < end <= state.log_end_offset:
            return state, end
        del self._unflushed_ends[transactional_id]
        return None

    def served(self) -> list[TransactionMetadata]:
        """Metadata of all ids in the partitions that are loaded."""
        return [metadata for transactions in self.runtime.served().values() for metadata in transactions.values()]

    def all(self) -> list[TransactionMetadata]:
        return [metadata for transactions in self.runtime.all() for metadata in transactions.values()]

    def _next_producer_id(self) -> int:
        try:
            return self._new_producer_id()
        except OSError as error:
            raise BrokerError(ErrorCode.coordinator_not_available, f"no producer id to give out: {error}") from error

    # ---- InitProducerId

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        """A producer begins; `expected` is what it has when it goes on after an error (KIP-360). An open transaction is
        prepared to be aborted, and the producer asked to try again. Raises BrokerError: invalid_request,
        invalid_transaction_timeout, concurrent_transactions, producer_fenced."""
        if not transactional_id:
            raise BrokerError(ErrorCode.invalid_request, "the transactional id is empty")
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            raise BrokerError(
                ErrorCode.invalid_transaction_timeout,
                f"transaction.timeout.ms is {timeout_ms}, it must be within 1 and transaction.max.timeout.ms, "
                f"{self.config.transaction_max_timeout_ms}",
            )
        now_ms = self._clock.now_ms()
        metadata = self._partition(transactional_id)[1].get(transactional_id)
        if metadata is None:
            metadata = TransactionMetadata(
                transactional_id=transactional_id, producer_id=self._next_producer_id(),
                producer_epoch=NO_PRODUCER_EPOCH, timeout_ms=timeout_ms, last_update_ms=now_ms,
            )  # fmt: skip
        elif expected is not None and not (
            metadata.producer_epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == metadata.producer_id
            # its last epoch was used up and the answer was lost
            or (expected.producer_id == metadata.previous_producer_id and expected.epoch >= LAST_EPOCH)
        ):
            raise metadata.fenced(expected.epoch)
        if metadata.state.is_prepared:
            raise metadata.busy()
        if metadata.state is TransactionState.ONGOING:
            raise self._prepare(metadata, now_ms).busy()
        expected_epoch = None if expected is None else expected.epoch
        new = metadata.begun(timeout_ms, expected_epoch, now_ms, self._next_producer_id)
        self.write(new)
        log.info("%.200r begins with producer id %d, epoch %d", transactional_id, new.producer_id, new.producer_epoch)
        return new.producer

    def _prepare(
        self, metadata: TransactionMetadata, now_ms: int, *, commit: bool = False, client_version: int = EPOCH_BUMP
    ) -> TransactionMetadata:
        raises_epoch = client_version >= EPOCH_BUMP
        following = self._next_producer_id() if raises_epoch and metadata.is_exhausted else NO_PRODUCER_ID
        new = metadata.prepared(commit=commit, client_version=client_version, next_producer_id=following, now_ms=now_ms)
        self.write(new)
        return new

    # ---- AddPartitionsToTxn, AddOffsetsToTxn, and Produce and TxnOffsetCommit of the second version

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> None:
        """Raises BrokerError: invalid_request, invalid_producer_id_mapping, producer_fenced, concurrent_transactions
        and those of a coordinator that is not ready."""
        metadata = self._known(transactional_id)
        self._check_producer(metadata, producer)
        if metadata.state is TransactionState.ONGOING and partitions <= metadata.partitions:
            return
        self.write(metadata.with_partitions(partitions, client_version, self._clock.now_ms()))

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """NONE for those that are in the open transaction, else TRANSACTION_ABORTABLE. Raises as add_partitions."""
        metadata = self._known(transactional_id)
        self._check_producer(metadata, producer)
        return {
            partition: ErrorCode.none if partition in metadata.partitions else ErrorCode.transaction_abortable
            for partition in partitions
        }

    def _check_producer(self, metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> None:
        if producer.producer_id != metadata.producer_id:
            raise metadata.wrong_producer_id(producer.producer_id)
        if producer.epoch != metadata.producer_epoch:
            raise metadata.fenced(producer.epoch)
        if metadata.state.is_prepared:
            raise metadata.busy()

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition, speaks: Speaks
    ) -> None:
        """Raise BrokerError unless the open transaction holds the partition, or does now: invalid_producer_id_mapping,
        invalid_producer_epoch, invalid_txn_state or transaction_abortable, concurrent_transactions, or NOT_READY."""
        try:
            if speaks is Speaks.ADDS_PARTITIONS:
                self.add_partitions(transactional_id, producer, frozenset({partition}), EPOCH_BUMP)
                return
            code = self.verify_partitions(transactional_id, producer, {partition})[partition]
        except BrokerError as error:
            if error.code is ErrorCode.producer_fenced:  # what producers have known since their first version
                raise BrokerError(ErrorCode.invalid_producer_epoch, error.what) from error
            raise
        if code is not ErrorCode.none:
            raise BrokerError(
                code if speaks is Speaks.ABORTABLE else ErrorCode.invalid_txn_state,
                f"{partition} was not added to the transaction of {transactional_id!r}",
            )

    # ---- EndTxn

    def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int
    ) -> ProducerIdAndEpoch:
        """Prepare to commit or to abort: `complete` does the rest. What the producer goes on with, in the second
        version another epoch. Raises BrokerError, see end_transaction."""
        metadata = self._known(transactional_id)
        if not ends(metadata, producer, commit=commit, client_version=client_version):
            return metadata.producer
        now_ms = self._clock.now_ms()
        return self._prepare(metadata, now_ms, commit=commit, client_version=client_version).completed(now_ms).producer

    @property
    def prepared(self) -> list[str]:
        """The ids whose transactions wait to be completed, the oldest first."""
        return list(self._prepared)

    def is_prepared(self, transactional_id: str) -> bool:
        return transactional_id in self._prepared

    def write_markers(self, transactional_id: str) -> list[TopicPartition]:
        """Write the outstanding markers of a prepared transaction, whose decision must be on disk.

        Returns:
            The partitions that have the marker now, or will never take one.

        Raises:
            BrokerError: If the id is not here.
        """
        metadata = self._known(transactional_id)
        partition, _ = self._partition(transactional_id)
        marker = EndMarker(
            *metadata.producer, commit=metadata.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self.runtime.log.leader_epoch(partition), transaction_version=metadata.client_version,
        )  # fmt: skip
        return [wanted for wanted in sorted(metadata.partitions) if self._mark(transactional_id, wanted, marker)]

    def complete(self, transactional_id: str, marked: Iterable[TopicPartition]) -> bool:
        """Complete a prepared transaction, if no marker is outstanding. Raises BrokerError.

        Args:
            marked: Partitions whose marker is on disk. They get no other one while this process lives.

        Returns:
            False if a partition has not taken its marker yet.
        """
        metadata = self._known(transactional_id)
        _, transactions = self._partition(transactional_id)
        # In memory only: after a crash the partitions in the log get the marker a second time, which does no harm.
        metadata = replace(metadata, partitions=metadata.partitions.difference(marked))
        transactions[transactional_id] = metadata
        if metadata.partitions:
            return False
        # No response waits for this record: after a power cut the transaction is prepared, and is completed again.
        self.write(metadata.completed(self._clock.now_ms()), is_awaited=False)
        return True

    def _mark(self, transactional_id: str, partition: TopicPartition, marker: EndMarker) -> bool:
        try:
            self._write_marker(partition, marker)
        except BrokerError as error:
            if error.code is ErrorCode.unknown_topic_or_partition:
                log.info("%.200r: %s has been deleted and gets no marker", transactional_id, partition)
            elif error.code in (ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced):
                # Only a marker that an administrator wrote can be ahead of the coordinator: it has ended what was open.
                log.warning("%.200r: %s takes no marker: %s", transactional_id, partition, error)
            else:
                log.info("%.200r: the marker of %s is tried again: %s", transactional_id, partition, error)
                return False
        return True

    # ---- what happens by itself

    def tick(self, now_ms: int) -> None:
        """Prepare to abort what timed out, forget ids that nobody uses; each when its interval is over."""
        monotonic_ms = self._clock.monotonic_ms()
        if monotonic_ms >= self._next_abort_ms:
            self._next_abort_ms = monotonic_ms + self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self._abort_timed_out(now_ms)
        if monotonic_ms >= self._next_expiry_ms:
            self._next_expiry_ms = monotonic_ms + self.config.transaction_remove_expired_transaction_cleanup_interval_ms
            self._remove_expired(now_ms)

    def _abort_timed_out(self, now_ms: int) -> None:
        for metadata in self.served():
            if metadata.state is not TransactionState.ONGOING or metadata.start_ms + metadata.timeout_ms >= now_ms:
                continue
            try:
                self._prepare(metadata, now_ms)
            except BrokerError as error:
                log.warning("%.200r timed out and cannot be aborted: %s", metadata.transactional_id, error)
            else:
                log.info("%.200r timed out after %d ms", metadata.transactional_id, metadata.timeout_ms)

    def _remove_expired(self, now_ms: int) -> None:
        for partition, transactions in self.runtime.served().items():
            oldest_ms = now_ms - self.config.transactional_id_expiration_ms
            gone = [
                key for key, metadata in transactions.items()
                if metadata.state.may_expire and metadata.last_update_ms <= oldest_ms
            ]  # fmt: skip
            for at in range(0, len(gone), MAX_TOMBSTONES_PER_BATCH):
                some = gone[at : at + MAX_TOMBSTONES_PER_BATCH]
                try:
                    self.runtime.log.append(partition, [(transaction_key(key), None) for key in some])
                except BrokerError as error:
                    log.warning("__transaction_state-%d: unused ids remain: %s", partition, error)
                    break
                for key in some:
                    del transactions[key]

    # ---- administration

    def describe(self, transactional_id: str) -> TransactionMetadata:
        try:
            return self._known(transactional_id)
        except BrokerError as error:
            if error.code is not ErrorCode.invalid_producer_id_mapping:
                raise
            raise BrokerError(ErrorCode.transactional_id_not_found, error.what) from None


# Verification of transactions (KIP-890): a batch may begin one in a partition only if the coordinator knows of it.
#
# Without this, a batch that was delayed in the network could arrive after its transaction had ended and open one
# that nobody ever ends. Answer and append are one step of the event loop, so no end of the transaction can come
# between.


class Speaks(Enum):
    """Behaviour of a client by its version of Produce or TxnOffsetCommit (TransactionSupportedOperation)."""

    CLASSIC = "INVALID_TXN_STATE for a partition that was not added"
    ABORTABLE = "TRANSACTION_ABORTABLE instead"
    ADDS_PARTITIONS = "partitions are added by writing to them"

    @classmethod
    def of(cls, version: int, abortable: int) -> Speaks:
        """abortable: the one version of the API that is ABORTABLE."""
        return cls.CLASSIC if version < abortable else cls.ABORTABLE if version == abortable else cls.ADDS_PARTITIONS


PRODUCE_ABORTABLE, TXN_OFFSET_COMMIT_ABORTABLE = 11, 4

NOT_READY = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)
"""Codes of a coordinator that is to be asked again."""


def produce_error(error: BrokerError, speaks: Speaks) -> BrokerError:
    """As a producer is answered: what passes is NOT_ENOUGH_REPLICAS, which every client tries again without asking for
    metadata. Clients of the second version know CONCURRENT_TRANSACTIONS too."""
    passes = error.code in NOT_READY or (
        error.code is ErrorCode.concurrent_transactions and speaks is not Speaks.ADDS_PARTITIONS
    )
    if not passes:
        return error
    return BrokerError(
        ErrorCode.not_enough_replicas,
        f"the coordinator does not know yet whether the partition belongs to the transaction: {error.what}",
    )


# ---- how transactions end, in the order in which it must be on disk: the decision, the markers, that it is done.
#
# With the default flush policy nothing here waits: all of it is in the page cache before the producer's response
# leaves, in this order, so that kill -9 at any point leaves a transaction that the next start completes. With
# flush.messages=1 each step is on disk before the next one is appended: the decision before the first marker, and all
# markers before the record that completes the transaction. Otherwise a flush of another transaction in the same
# partition could put a later step on disk alone. Kafka has the same order, as its appends flush.

_RETRY_S = 0.1
"""Until partitions that took no marker are asked again: as long as clients wait after CONCURRENT_TRANSACTIONS."""


class TransactionEnds:
    """Completes what the transaction coordinator has prepared. All calls come from the event loop's thread."""

    def __init__(self, coordinator: TransactionCoordinator, log_of: LogOf, flushes: LogFlushes) -> None:
        """flushes: as those of the coordinator."""
        self._coordinator = coordinator
        self._log_of = log_of
        self._flushes = flushes
        self._in_work: dict[str, asyncio.Event] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._completing: asyncio.Task[None] | None = None
        self._stopped = False

    async def flush(self, transactional_id: str) -> None:
        """Return when the last record of an id is on disk, or its flush.messages is not 1. Raises BrokerError."""
        while (unflushed := self._coordinator.unflushed(transactional_id)) is not None:
            try:
                await self._flushes.flush(*unflushed)
            except BrokerError as error:
                raise BrokerError(coordinator_error_code(error.code), error.what) from error

    async def complete(self, transactional_id: str) -> None:
        """Complete a prepared transaction, as far as its partitions take markers now; the rest is tried again.

        Another caller that is completing it does so for this one too.
        """
        if not self._coordinator.is_prepared(transactional_id):
            return
        ended = self._in_work.get(transactional_id)
        if ended is not None:
            await ended.wait()
            return
        ended = self._in_work[transactional_id] = asyncio.Event()
        try:
            done = await self._completed(transactional_id)
        except BrokerError as error:
            log.warning("the transaction of %r is not complete yet: %s", transactional_id, error)
            done = False
        finally:
            del self._in_work[transactional_id]
            ended.set()
        if not done:
            self.complete_soon(_RETRY_S)

    async def _completed(self, transactional_id: str) -> bool:
        transactions = self._coordinator
        await self.flush(transactional_id)
        if not transactions.is_prepared(transactional_id):
            return True  # its topic was deleted meanwhile
        marked = transactions.write_markers(transactional_id)
        unflushed = []
        for partition in marked:
            try:
                marked_log = self._log_of(*partition)
            except BrokerError:
                continue  # it has been deleted: there is nothing to flush
            if marked_log.config.flush_messages == EVERY_APPEND:
                unflushed.append(self._flushes.flush(marked_log, marked_log.log_end_offset))
        if unflushed:
            # One that fails leaves its log offline. The marker is written again when the log is back.
            await asyncio.gather(*unflushed)
            if not transactions.is_prepared(transactional_id):
                return True
        return transactions.complete(transactional_id, marked)

    def complete_soon(self, delay_s: float = 0.0) -> None:
        """Complete all that is prepared in a task of its own."""
        if self._retry is None and not self._stopped and self._coordinator.prepared:
            self._retry = asyncio.get_running_loop().call_later(delay_s, self._begin)

    def _begin(self) -> None:
        self._retry = None
        if self._completing is None or self._completing.done():
            self._completing = asyncio.create_task(self._complete_all())
        else:
            self.complete_soon(_RETRY_S)

    async def _complete_all(self) -> None:
        for transactional_id in self._coordinator.prepared:
            await self.complete(transactional_id)

    async def stop(self) -> None:
        """Stop; prepared transactions are completed after the next start."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        if self._completing is not None:
            await asyncio.gather(self._completing, return_exceptions=True)


def marker_writer(offsets: GroupCoordinator, log_of: LogOf, clock: Clock) -> WriteMarker:
    """Writes markers into partitions that are here; offsets that a transaction has committed count from the moment at
    which its marker is in __consumer_offsets."""

    def write(partition: TopicPartition, marker: EndMarker) -> None:
        is_offsets = partition.topic == OFFSETS_TOPIC
        if is_offsets:
            offsets.runtime.check_loaded(partition.partition)
        log_of(*partition).append_control(
            marker.control_type, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, clock.now_ms(),
            transaction_version=marker.transaction_version,
        )  # fmt: skip
        if is_offsets:
            offsets.end_transaction(partition.partition, marker.producer_id, commit=marker.commit)

    return write
