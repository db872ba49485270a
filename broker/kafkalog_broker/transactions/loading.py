"""A partition of __transaction_state, read from its beginning: its transactional ids as they were. For any thread."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kafkalog_broker.coordinators.record_batches import OffsetsBatch
from kafkalog_broker.transactions.transaction_metadata import TransactionMetadata
from kafkalog_broker.transactions.transaction_records import read_transaction_key, read_transaction_value
from kafkalog_spark.errors import KafkalogError

log = logging.getLogger(__name__)

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
