"""Transactional ids in memory, loaded from and written to __transaction_state (TransactionStateManager).

Ids are spread over the partitions of __transaction_state. One process need not own all of them: an id whose partition
is another's is answered NOT_COORDINATOR. A partition is served from `open`, or from its first use when nobody has
opened it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kafkalog_broker.coordinator.coordinator_log import TOMBSTONES_A_WRITE, CoordinatorLog, OffsetsBatch, encoded
from kafkalog_broker.coordinator.runtime import CoordinatorRuntime
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.transactions.transaction_metadata import TopicPartition, TransactionMetadata, TransactionState
from kafkalog_spark.errors import KafkalogError, UnsupportedFormat
from kafkalog_spark.format.messages import message

log = logging.getLogger(__name__)

# Records are as Kafka 4.3 writes them: TransactionLogKey 0; TransactionLogValue 1, of which 0 is read too. A null value
# is a tombstone.

_KEY, _VALUE = message("TransactionLogKey"), message("TransactionLogValue")


def transaction_key(transactional_id: str) -> bytes:
    return encoded(_KEY, (transactional_id,))


def transaction_value(metadata: TransactionMetadata) -> bytes:
    """Partitions stand in the order of their topics and numbers; Kafka has them in that of a hash table."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return _VALUE.encode(
        (
            metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, metadata.state,
            None if metadata.state is TransactionState.EMPTY else topics.items(), metadata.last_update_ms,
            metadata.start_ms, metadata.previous_producer_id, metadata.next_producer_id, metadata.client_version,
        )
    )  # fmt: skip


def read_transaction_key(data: bytes) -> str:
    """The transactional id. Raises UnsupportedFormat for another version, CorruptLog."""
    return str(_KEY.decode(data, "a key of __transaction_state")[0])


def read_transaction_value(transactional_id: str, data: bytes) -> TransactionMetadata:
    """Raises UnsupportedFormat for another version or state, CorruptLog."""
    what = f"the record of transactional id {transactional_id!r}"
    found = _VALUE.decode(data, what)
    try:
        state = TransactionState(found.transaction_status)
    except ValueError:
        raise UnsupportedFormat(f"{what} has the state {found.transaction_status}, which is not known") from None
    partitions = (
        TopicPartition(topic, index) for topic, indexes in found.transaction_partitions or () for index in indexes
    )
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        state=state,
        partitions=frozenset(partitions),
        start_ms=found.transaction_start_timestamp_ms,
        last_update_ms=found.transaction_last_update_timestamp_ms,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        client_version=found.client_transaction_version,
    )


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


class TransactionTable:
    """Metadata by transactional id. prepared: the ids whose transactions wait to be completed, the oldest first."""

    def __init__(self, state_log: CoordinatorLog) -> None:
        self.runtime: CoordinatorRuntime[Transactions, Transactions] = CoordinatorRuntime(state_log, load, self._serve)
        self.prepared: dict[str, None] = {}

    # ---- partitions

    def _serve(self, _: int, loaded: Transactions) -> Transactions:
        for metadata in loaded.values():
            if metadata.state.is_prepared:
                log.info("%.200r was %s when the broker stopped", metadata.transactional_id, metadata.state.label)
                self.prepared[metadata.transactional_id] = None
        return loaded

    def close_all(self) -> None:
        """The topic is gone: its ids are unknown."""
        for partition in self.runtime.served():
            self.runtime.remove(partition)
        self.prepared.clear()

    def shutdown(self) -> None:
        """Afterwards all ids are COORDINATOR_NOT_AVAILABLE. What is prepared is completed at the next start."""
        self.runtime.stop()
        self.close_all()

    def _partition(self, transactional_id: str) -> tuple[int, Transactions]:
        partition = self.runtime.partition_for(transactional_id)
        if partition not in self.runtime.log.owned():
            self.runtime.check_running()
            raise BrokerError(ErrorCode.not_coordinator, f"__transaction_state-{partition} is not here")
        return partition, self.runtime.get(partition)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """With which markers of the id are written. Raises BrokerError."""
        return self.runtime.log.leader_epoch(self._partition(transactional_id)[0])

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
        self.runtime.write(partition, [(transaction_key(transactional_id), transaction_value(metadata))])
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
        return [metadata for transactions in self.runtime.served().values() for metadata in transactions.values()]

    def all(self) -> list[TransactionMetadata]:
        """Raises BrokerError (COORDINATOR_LOAD_IN_PROGRESS)."""
        return [metadata for transactions in self.runtime.all() for metadata in transactions.values()]

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget ids that nobody used for that long and that have nothing open."""
        for partition, transactions in self.runtime.served().items():
            gone = [key for key, metadata in transactions.items() if metadata.expired(now_ms, expiration_ms)]
            for at in range(0, len(gone), TOMBSTONES_A_WRITE):
                some = gone[at : at + TOMBSTONES_A_WRITE]
                try:
                    self.runtime.log.append(partition, [(transaction_key(key), None) for key in some])
                except BrokerError as error:
                    log.warning("__transaction_state-%d: unused ids remain: %s", partition, error)
                    break
                for key in some:
                    del transactions[key]
