"""Records of __transaction_state, as Kafka 4.3 writes them.

Keys are TransactionLogKey 0. Values are TransactionLogValue 1; version 0 can be read, too. A null value is a tombstone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kafkalog_broker.coordinator.coordinator_record import encode_message
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.transactions.transaction_metadata import TopicPartition, TransactionMetadata
from kafkalog_broker.transactions.transaction_state import TransactionState
from kafkalog_spark.errors import KafkalogError, UnsupportedFormat
from kafkalog_spark.format.messages.internal import message

_log = logging.getLogger(__name__)

_KEY, _VALUE = message("TransactionLogKey"), message("TransactionLogValue")
_NO_EPOCH = -1  # next producer epoch, which this broker does not keep

Transactions = dict[str, TransactionMetadata]  # by transactional ID


def load(batches: Iterable[CoordinatorBatch]) -> Transactions:
    """Return the latest metadata of each transactional ID. Records that cannot be read are logged and skipped."""
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
            transactional_id = decode_key(key)
            loaded[transactional_id] = decode_value(transactional_id, value)
        except KafkalogError as error:
            _log.error("a record of __transaction_state is skipped: %s (key %s)", error, key.hex())
    return loaded


def encode_key(transactional_id: str) -> bytes:
    """Encode a key. Raises BrokerError unknown_server_error if the ID is too long."""
    return encode_message(_KEY, (transactional_id,))


def encode_value(metadata: TransactionMetadata) -> bytes:
    """Encode a value. Partitions are in the order of topic and number; in Kafka it is the order of a hash table."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return _VALUE.encode(
        (
            metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, metadata.state,
            None if metadata.state is TransactionState.EMPTY else topics.items(), metadata.last_update_ms,
            metadata.start_ms, metadata.previous_producer_id, metadata.next_producer_id, metadata.client_version,
            _NO_EPOCH,
        )
    )  # fmt: skip


def decode_key(data: bytes) -> str:
    """Return the transactional ID. Raises UnsupportedFormat for another version, and CorruptLog."""
    return str(_KEY.decode(data, "a key of __transaction_state")[0])


def decode_value(transactional_id: str, data: bytes) -> TransactionMetadata:
    """Decode a value. Raises UnsupportedFormat for another version or an unknown state, and CorruptLog."""
    subject = f"the record of transactional id {transactional_id!r}"
    producer_id, epoch, timeout_ms, state_number, topics, updated_ms, start_ms, *tagged, _ = _VALUE.decode(
        data, subject
    )
    try:
        state = TransactionState(state_number)
    except ValueError:
        raise UnsupportedFormat(f"{subject} has the unknown state {state_number}") from None
    partitions = frozenset(TopicPartition(topic, index) for topic, indexes in topics or () for index in indexes)
    return TransactionMetadata(
        transactional_id, producer_id, epoch, timeout_ms, state, partitions, updated_ms, start_ms, *tagged
    )
