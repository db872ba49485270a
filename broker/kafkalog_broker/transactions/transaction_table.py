"""Transactional ids in memory, loaded from and written to __transaction_state (TransactionStateManager).

Ids are spread over the partitions of __transaction_state. One process need not own all of them: an id whose partition
is another's is answered NOT_COORDINATOR. A partition is served from `open`, or from its first use when nobody has
opened it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from kafkalog_broker.coordinator.coordinator_log import partition_for
from kafkalog_broker.coordinator.record_batches import TOMBSTONES_A_WRITE, OffsetsBatch, Record
from kafkalog_broker.coordinator.shards import Shards, write_error
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.transactions.transaction_metadata import TopicPartition, TransactionMetadata
from kafkalog_broker.transactions.transaction_records import (
    read_transaction_key,
    read_transaction_value,
    transaction_key,
    transaction_value,
)
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.names import TRANSACTION_TOPIC

# A partition of __transaction_state, read from its beginning: its transactional ids as they were. For any thread.

Transactions = dict[str, TransactionMetadata]
"""By transactional id."""


def load(batches: Iterable[OffsetsBatch]) -> Transactions:
    """The last record of each id. One that cannot be read is logged and left out: the others must not suffer."""
    latest: dict[bytes, bytes] = {}
    for batch in batches:
        for key, value in batch.records:
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value
    loaded: Transactions = {}
    for key, value in latest.items():
        try:
            transactional_id = read_transaction_key(key)
            loaded[transactional_id] = read_transaction_value(transactional_id, value)
        except KafkalogError as error:
            log.error("a record of __transaction_state is left out: %s (key %s)", error, key.hex())
    return loaded


log = logging.getLogger(__name__)


class StateLog(Protocol):
    """__transaction_state."""

    @property
    def partitions(self) -> int:
        """How many there are, or will be."""

    def owned(self) -> Iterable[int]:
        """Those that are here."""

    def append(self, partition: int, records: Sequence[Record]) -> None:
        """Append one batch. Raises BrokerError."""

    def scan(self, partition: int) -> Iterable[OffsetsBatch]:
        """All batches. Raises BrokerError."""

    def coordinator_epoch(self, partition: int) -> int:
        """The leader epoch of the partition: markers of an older one are refused. Raises BrokerError."""


class TransactionTable:
    """Metadata by transactional id. prepared: the ids whose transactions wait to be completed, the oldest first."""

    def __init__(self, state_log: StateLog) -> None:
        self._state_log = state_log
        self.shards: Shards[Transactions, Transactions] = Shards(
            TRANSACTION_TOPIC, self._read, state_log.owned, self._serve
        )
        self.prepared: dict[str, None] = {}

    # ---- partitions

    def partition_for(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self._state_log.partitions)

    def _read(self, partition: int) -> Transactions:
        if partition not in self._state_log.owned():
            raise BrokerError(ErrorCode.not_coordinator, f"__transaction_state-{partition} is not here")
        return load(self._state_log.scan(partition))

    def _serve(self, _: int, loaded: Transactions) -> Transactions:
        for metadata in loaded.values():
            if metadata.state.is_prepared:
                log.info("%.200r was %s when the broker stopped", metadata.transactional_id, metadata.state.label)
                self.prepared[metadata.transactional_id] = None
        return loaded

    def close_all(self) -> None:
        """The topic is gone: its ids are unknown."""
        for partition in self.shards.served():
            self.shards.remove(partition)
        self.prepared.clear()

    def shutdown(self) -> None:
        """Afterwards all ids are COORDINATOR_NOT_AVAILABLE. What is prepared is completed at the next start."""
        self.shards.stop()
        self.close_all()

    def _partition(self, transactional_id: str) -> tuple[int, Transactions]:
        partition = self.partition_for(transactional_id)
        return partition, self.shards.get(partition)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """With which markers of the id are written. Raises BrokerError."""
        return self._state_log.coordinator_epoch(self._partition(transactional_id)[0])

    # ---- ids

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """None for an unknown id. Raises BrokerError: coordinator_load_in_progress, not_coordinator,
        coordinator_not_available."""
        return self._partition(transactional_id)[1].get(transactional_id)

    def known(self, transactional_id: str) -> TransactionMetadata:
        """Raises BrokerError: invalid_request, invalid_producer_id_mapping, and those of _partition."""
        if not transactional_id:
            raise BrokerError(ErrorCode.invalid_request, "the transactional id is empty")
        metadata = self.get(transactional_id)
        if metadata is None:
            raise BrokerError(
                ErrorCode.invalid_producer_id_mapping, f"there is no transactional id {transactional_id!r}"
            )
        return metadata

    def write(self, metadata: TransactionMetadata) -> None:
        """Raises BrokerError; then nothing has changed."""
        transactional_id = metadata.transactional_id
        partition, transactions = self._partition(transactional_id)
        try:
            self._state_log.append(partition, [(transaction_key(transactional_id), transaction_value(metadata))])
        except BrokerError as error:
            raise BrokerError(write_error(error.code), error.what) from error
        transactions[transactional_id] = metadata
        if metadata.state.is_prepared:
            self.prepared[transactional_id] = None
        else:
            self.prepared.pop(transactional_id, None)

    def marked(self, metadata: TransactionMetadata, partition: TopicPartition) -> TransactionMetadata:
        """Its marker is written: not asked for again while this process lives. Nothing goes into the log."""
        new = metadata.without_partition(partition)
        self._partition(metadata.transactional_id)[1][metadata.transactional_id] = new
        return new

    def served(self) -> list[TransactionMetadata]:
        """Metadata of all ids in the partitions that are loaded."""
        return [metadata for transactions in self.shards.served().values() for metadata in transactions.values()]

    def all(self) -> list[TransactionMetadata]:
        """Raises BrokerError (COORDINATOR_LOAD_IN_PROGRESS)."""
        return [metadata for transactions in self.shards.all() for metadata in transactions.values()]

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget ids that nobody used for that long and that have nothing open."""
        for partition, transactions in self.shards.served().items():
            gone = [key for key, metadata in transactions.items() if metadata.expired(now_ms, expiration_ms)]
            for at in range(0, len(gone), TOMBSTONES_A_WRITE):
                some = gone[at : at + TOMBSTONES_A_WRITE]
                try:
                    self._state_log.append(partition, [(transaction_key(key), None) for key in some])
                except BrokerError as error:
                    log.warning("__transaction_state-%d: unused ids remain: %s", partition, error)
                    break
                for key in some:
                    del transactions[key]
