"""Loading of a partition of __consumer_offsets: the state that its records leave."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.groups.classic.offset_records import (
    GroupKey,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from kafkalog_broker.groups.modern.group_record_codec import decode
from kafkalog_broker.groups.modern.group_records import GroupRecord
from kafkalog_broker.groups.offset_store import OffsetStore
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.layout import ControlType

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadedPartition:
    """State loaded from a partition. records: of modern groups. skipped: keys of protocols not served here."""

    groups: dict[str, Any] = field(default_factory=dict)
    offsets: OffsetStore = field(default_factory=OffsetStore)
    records: list[GroupRecord] = field(default_factory=list)
    skipped: int = 0


def load(batches: Iterable[CoordinatorBatch]) -> LoadedPartition:
    """Replay a partition, in any thread; an unreadable record is logged and left out: other groups must not suffer.

    The last record of a key wins, so only that one is decoded: a log never compacted loads as fast as it is read.
    """
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    open_transactions: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
    for batch in batches:
        if batch.control is not None:
            ended = open_transactions.pop(batch.producer_id, {})
            if batch.control is ControlType.COMMIT:
                for key, record in ended.items():
                    if record[0] > latest.get(key, (-1, None))[0]:
                        latest[key] = record
            continue
        into = open_transactions.setdefault(batch.producer_id, {}) if batch.is_transactional else latest
        for delta, (key, value) in enumerate(batch.records):
            into[key] = (batch.base_offset + delta, value)
            if value is None and into is latest:  # a plain tombstone also ends what is pending
                for pending in open_transactions.values():
                    pending.pop(key, None)
    loaded = LoadedPartition()
    for key, (_, value) in latest.items():
        if value is not None:
            _replay(loaded, key, value)
    for producer_id, pending_records in open_transactions.items():
        for key, (position, value) in pending_records.items():
            if value is not None:
                superseded = position < latest.get(key, (-1, None))[0]
                _replay(loaded, key, None if superseded else value, (producer_id, position))
    if loaded.skipped:
        log.warning("%d records of __consumer_offsets belong to group protocols not served here", loaded.skipped)
    return loaded


def _replay(loaded: LoadedPartition, key: bytes, value: bytes | None, pending: tuple[int, int] | None = None) -> None:
    """pending: producer id and position, in an open transaction."""
    try:
        decoded = decode_key(key)
        if isinstance(decoded, OffsetKey):
            committed = None if value is None else decode_offset_value(value)
            if pending is not None:
                loaded.offsets.put_pending(pending[0], decoded, committed, pending[1])
            elif committed is not None:
                loaded.offsets.put(decoded, committed)
        elif pending is not None or value is None:
            return
        elif isinstance(decoded, GroupKey):
            loaded.groups[decoded.group_id] = decode_group_value(value)
        elif (record := decode(key, value)) is not None:
            loaded.records.append(record)
        else:
            loaded.skipped += 1
    except KafkalogError as error:
        log.error("a record of __consumer_offsets is left out: %s (key %s)", error, key.hex())
