"""A partition of __consumer_offsets, read from its beginning: groups and offsets as they were. Runs in any thread."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from kafkalog_broker.coordinators.record_batches import OffsetsBatch
from kafkalog_broker.groups.modern.changes import Change, decode
from kafkalog_broker.groups.offset_records import (
    GroupKey,
    GroupMetadata,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from kafkalog_broker.groups.offset_store import OffsetStore
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.format.layout import ControlType

log = logging.getLogger(__name__)

FIRST_SHARE_KEY, LAST_SHARE_KEY = 10, 15
"""Key types of share groups (KIP-932)."""


@dataclass(slots=True)
class LoadedPartition:
    """What a partition holds. `changes`: of consumer groups (KIP-848). `skipped`: keys of protocols that are not served
    here."""

    groups: dict[str, GroupMetadata] = field(default_factory=dict)
    offsets: OffsetStore = field(default_factory=OffsetStore)
    changes: list[Change] = field(default_factory=list)
    share: dict[bytes, bytes] = field(default_factory=dict)
    """The last records of keys of share groups (types 10 to 15), not decoded."""
    skipped: int = 0


def load(batches: Iterable[OffsetsBatch]) -> LoadedPartition:
    """Replay a partition. A record that cannot be read is logged and left out: the other groups must not suffer.

    The last record of a key wins, so only that one is decoded: a log never compacted loads as fast as it is read.
    """
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    open_transactions: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
    for batch in batches:
        if batch.control is not None:
            ended = open_transactions.pop(batch.producer_id, {})
            if batch.control is ControlType.COMMIT:
                for key, found in ended.items():
                    if found[0] > latest.get(key, (-1, None))[0]:
                        latest[key] = found
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
                _replay_pending(loaded, producer_id, key, None if superseded else value, position)
    if loaded.skipped:
        log.warning("%d records of __consumer_offsets belong to group protocols not served here", loaded.skipped)
    return loaded


def _replay(loaded: LoadedPartition, key: bytes, value: bytes) -> None:
    try:
        about = decode_key(key)
        if isinstance(about, GroupKey):
            loaded.groups[about.group_id] = decode_group_value(value)
        elif isinstance(about, OffsetKey):
            loaded.offsets.put(about, decode_offset_value(value))
        elif FIRST_SHARE_KEY <= int.from_bytes(key[:2], "big") <= LAST_SHARE_KEY:
            loaded.share[key] = value
        elif (change := decode(key, value)) is not None:
            loaded.changes.append(change)
        else:
            loaded.skipped += 1
    except KafkalogError as error:
        log.error("a record of __consumer_offsets is left out: %s (key %s)", error, key.hex())


def _replay_pending(loaded: LoadedPartition, producer_id: int, key: bytes, value: bytes | None, position: int) -> None:
    try:
        about = decode_key(key)
        if isinstance(about, OffsetKey):
            committed = None if value is None else decode_offset_value(value)
            loaded.offsets.put_pending(producer_id, about, committed, position)
    except KafkalogError as error:
        log.error("a record of __consumer_offsets is left out: %s (key %s)", error, key.hex())
