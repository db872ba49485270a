"""The transaction coordinator, which manages transactional IDs and persists them in __transaction_state (Kafka's
TransactionCoordinator and TransactionStateManager).

A transactional ID belongs to one partition of __transaction_state. If that partition is on another broker, requests
fail with NOT_COORDINATOR.

A change is applied in memory only after it was written to __transaction_state. A transaction ends in three steps: its
outcome is prepared, markers are written into its partitions, and it is completed. `TransactionEnds` makes the second
and third step for all `prepared` transactions, including those that were prepared before a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.coordinator_record import MAX_TOMBSTONES_PER_BATCH, ProducerIdAndEpoch
from kafkalog_broker.coordinator.coordinator_result import CoordinatorResult
from kafkalog_broker.coordinator.coordinator_runtime import CoordinatorRuntime
from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition.log import EVERY_APPEND, Log
from kafkalog_broker.transactions.end_request_check import must_prepare_end
from kafkalog_broker.transactions.transaction_marker import EndMarker, WriteMarker
from kafkalog_broker.transactions.transaction_metadata import (
    EPOCH_BUMP,
    LAST_EPOCH,
    TopicPartition,
    TransactionMetadata,
)
from kafkalog_broker.transactions.transaction_records import Transactions, load
from kafkalog_broker.transactions.transaction_shard import TransactionShard, TransactionTombstone
from kafkalog_broker.transactions.transaction_state import TransactionState
from kafkalog_broker.transactions.transaction_verification import SupportedOperation
from kafkalog_spark.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnflushedRecord:
    """A record that is not on disk until `log` is flushed up to the offset `end`."""

    log: Log
    end: int


class TransactionCoordinator:
    """The transactional IDs of this broker. Not thread-safe; call from the event loop. No method waits."""

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
        """Create a coordinator that has loaded no partitions yet.

        Args:
            state_log: The topic __transaction_state.
            new_producer_id: Returns an unused producer ID; raises OSError.
            flushes: Flushes of `state_log`; None if it is never flushed.
        """
        self.config = config
        self._clock = clock
        self.runtime: CoordinatorRuntime[Transactions, TransactionShard] = CoordinatorRuntime(
            state_log, load, self._create_shard
        )
        self._prepared: dict[str, None] = {}  # transactional IDs, the oldest first
        self._flushes = flushes
        self._unflushed_ends: dict[str, int] = {}
        """By transactional ID, the offset up to which its partition must be flushed; empty without flush.messages=1."""
        self._write_marker = write_marker
        self._new_producer_id = new_producer_id
        started_ms = clock.monotonic_ms()
        self._next_abort_ms = started_ms + config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._next_expiry_ms = started_ms + config.transaction_remove_expired_transaction_cleanup_interval_ms

    def _create_shard(self, partition: int, loaded: Transactions) -> TransactionShard:
        self._note_unflushed(partition, loaded)
        return TransactionShard(loaded, self._prepared)

    def close_all(self) -> None:
        """Unload all transactional IDs, because __transaction_state was deleted."""
        self.runtime.unload_all()
        self._prepared.clear()

    def shutdown(self) -> None:
        """Fail all further requests with COORDINATOR_NOT_AVAILABLE. The next start completes prepared transactions."""
        self.runtime.stop()
        self.close_all()

    def _partition_of(self, transactional_id: str) -> int:
        """Return the partition of an ID. Raises BrokerError not_coordinator if it is on another broker."""
        partition = self.runtime.partition_for(transactional_id)
        if partition not in self.runtime.log.owned():
            self.runtime.check_running()
            raise BrokerError(ErrorCode.not_coordinator, f"__transaction_state-{partition} is not on this broker")
        return partition

    def _shard_of(self, transactional_id: str) -> TransactionShard:
        """Return the shard of an ID. Raises BrokerError coordinator_load_in_progress, not_coordinator or
        coordinator_not_available."""
        return self.runtime.get(self._partition_of(transactional_id))

    def write(self, metadata: TransactionMetadata, *, is_awaited: bool = True) -> None:
        """Write the metadata of a transactional ID, and apply it.

        Args:
            is_awaited: See `CoordinatorLog.append`.

        Raises:
            BrokerError: If the metadata cannot be written; then nothing has changed.
        """
        transactional_id = metadata.transactional_id
        partition = self._partition_of(transactional_id)
        self.runtime.run(partition, lambda shard: CoordinatorResult([metadata], None, is_awaited=is_awaited))
        if is_awaited:
            self._note_unflushed(partition, [transactional_id])

    def _note_unflushed(self, partition: int, transactional_ids: Iterable[str]) -> None:
        """Remember that the last records of these IDs may not be on disk."""
        if self._flushes is not None and self._flushes.registered:
            end = self.runtime.log.log(partition).log_end_offset
            self._unflushed_ends.update(dict.fromkeys(transactional_ids, end))

    def unflushed(self, transactional_id: str) -> UnflushedRecord | None:
        """Return the last record of a transactional ID if it is not on disk although flush.messages is 1.

        Until then, no batch and no marker of the transaction may be appended. Otherwise a flush of another log could
        put the batch on disk, while a power cut loses the record that adds the partition to the transaction.

        Raises:
            BrokerError: coordinator_not_available, if the log is not on this broker.
        """
        end = self._unflushed_ends.get(transactional_id)
        if end is None:
            return None
        state = self.runtime.log.log(self.runtime.partition_for(transactional_id))
        if state.config.flush_messages == EVERY_APPEND and state.recovery_point < end <= state.log_end_offset:
            return UnflushedRecord(state, end)
        del self._unflushed_ends[transactional_id]
        return None

    def loaded_metadata(self) -> list[TransactionMetadata]:
        """Return the metadata of all IDs in partitions that are loaded."""
        return [metadata for shard in self.runtime.loaded_shards().values() for metadata in shard.transactions.values()]

    def all_metadata(self) -> list[TransactionMetadata]:
        """Return the metadata of all IDs, after loading partitions that are not loaded. Raises as
        `CoordinatorRuntime.all_shards`."""
        return [metadata for shard in self.runtime.all_shards() for metadata in shard.transactions.values()]

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Return the metadata of an ID. Raises BrokerError as `end`, but transactional_id_not_found if it is
        unknown."""
        try:
            return self._existing_metadata(transactional_id)
        except BrokerError as error:
            if error.code is not ErrorCode.invalid_producer_id_mapping:
                raise
            raise BrokerError(ErrorCode.transactional_id_not_found, error.what) from None

    def _existing_metadata(self, transactional_id: str) -> TransactionMetadata:
        """Return the metadata of an ID. Raises BrokerError invalid_request, invalid_producer_id_mapping, and as
        `_shard_of`."""
        if not transactional_id:
            raise BrokerError(ErrorCode.invalid_request, "the transactional id is empty")
        metadata = self._shard_of(transactional_id).transactions.get(transactional_id)
        if metadata is None:
            raise BrokerError(
                ErrorCode.invalid_producer_id_mapping, f"there is no transactional id {transactional_id!r}"
            )
        return metadata

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        """Return producer ID and epoch for a producer that starts.

        An open transaction is prepared to be aborted, and the request fails with concurrent_transactions.

        Args:
            expected: Current ID and epoch of a producer that continues after an error (KIP-360).

        Raises:
            BrokerError: invalid_request, invalid_transaction_timeout, concurrent_transactions, producer_fenced, or an
                error of a coordinator that is not ready.
        """
        if not transactional_id:
            raise BrokerError(ErrorCode.invalid_request, "the transactional id is empty")
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            raise BrokerError(
                ErrorCode.invalid_transaction_timeout,
                f"transaction.timeout.ms is {timeout_ms}, it must be within 1 and transaction.max.timeout.ms, "
                f"{self.config.transaction_max_timeout_ms}",
            )
        now_ms = self._clock.now_ms()
        metadata = self._shard_of(transactional_id).transactions.get(transactional_id)
        if metadata is None:
            metadata = TransactionMetadata(
                transactional_id=transactional_id, producer_id=self._next_producer_id(),
                producer_epoch=NO_PRODUCER_EPOCH, timeout_ms=timeout_ms, last_update_ms=now_ms,
            )  # fmt: skip
        elif expected is not None and not _is_expected(metadata, expected):
            raise metadata.fenced_error(expected.epoch)
        if metadata.state.is_prepared:
            raise metadata.concurrent_error()
        if metadata.state is TransactionState.ONGOING:
            prepared = self._prepare(metadata, now_ms)
            raise prepared.concurrent_error()
        expected_epoch = None if expected is None else expected.epoch
        new = metadata.with_producer(timeout_ms, expected_epoch, now_ms, self._next_producer_id)
        self.write(new)
        _log.info(
            "transactional id %.200r: a producer starts with producer id %d, epoch %d",
            transactional_id,
            new.producer_id,
            new.producer_epoch,
        )
        return new.producer

    def _next_producer_id(self) -> int:
        try:
            return self._new_producer_id()
        except OSError as error:
            raise BrokerError(ErrorCode.coordinator_not_available, f"no producer id is available: {error}") from error

    def _prepare(
        self, metadata: TransactionMetadata, now_ms: int, *, commit: bool = False, client_version: int = EPOCH_BUMP
    ) -> TransactionMetadata:
        """Write the outcome of a transaction, and return the prepared metadata."""
        needs_producer_id = client_version >= EPOCH_BUMP and metadata.is_exhausted
        next_producer_id = self._next_producer_id() if needs_producer_id else NO_PRODUCER_ID
        new = metadata.prepared(
            commit=commit, client_version=client_version, next_producer_id=next_producer_id, now_ms=now_ms
        )
        self.write(new)
        return new

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> None:
        """Add partitions to the open transaction, or start one with them.

        Raises:
            BrokerError: invalid_request, invalid_producer_id_mapping, producer_fenced, concurrent_transactions, or an
                error of a coordinator that is not ready.
        """
        metadata = self._existing_metadata(transactional_id)
        self._check_producer(metadata, producer)
        if metadata.state is TransactionState.ONGOING and partitions <= metadata.partitions:
            return
        self.write(metadata.with_partitions(partitions, client_version, self._clock.now_ms()))

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return `none` for partitions in the open transaction, and transaction_abortable for others. Raises as
        `add_partitions`."""
        metadata = self._existing_metadata(transactional_id)
        self._check_producer(metadata, producer)
        return {
            partition: ErrorCode.none if partition in metadata.partitions else ErrorCode.transaction_abortable
            for partition in partitions
        }

    def _check_producer(self, metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> None:
        if producer.producer_id != metadata.producer_id:
            raise metadata.wrong_producer_id_error(producer.producer_id)
        if producer.epoch != metadata.producer_epoch:
            raise metadata.fenced_error(producer.epoch)
        if metadata.state.is_prepared:
            raise metadata.concurrent_error()

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition,
        operation: SupportedOperation,
    ) -> None:  # fmt: skip
        """Check that a partition is in the open transaction. With ADD_PARTITION, add the partition if it is not.

        Raises:
            BrokerError: invalid_producer_id_mapping, invalid_producer_epoch, concurrent_transactions or one of
                NOT_READY. For a partition that is not in the transaction: invalid_txn_state, or the code of
                `verify_partitions` if `operation` is GENERIC_ERROR.
        """
        try:
            if operation is SupportedOperation.ADD_PARTITION:
                self.add_partitions(transactional_id, producer, frozenset({partition}), EPOCH_BUMP)
                return
            code = self.verify_partitions(transactional_id, producer, {partition})[partition]
        except BrokerError as error:
            if error.code is ErrorCode.producer_fenced:  # old clients know only invalid_producer_epoch
                raise BrokerError(ErrorCode.invalid_producer_epoch, error.what) from error
            raise
        if code is not ErrorCode.none:
            raise BrokerError(
                code if operation is SupportedOperation.GENERIC_ERROR else ErrorCode.invalid_txn_state,
                f"{partition} was not added to the transaction of {transactional_id!r}",
            )

    def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int
    ) -> ProducerIdAndEpoch:
        """Prepare to commit or abort a transaction; `TransactionEnds.complete` does the rest.

        Returns:
            Producer ID and epoch with which the producer continues: with EPOCH_BUMP the next epoch.

        Raises:
            BrokerError: As `add_partitions`, or invalid_txn_state.
        """
        metadata = self._existing_metadata(transactional_id)
        if not must_prepare_end(metadata, producer, commit=commit, client_version=client_version):
            return metadata.producer
        now_ms = self._clock.now_ms()
        return self._prepare(metadata, now_ms, commit=commit, client_version=client_version).completed(now_ms).producer

    @property
    def prepared(self) -> list[str]:
        """Transactional IDs with a prepared transaction, the oldest first."""
        return list(self._prepared)

    def is_prepared(self, transactional_id: str) -> bool:
        return transactional_id in self._prepared

    def write_markers(self, transactional_id: str) -> list[TopicPartition]:
        """Write the outstanding markers of a prepared transaction. Its outcome must be on disk.

        Returns:
            The partitions that have the marker now or do not need it any more.

        Raises:
            BrokerError: If the ID is not on this broker.
        """
        metadata = self._existing_metadata(transactional_id)
        marker = EndMarker(
            *metadata.producer, commit=metadata.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self.runtime.log.leader_epoch(self._partition_of(transactional_id)),
            transaction_version=metadata.client_version,
        )  # fmt: skip
        return [
            partition
            for partition in sorted(metadata.partitions)
            if self._try_marker(transactional_id, partition, marker)
        ]

    def _try_marker(self, transactional_id: str, partition: TopicPartition, marker: EndMarker) -> bool:
        """Return False if the marker has to be written again later."""
        try:
            self._write_marker(partition, marker)
        except BrokerError as error:
            if error.code is ErrorCode.unknown_topic_or_partition:
                _log.info(
                    "transactional id %.200r: %s has been deleted and needs no marker", transactional_id, partition
                )
            elif error.code in (ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced):
                # The partition has a newer marker. Only an administrator can have written it, to end the transaction.
                _log.warning("transactional id %.200r: %s refuses the marker: %s", transactional_id, partition, error)
            else:
                _log.info(
                    "transactional id %.200r: the marker of %s is retried: %s", transactional_id, partition, error
                )
                return False
        return True

    def complete(self, transactional_id: str, marked: Iterable[TopicPartition]) -> bool:
        """Complete a prepared transaction if no marker is outstanding.

        Args:
            marked: Partitions whose marker is on disk. Their marker is not written again by this process.

        Returns:
            False if a marker is outstanding.

        Raises:
            BrokerError: If the ID is not on this broker or the completion cannot be written.
        """
        metadata = self._existing_metadata(transactional_id)
        # Not persisted: after a crash these partitions get a second marker, which has no effect.
        metadata = replace(metadata, partitions=metadata.partitions.difference(marked))
        self._shard_of(transactional_id).transactions[transactional_id] = metadata
        if metadata.partitions:
            return False
        # No response waits for this record: after a power cut the transaction is prepared, and is completed again.
        self.write(metadata.completed(self._clock.now_ms()), is_awaited=False)
        return True

    def tick(self, now_ms: int) -> None:
        """Abort timed out transactions and remove expired transactional IDs, each at its interval."""
        monotonic_ms = self._clock.monotonic_ms()
        if monotonic_ms >= self._next_abort_ms:
            self._next_abort_ms = monotonic_ms + self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self._abort_timed_out(now_ms)
        if monotonic_ms >= self._next_expiry_ms:
            self._next_expiry_ms = monotonic_ms + self.config.transaction_remove_expired_transaction_cleanup_interval_ms
            self._remove_expired(now_ms)

    def _abort_timed_out(self, now_ms: int) -> None:
        for metadata in self.loaded_metadata():
            if metadata.state is not TransactionState.ONGOING or metadata.start_ms + metadata.timeout_ms >= now_ms:
                continue
            try:
                self._prepare(metadata, now_ms)
            except BrokerError as error:
                _log.warning(
                    "transactional id %.200r: the transaction timed out and cannot be aborted: %s",
                    metadata.transactional_id,
                    error,
                )
            else:
                _log.info(
                    "transactional id %.200r: the transaction timed out after %d ms",
                    metadata.transactional_id,
                    metadata.timeout_ms,
                )

    def _remove_expired(self, now_ms: int) -> None:
        last_valid_ms = now_ms - self.config.transactional_id_expiration_ms
        for partition, shard in self.runtime.loaded_shards().items():
            expired = [
                TransactionTombstone(metadata.transactional_id)
                for metadata in shard.transactions.values()
                if metadata.state.may_expire and metadata.last_update_ms <= last_valid_ms
            ]
            for at in range(0, len(expired), MAX_TOMBSTONES_PER_BATCH):
                tombstones = expired[at : at + MAX_TOMBSTONES_PER_BATCH]
                try:
                    self.runtime.commit(partition, CoordinatorResult(tombstones, None))
                except BrokerError as error:
                    _log.warning("__transaction_state-%d: expired ids cannot be removed: %s", partition, error)
                    break


def _is_expected(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Return whether `expected` may be the ID of a producer that continues after an error (KIP-360)."""
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == metadata.producer_id
        # The epochs of its previous ID are exhausted, and it did not receive the response with the new ID.
        or (expected.producer_id == metadata.previous_producer_id and expected.epoch >= LAST_EPOCH)
    )
