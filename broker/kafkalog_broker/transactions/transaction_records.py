"""Keys and values of the records in __transaction_state, as Kafka 4.3 writes them: TransactionLogKey 0;
TransactionLogValue 1, of which 0 is read too. A null value is a tombstone."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kafkalog_broker.coordinator.coordinator_log import OffsetsBatch, encoded
from kafkalog_broker.transactions.transaction_metadata import TopicPartition, TransactionMetadata, TransactionState
from kafkalog_spark.errors import KafkalogError, UnsupportedFormat
from kafkalog_spark.format.messages import message

log = logging.getLogger(__name__)

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


Transactions = dict[str, TransactionMetadata]  # by transactional id


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
