"""The tables `consumer_offsets` and `groups`, from one partition of __consumer_offsets: all records of a group are in
one."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.format.messages import decode_key, message
from kafkalog_spark.format.names import OFFSETS_TOPIC
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.tables.damage import Record, committed_records
from kafkalog_spark.log.tables.table import CONSUMER_OFFSETS, GROUPS, collected, timestamp_us

NOT_SAID = -1
"""A time or an epoch that the record's version does not have."""
_GROUP_KINDS = {2: "classic", 3: "consumer", 11: "share", 17: "streams"}
"""Type of the key of a group's record, and the kind of group (KIP-848, KIP-932, KIP-1071)."""
_MEMBER_KINDS = {5: "consumer", 10: "share", 19: "streams"}
"""Type of the key of a member's record, and the kind of its group."""
_OFFSET_VALUE, _CLASSIC_GROUP = message("OffsetCommitValue"), message("GroupMetadataValue")
_VERSION_AND_EPOCH = struct.Struct(">hi")


class OffsetKey(NamedTuple):
    """A committed offset is about this."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """A group. kind: of _GROUP_KINDS."""

    group_id: str
    kind: str


class MemberKey(NamedTuple):
    """A member of a group of a newer protocol."""

    group_id: str
    member_id: str


Key = OffsetKey | GroupKey | MemberKey


def _key(data: bytes) -> Key | None:
    """None for what is neither offset, group nor member. Raises CorruptLog."""
    found = decode_key(OFFSETS_TOPIC, data)
    if found is None:
        return None
    kind, fields = found
    if kind < 2:
        return OffsetKey(*fields)
    if kind in _GROUP_KINDS:
        return GroupKey(fields[0], _GROUP_KINDS[kind])
    return MemberKey(*fields) if kind in _MEMBER_KINDS else None


def _epoch(kind: str, value: bytes) -> int:
    """The epoch of a group of a newer protocol, with which the fields of its record begin. Raises CorruptLog."""
    if len(value) < _VERSION_AND_EPOCH.size:
        raise CorruptLog(f"the record of a {kind} group has {len(value)} bytes, no epoch fits")
    return int(_VERSION_AND_EPOCH.unpack_from(value)[1])


EndOf = Callable[[str, int], int | None]
"""The log end offset of a topic's partition; None where no directory holds it."""


@dataclass(frozen=True, slots=True)
class _Event:
    """A record, parsed. value: of an offset or a classic group its message, of another group the epoch, of a member
    bytes; None for a tombstone, and for one that cannot be read, which has an error."""

    offset: int
    key: Key | None
    value: Any
    error: str | None = None


def _parsed(record: Record) -> _Event | None:
    """None for a record that is neither of an offset nor of a group."""
    offset, key, value = record
    known: Key | None = None
    try:
        known = _key(key or b"")
        if known is None:
            return None
        if value is None or isinstance(known, MemberKey):
            return _Event(offset, known, value)
        if isinstance(known, OffsetKey):
            return _Event(offset, known, _OFFSET_VALUE.decode(value))
        if known.kind == "classic":
            return _Event(offset, known, _CLASSIC_GROUP.decode(value))
        return _Event(offset, known, _epoch(known.kind, value))
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
    if value is not None:
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
            if gone or (value is not None and key.kind == "classic"):
                self.members.clear()
        elif isinstance(key, MemberKey):
            (self.members.discard if value is None else self.members.add)(key.member_id)
        elif isinstance(key, OffsetKey):
            if value is not None:
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
    if value is None:
        return row
    if event.key.kind != "classic":
        return row | {"generation": value, "member_count": members}
    return row | {
        "generation": value.generation,
        "protocol_type": value.protocol_type,
        "protocol": value.protocol,
        "leader": value.leader,
        "state_since": timestamp_us(value.current_state_timestamp)
        if value.current_state_timestamp != NOT_SAID
        else None,
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
