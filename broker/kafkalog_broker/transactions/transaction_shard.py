"""The transactional IDs of one partition of __transaction_state."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.transactions.transaction_metadata import TransactionMetadata
from kafkalog_broker.transactions.transaction_records import Transactions, encode_key, encode_value

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionTombstone:
    """Tombstone of an expired transactional ID."""

    transactional_id: str


TransactionRecord = TransactionMetadata | TransactionTombstone


class TransactionShard:
    """Metadata by transactional ID, according to the log. Not thread-safe; call from the event loop."""

    def __init__(self, transactions: Transactions, prepared: dict[str, None]) -> None:
        """Create from the loaded metadata.

        Args:
            transactions: Loaded metadata. The shard changes the dictionary.
            prepared: All IDs of the coordinator with a prepared transaction. The shard adds and removes its own IDs.
        """
        self.transactions = transactions
        self._prepared = prepared
        for metadata in transactions.values():
            if metadata.state.is_prepared:
                _log.info(
                    "transactional id %.200r was %s when the broker stopped",
                    metadata.transactional_id,
                    metadata.state.label,
                )
                prepared[metadata.transactional_id] = None

    def encode(self, record: TransactionRecord) -> Record:
        if isinstance(record, TransactionTombstone):
            return encode_key(record.transactional_id), None
        return encode_key(record.transactional_id), encode_value(record)

    def replay(self, offset: int, record: TransactionRecord) -> None:
        """Apply a record that is in the log at `offset`."""
        transactional_id = record.transactional_id
        if isinstance(record, TransactionTombstone):
            del self.transactions[transactional_id]
            return
        self.transactions[transactional_id] = record
        if record.state.is_prepared:
            self._prepared[transactional_id] = None
        else:
            self._prepared.pop(transactional_id, None)
