"""Loading of a partition of __consumer_offsets: replay of its records, without the timers of groups."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.groups.classic.classic_group_records import GroupKey, decode_group_value
from kafkalog_broker.groups.modern.group_record_codec import decode
from kafkalog_broker.groups.modern.group_records import GroupRecord
from kafkalog_broker.groups.offset_records import OffsetKey, decode_key, decode_offset_value
from kafkalog_broker.groups.offset_store import OffsetStore
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.layout import ControlType

_log = logging.getLogger(__name__)


_OffsetAndValue = tuple[int, bytes | None]
"""Log offset and value of the last record of a key. A plain tuple, because a load makes one for each record."""
_ABSENT: _OffsetAndValue = -1, None


@dataclass(slots=True)
class LoadedPartition:
    """State of a partition after the replay of its records.

    Attributes:
        groups: GroupMetadataValue of each classic group.
        records: Records of consumer, share and streams groups.
        skipped: Number of records of group protocols that this broker does not support.
    """

    groups: dict[str, Any] = field(default_factory=dict)
    offsets: OffsetStore = field(default_factory=OffsetStore)
    records: list[GroupRecord] = field(default_factory=list)
    skipped: int = 0


def load(batches: Iterable[CoordinatorBatch]) -> LoadedPartition:
    """Load a partition, in any thread. A record that cannot be decoded is logged and skipped.

    Only the last record of each key is decoded, so that a log that was never compacted loads as fast as it is read.
    """
    latest: dict[bytes, _OffsetAndValue] = {}
    open_transactions: dict[int, dict[bytes, _OffsetAndValue]] = {}  # by producer ID, then by key
    for batch in batches:
        if batch.control is not None:
            ended = open_transactions.pop(batch.producer_id, {})
            if batch.control is ControlType.COMMIT:
                for key, record in ended.items():
                    if record[0] > latest.get(key, _ABSENT)[0]:  # otherwise a later commit has superseded the record
                        latest[key] = record
            continue
        records = open_transactions.setdefault(batch.producer_id, {}) if batch.is_transactional else latest
        for offset, (key, value) in enumerate(batch.records, batch.base_offset):
            records[key] = (offset, value)
            if value is None and records is latest:  # a tombstone outside of a transaction removes pending offsets too
                for pending in open_transactions.values():
                    pending.pop(key, None)
    loaded = LoadedPartition()
    for key, (_, value) in latest.items():
        if value is not None:
            _replay(loaded, key, value)
    for producer_id, pending_records in open_transactions.items():
        for key, (offset, value) in pending_records.items():
            if value is not None:
                is_superseded = offset < latest.get(key, _ABSENT)[0]
                _replay(loaded, key, None if is_superseded else value, _Pending(producer_id, offset))
    if loaded.skipped:
        _log.warning(
            "%d records of __consumer_offsets are skipped: they belong to group protocols that are not supported",
            loaded.skipped,
        )
    return loaded


class _Pending(NamedTuple):
    """Producer and log offset of a record in an open transaction."""

    producer_id: int
    offset: int


def _replay(loaded: LoadedPartition, key: bytes, value: bytes | None, pending: _Pending | None = None) -> None:
    """Apply the last record of a key. For an offset of an open transaction, None means that it is superseded."""
    try:
        decoded = decode_key(key)
        if isinstance(decoded, OffsetKey):
            committed = None if value is None else decode_offset_value(value)
            if pending is not None:
                loaded.offsets.put_pending(pending.producer_id, decoded, committed, pending.offset)
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
        _log.error("a record of __consumer_offsets is skipped: %s (key %s)", error, key.hex())
