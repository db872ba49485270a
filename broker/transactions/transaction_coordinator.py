"""The transaction coordinator: which transactional ids there are, and what may be done to them.

What changes is in __transaction_state before it is in memory. A transaction ends in three steps: it is prepared (how it
ends is written down), its markers are written into its partitions, and it is completed. `prepared` are those between
the first and the last step; `complete` does the rest, as often as it takes. After a crash they are found in
__transaction_state, and go the same way.

One process need not own every partition of __transaction_state: an id whose partition is another's is answered
NOT_COORDINATOR.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from broker.clock import Clock
from broker.errors import BrokerError, ErrorCode
from broker.groups.offset_batches import OffsetsBatch, Record
from broker.groups.rebalance import write_error
from broker.transactions.end_transaction import ends
from broker.transactions.loading import Transactions, load
from broker.transactions.transaction_config import TransactionConfig, partition_for
from broker.transactions.transaction_markers import EndMarker, WriteMarker
from broker.transactions.transaction_metadata import (
    EPOCH_BUMP,
    LAST_EPOCH,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionMetadata,
)
from broker.transactions.transaction_records import transaction_key, transaction_value
from broker.transactions.transaction_state import TransactionState
from kafkalog_spark.log.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

log = logging.getLogger(__name__)

_TOMBSTONES_A_WRITE = 1_000
"""Some 100 KB a batch, far from message.max.bytes."""


class StateLog(Protocol):
    """__transaction_state."""

    @property
    def partitions(self) -> int:
        """How many there are, or will be."""

    def owned(self) -> Iterable[int]:
        """Those that are here."""

    def append(self, partition: int, records: Sequence[Record]) -> None:
        """One batch. Raises BrokerError."""

    def scan(self, partition: int) -> Iterable[OffsetsBatch]:
        """All batches. Raises BrokerError."""

    def coordinator_epoch(self, partition: int) -> int:
        """The leader epoch of the partition: markers of an older one are refused. Raises BrokerError."""


class TransactionCoordinator:
    """All calls come from one thread (the event loop's). Nothing here waits.

    write_marker: writes a marker into a partition, see transaction_markers. new_producer_id: one that nobody had
    before; raises OSError.
    """

    def __init__(
        self,
        config: TransactionConfig,
        *,
        clock: Clock,
        state_log: StateLog,
        write_marker: WriteMarker,
        new_producer_id: Callable[[], int],
    ) -> None:
        self.config = config
        self._clock = clock
        self._state_log = state_log
        self._write_marker = write_marker
        self._new_producer_id = new_producer_id
        self._transactions: dict[int, Transactions] = {}
        self._loading: set[int] = set()
        self._prepared: dict[str, None] = {}
        self._stopped = False
        now_ms = clock.now_ms()
        self._next_abort_ms = now_ms + config.abort_timed_out_interval_ms
        self._next_expiry_ms = now_ms + config.remove_expired_interval_ms

    # ---- partitions of __transaction_state

    def partition_for(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self._state_log.partitions)

    def begin_loading(self, partition: int) -> None:
        """Answer COORDINATOR_LOAD_IN_PROGRESS until `open` or `give_up`."""
        self._loading.add(partition)

    def open(self, partition: int, loaded: Transactions) -> None:
        """Serve a partition. `loaded` comes from `loading.load`, which may have run in another thread."""
        self._loading.discard(partition)
        if partition in self._transactions or self._stopped:
            return
        self._transactions[partition] = loaded
        for metadata in loaded.values():
            if metadata.state.is_prepared:
                log.info("%r was %s when the broker stopped", metadata.transactional_id, metadata.state.label)
                self._prepared[metadata.transactional_id] = None

    def give_up(self, partition: int) -> None:
        """Loading has failed; the next use tries again."""
        self._loading.discard(partition)

    def close_all(self) -> None:
        """The topic is gone: its ids are unknown."""
        self._transactions.clear()
        self._prepared.clear()

    def shutdown(self) -> None:
        """Afterwards all ids are COORDINATOR_NOT_AVAILABLE. What is prepared is completed at the next start."""
        self._stopped = True
        self.close_all()

    def _partition(self, transactional_id: str) -> tuple[int, Transactions]:
        if self._stopped:
            raise BrokerError(ErrorCode.coordinator_not_available, "the broker is stopping")
        partition = self.partition_for(transactional_id)
        if partition in self._loading:
            raise BrokerError(
                ErrorCode.coordinator_load_in_progress, f"__transaction_state-{partition} is still being read"
            )
        if partition not in self._transactions:
            if partition not in self._state_log.owned():
                raise BrokerError(ErrorCode.not_coordinator, f"__transaction_state-{partition} is not here")
            self.open(partition, load(self._state_log.scan(partition)))
        return partition, self._transactions[partition]

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

    def _write(self, metadata: TransactionMetadata) -> None:
        """Raises BrokerError; then nothing has changed."""
        transactional_id = metadata.transactional_id
        partition, transactions = self._partition(transactional_id)
        try:
            self._state_log.append(partition, [(transaction_key(transactional_id), transaction_value(metadata))])
        except BrokerError as error:
            raise BrokerError(write_error(error.code), error.what) from error
        transactions[transactional_id] = metadata
        if metadata.state.is_prepared:
            self._prepared[transactional_id] = None
        else:
            self._prepared.pop(transactional_id, None)

    def _next_producer_id(self) -> int:
        try:
            return self._new_producer_id()
        except OSError as error:
            raise BrokerError(ErrorCode.coordinator_not_available, f"no producer id to give out: {error}") from error

    # ---- InitProducerId

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        """A producer begins; `expected` is what it has when it goes on after an error (KIP-360).

        An open transaction of the id is prepared to be aborted, and the producer is told to try again. Raises
        BrokerError: invalid_request, invalid_transaction_timeout, concurrent_transactions, producer_fenced.
        """
        if not transactional_id:
            raise BrokerError(ErrorCode.invalid_request, "the transactional id is empty")
        if not 0 < timeout_ms <= self.config.max_timeout_ms:
            raise BrokerError(
                ErrorCode.invalid_transaction_timeout,
                f"transaction.timeout.ms is {timeout_ms}, it must be within 1 and transaction.max.timeout.ms, "
                f"{self.config.max_timeout_ms}",
            )
        now_ms = self._clock.now_ms()
        metadata = self._partition(transactional_id)[1].get(transactional_id)
        if metadata is None:
            metadata = TransactionMetadata(
                transactional_id=transactional_id, producer_id=self._next_producer_id(),
                producer_epoch=NO_PRODUCER_EPOCH, timeout_ms=timeout_ms, last_update_ms=now_ms,
            )  # fmt: skip
        elif expected is not None and not _is_its_producer(metadata, expected):
            raise metadata.fenced(expected.epoch)
        if metadata.state.is_prepared:
            raise metadata.busy()
        if metadata.state is TransactionState.ONGOING:
            self._abort(metadata, now_ms)
            raise self._known(transactional_id).busy()
        if metadata.is_exhausted and (expected is None or expected.epoch == metadata.producer_epoch):
            new = metadata.with_producer_id(
                self._next_producer_id(), timeout_ms, now_ms, keep_last_epoch=expected is not None
            )
        else:
            new = metadata.with_higher_epoch(timeout_ms, None if expected is None else expected.epoch, now_ms)
        self._write(new)
        log.info("%r begins with producer id %d, epoch %d", transactional_id, new.producer_id, new.producer_epoch)
        return new.producer

    def _abort(self, metadata: TransactionMetadata, now_ms: int) -> None:
        """Fence the producer off and prepare to abort what it has open."""
        following = self._next_producer_id() if metadata.is_exhausted else NO_PRODUCER_ID
        self._write(
            metadata.prepared(commit=False, client_version=EPOCH_BUMP, next_producer_id=following, now_ms=now_ms)
        )

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
        self._write(metadata.with_partitions(partitions, client_version, self._clock.now_ms()))

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
        following = NO_PRODUCER_ID
        if client_version >= EPOCH_BUMP and metadata.is_exhausted:
            following = self._next_producer_id()
        new = metadata.prepared(commit=commit, client_version=client_version, next_producer_id=following, now_ms=now_ms)
        self._write(new)
        return new.completed(now_ms).producer

    @property
    def prepared(self) -> list[str]:
        """The ids whose transactions wait to be completed, the oldest first."""
        return list(self._prepared)

    def is_prepared(self, transactional_id: str) -> bool:
        return transactional_id in self._prepared

    def outstanding(self, transactional_id: str) -> frozenset[TopicPartition]:
        """The partitions that wait for a marker."""
        return self._known(transactional_id).partitions if self.is_prepared(transactional_id) else frozenset()

    def complete(self, transactional_id: str) -> bool:
        """Write the markers that are outstanding, and that the transaction has ended. False when some partition takes
        no marker just now: then this is to be called again. Raises BrokerError."""
        if transactional_id not in self._prepared:
            return True
        metadata = self._known(transactional_id)
        partition, transactions = self._partition(transactional_id)
        marker = EndMarker(
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            commit=metadata.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self._state_log.coordinator_epoch(partition),
            transaction_version=metadata.client_version,
        )
        for wanted in sorted(metadata.partitions):
            if self._mark(transactional_id, wanted, marker):
                metadata = transactions[transactional_id] = metadata.without_partition(wanted)
        if metadata.partitions:
            return False
        self._write(metadata.completed(self._clock.now_ms()))
        return True

    def _mark(self, transactional_id: str, partition: TopicPartition, marker: EndMarker) -> bool:
        try:
            self._write_marker(partition, marker)
        except BrokerError as error:
            if error.code is ErrorCode.unknown_topic_or_partition:
                log.info("%r: %s has been deleted and gets no marker", transactional_id, partition)
            elif error.code in (ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced):
                # Only a marker that an administrator wrote can be ahead of the coordinator: it has ended what was open.
                log.warning("%r: %s takes no marker: %s", transactional_id, partition, error)
            else:
                log.info("%r: the marker of %s is tried again: %s", transactional_id, partition, error)
                return False
        return True

    # ---- what happens by itself

    def tick(self, now_ms: int) -> None:
        """Prepare to abort what timed out, forget ids that nobody uses; each when its interval is over."""
        if self._stopped:
            return
        if now_ms >= self._next_abort_ms:
            self._next_abort_ms = now_ms + self.config.abort_timed_out_interval_ms
            self._abort_timed_out(now_ms)
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + self.config.remove_expired_interval_ms
            for partition, transactions in self._transactions.items():
                self._remove_expired(partition, transactions, now_ms)

    def _abort_timed_out(self, now_ms: int) -> None:
        for transactions in self._transactions.values():
            for metadata in [metadata for metadata in transactions.values() if metadata.timed_out(now_ms)]:
                try:
                    self._abort(metadata, now_ms)
                except BrokerError as error:
                    log.warning("%r timed out and cannot be aborted: %s", metadata.transactional_id, error)
                else:
                    log.info("%r timed out after %d ms", metadata.transactional_id, metadata.timeout_ms)

    def _remove_expired(self, partition: int, transactions: Transactions, now_ms: int) -> None:
        expiration_ms = self.config.id_expiration_ms
        gone = [key for key, metadata in transactions.items() if metadata.expired(now_ms, expiration_ms)]
        for at in range(0, len(gone), _TOMBSTONES_A_WRITE):
            some = gone[at : at + _TOMBSTONES_A_WRITE]
            try:
                self._state_log.append(partition, [(transaction_key(key), None) for key in some])
            except BrokerError as error:
                log.warning("__transaction_state-%d: unused ids remain: %s", partition, error)
                return
            for key in some:
                del transactions[key]

    # ---- administration

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Raises BrokerError: invalid_request, transactional_id_not_found, and those of a coordinator."""
        try:
            return self._known(transactional_id)
        except BrokerError as error:
            if error.code is not ErrorCode.invalid_producer_id_mapping:
                raise
            raise BrokerError(ErrorCode.transactional_id_not_found, error.what) from None

    def all_transactions(self) -> list[TransactionMetadata]:
        """Raises BrokerError (COORDINATOR_LOAD_IN_PROGRESS): an incomplete list would look like a complete one."""
        if self._stopped:
            raise BrokerError(ErrorCode.coordinator_not_available, "the broker is stopping")
        if self._loading:
            raise BrokerError(
                ErrorCode.coordinator_load_in_progress, f"{len(self._loading)} partitions are still being read"
            )
        for partition in self._state_log.owned():
            if partition not in self._transactions:
                self.open(partition, load(self._state_log.scan(partition)))
        return [metadata for transactions in self._transactions.values() for metadata in transactions.values()]


def _is_its_producer(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """The producer that has the id now, or one whose last epoch was used up and whose answer was lost."""
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == metadata.producer_id
        or (expected.producer_id == metadata.previous_producer_id and expected.epoch >= LAST_EPOCH)
    )
