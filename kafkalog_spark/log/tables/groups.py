"""The tables `consumer_offsets` and `groups`, from one partition of __consumer_offsets: all records of a group are in
one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.format.internal_records import (
    NOT_SAID,
    CommittedOffset,
    Group,
    GroupKey,
    Key,
    MemberKey,
    OffsetKey,
    parse_group,
    parse_key,
    parse_offset,
)
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.tables.damage import Record, committed_records
from kafkalog_spark.log.tables.table import CONSUMER_OFFSETS, GROUPS, collected, timestamp_us

EndOf = Callable[[str, int], int | None]
"""The log end offset of a topic's partition; None where no directory holds it."""


@dataclass(frozen=True, slots=True)
class _Event:
    """A record, parsed. value: None for a tombstone, and for one that cannot be read, which has an error."""

    offset: int
    key: Key | None
    value: CommittedOffset | Group | bytes | None
    error: str | None = None


def _parsed(record: Record) -> _Event | None:
    """None for a record that is neither of an offset nor of a group."""
    offset, key, value = record
    known: Key | None = None
    try:
        known = parse_key(key or b"")
        if known is None:
            return None
        if value is None or isinstance(known, MemberKey):
            return _Event(offset, known, value)
        if isinstance(known, OffsetKey):
            return _Event(offset, known, parse_offset(value))
        return _Event(offset, known, parse_group(known.kind, value))
    except (CorruptLog, UnsupportedFormat) as error:
        return _Event(offset, known, None, error.what)


def consumer_offset_rows(
    log: PartitionLog, columns: tuple[str, ...], end_of: EndOf, *, history: bool
) -> Iterator[pa.RecordBatch]:
    """The latest commit of each group and partition, or all of them. Raises as committed_records."""
    events = (event for event in map(_parsed, committed_records(log)) if event is not None)
    of_offsets: Iterator[_Event] = (
        event for event in events if isinstance(event.key, OffsetKey) or (event.key is None and event.error)
    )
    if not history:
        of_offsets = iter(_latest(of_offsets))
    rows = (_offset_row(event, log.partition, end_of) for event in of_offsets)
    yield from collected(CONSUMER_OFFSETS.schema(columns), ([row.get(name) for name in columns] for row in rows))


def _latest(events: Iterator[_Event]) -> list[_Event]:
    """Compaction, applied: the last of each key, in the order of the log; tombstones are gone."""
    last: dict[object, _Event] = {}
    for event in events:
        key = event.key if event.key is not None else event.offset
        last.pop(key, None)
        if event.value is not None or event.error is not None:
            last[key] = event
    return list(last.values())


def _offset_row(event: _Event, source: int, end_of: EndOf) -> dict[str, Any]:
    row = _source(event, source)
    if event.key is None:
        return row
    assert isinstance(event.key, OffsetKey)
    row |= event.key._asdict()
    end = row["log_end_offset"] = end_of(event.key.topic, event.key.partition)
    value = event.value
    if isinstance(value, CommittedOffset):
        row |= {
            "offset": value.offset,
            "leader_epoch": value.leader_epoch,
            "metadata": value.metadata,
            "committed_at": timestamp_us(value.commit_timestamp),
            "expires_at": timestamp_us(value.expire_timestamp),
            "topic_id": None if value.topic_id is None else uuid_to_text(value.topic_id),
            "lag": None if end is None else end - value.offset,
        }
    return row


def _source(event: _Event, source: int) -> dict[str, Any]:
    deleted = event.value is None and event.error is None
    return {"source_partition": source, "source_offset": event.offset, "deleted": deleted, "error": event.error}


def group_rows(
    log: PartitionLog, columns: tuple[str, ...], end_of: EndOf, *, history: bool
) -> Iterator[pa.RecordBatch]:
    """Each group as it is now, or all records about groups. Raises as committed_records."""
    events = (event for event in map(_parsed, committed_records(log)) if event is not None)
    rows = _history(events, log.partition) if history else _now(events, log.partition, end_of)
    yield from collected(GROUPS.schema(columns), ([row.get(name) for name in columns] for row in rows))


@dataclass(slots=True)
class _Known:
    """State of a group while records are replayed. members: ids, of newer protocols; committed: partition to offset."""

    event: _Event | None = None
    members: set[str] = field(default_factory=set)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    last: _Event | None = None

    def take(self, event: _Event) -> None:
        key, value = event.key, event.value
        self.last = event
        if isinstance(key, GroupKey):
            gone = value is None and event.error is None
            self.event = None if gone else event
            if gone or (isinstance(value, Group) and key.kind == "classic"):
                self.members.clear()
        elif isinstance(key, MemberKey):
            (self.members.discard if value is None else self.members.add)(key.member_id)
        elif isinstance(key, OffsetKey):
            if isinstance(value, CommittedOffset):
                self.committed[key.topic, key.partition] = value.offset
            elif value is None:
                self.committed.pop((key.topic, key.partition), None)


def _now(events: Iterator[_Event], source: int, end_of: EndOf) -> Iterator[dict[str, Any]]:
    groups: dict[str, _Known] = {}
    for event in events:
        if event.key is None:
            yield _source(event, source)
            continue
        groups.setdefault(event.key.group_id, _Known()).take(event)
    for group_id, known in groups.items():
        if known.event is None and not known.committed:
            continue  # deleted
        lags = [
            end - offset for (topic, partition), offset in known.committed.items()
            if (end := end_of(topic, partition)) is not None
        ]  # fmt: skip
        shown = known.event or known.last
        assert shown is not None
        row = _source(shown, source) | {"group_id": group_id, "deleted": False}
        if known.event is not None:
            row |= _group(known.event, len(known.members))
        else:
            row |= {"member_count": 0, "error": None}
        yield row | {"committed_partitions": len(known.committed), "lag": sum(lags) if lags else None}


def _history(events: Iterator[_Event], source: int) -> Iterator[dict[str, Any]]:
    members: dict[str, _Known] = {}
    for event in events:
        if event.key is None:
            yield _source(event, source)
            continue
        known = members.setdefault(event.key.group_id, _Known())
        known.take(event)
        if isinstance(event.key, GroupKey):
            yield _source(event, source) | {"group_id": event.key.group_id} | _group(event, len(known.members))


def _group(event: _Event, members: int) -> dict[str, Any]:
    assert isinstance(event.key, GroupKey)
    row: dict[str, Any] = {"kind": event.key.kind}
    value = event.value
    if not isinstance(value, Group):
        return row
    row["generation"] = value.generation
    if event.key.kind != "classic":
        return row | {"member_count": members}
    return row | {
        "protocol_type": value.protocol_type,
        "protocol": value.protocol,
        "leader": value.leader,
        "state_since": timestamp_us(value.state_timestamp) if value.state_timestamp != NOT_SAID else None,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout_ms": member.rebalance_timeout,
                "session_timeout_ms": member.session_timeout,
            }
            for member in value.members
        ],
        "member_count": len(value.members),
    }
