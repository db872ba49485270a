"""Rows of the tables `consumer_offsets` and `groups`, from a partition of __consumer_offsets.

All records of a group are in one partition.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.format.messages.internal import decode_key, message
from kafkalog_spark.format.names import OFFSETS_TOPIC
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.tables.internal_topic_records import Entry, committed_records, latest_entries
from kafkalog_spark.log.tables.open_unit import Batches, OpenUnit
from kafkalog_spark.log.tables.timestamps import timestamp_us

_GROUP_KINDS = {2: "classic", 3: "consumer", 11: "share", 17: "streams"}
"""Kind of group by the type of its record's key (KIP-848, KIP-932, KIP-1071)."""
_MEMBER_KEYS = (5, 10, 19)  # types of the keys of member records, of consumer, share and streams groups
_OFFSET_VALUE, _CLASSIC_GROUP = message("OffsetCommitValue"), message("GroupMetadataValue")
_VERSION_AND_EPOCH = struct.Struct(">hi")

FindLogEnd = Callable[[str, int], int | None]
"""Returns the log end offset of a partition; None if no directory holds the partition."""


def consumer_offsets_of_unit(unit: OpenUnit) -> Batches:
    """Return the rows of the table `consumer_offsets`."""
    return unit.batches(consumer_offset_rows(unit.log, unit.log_end_of, history=unit.query.history))


def groups_of_unit(unit: OpenUnit) -> Batches:
    """Return the rows of the table `groups`."""
    return unit.batches(group_rows(unit.log, unit.log_end_of, history=unit.query.history))


class OffsetKey(NamedTuple):
    """Key of an offset commit."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Key of a group. kind: a value of _GROUP_KINDS."""

    group_id: str
    kind: str


class MemberKey(NamedTuple):
    """Key of a member of a consumer, share or streams group."""

    group_id: str
    member_id: str


def _group_entries(log: PartitionLog) -> Iterator[Entry]:
    """Yield the records about offsets, groups and members.

    The value is a message for offsets and classic groups, the epoch for other groups, and bytes for members.
    """
    for offset, data, value in committed_records(log):
        key: OffsetKey | GroupKey | MemberKey | None = None
        decode: Callable[[bytes], Any] = bytes
        try:
            typed_key = decode_key(OFFSETS_TOPIC, data or b"")
            if typed_key is None:
                continue
            key_type, fields = typed_key
            if key_type < 2:
                key, decode = OffsetKey(*fields), _OFFSET_VALUE.decode
            elif key_type in _GROUP_KINDS:
                key = GroupKey(fields[0], _GROUP_KINDS[key_type])
                decode = _CLASSIC_GROUP.decode if key.kind == "classic" else partial(_decode_epoch, key.kind)
            elif key_type in _MEMBER_KEYS:
                key = MemberKey(*fields)
            else:
                continue
            yield Entry(offset, key, None if value is None else decode(value))
        except (CorruptLog, UnsupportedFormat) as error:
            yield Entry(offset, key, None, error.what)


def _decode_epoch(group_type: str, value: bytes) -> int:
    """Return the epoch of a consumer, share or streams group: the first field of its record."""
    if len(value) < _VERSION_AND_EPOCH.size:
        raise CorruptLog(f"the record of a {group_type} group has {len(value)} bytes, no epoch fits")
    return int(_VERSION_AND_EPOCH.unpack_from(value)[1])


def consumer_offset_rows(log: PartitionLog, find_log_end: FindLogEnd, *, history: bool) -> Iterator[dict[str, Any]]:
    """Yield the latest commit of each group and partition; all commits with `history`."""
    commits = (entry for entry in _group_entries(log) if entry.key is None or isinstance(entry.key, OffsetKey))
    return (
        _offset_row(entry, log.partition, find_log_end) for entry in (commits if history else latest_entries(commits))
    )


def _offset_row(entry: Entry, partition: int, find_log_end: FindLogEnd) -> dict[str, Any]:
    row = entry.source_columns(partition)
    if entry.key is None:
        return row
    row |= entry.key._asdict()
    end = row["log_end_offset"] = find_log_end(entry.key.topic, entry.key.partition)
    value = entry.value
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


@dataclass(slots=True)
class _GroupState:
    """State of a group while its records are replayed.

    Attributes:
        entry: Latest record with the group's own key; None if the group has none, or it is a tombstone.
        members: IDs of the members of a consumer, share or streams group.
        committed: Committed offsets by topic and partition.
        last: Latest record of the group, of any kind.
    """

    entry: Entry | None = None
    members: set[str] = field(default_factory=set)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    last: Entry | None = None

    def replay(self, entry: Entry) -> None:
        key, value = entry.key, entry.value
        self.last = entry
        if isinstance(key, GroupKey):
            self.entry = None if entry.is_tombstone else entry
            if entry.is_tombstone or (value is not None and key.kind == "classic"):
                self.members.clear()
        elif isinstance(key, MemberKey):
            if value is None:
                self.members.discard(key.member_id)
            else:
                self.members.add(key.member_id)
        elif value is not None:
            self.committed[key.topic, key.partition] = value.offset
        else:
            self.committed.pop((key.topic, key.partition), None)


def group_rows(log: PartitionLog, find_log_end: FindLogEnd, *, history: bool) -> Iterator[dict[str, Any]]:
    """Yield each group in its current state; all records about groups with `history`."""
    groups: dict[str, _GroupState] = {}
    for entry in _group_entries(log):
        if entry.key is None:
            yield entry.source_columns(log.partition)
            continue
        group = groups.setdefault(entry.key.group_id, _GroupState())
        group.replay(entry)
        if history and isinstance(entry.key, GroupKey):
            yield _group_row(entry, log.partition, len(group.members))
    for group_id, group in groups.items() if not history else ():
        if group.entry is not None:
            row = _group_row(group.entry, log.partition, len(group.members))
        elif group.committed and group.last is not None:
            row = group.last.source_columns(log.partition)
            row |= {"group_id": group_id, "member_count": 0, "error": None, "deleted": False}
        else:
            continue  # deleted
        ends = ((find_log_end(*partition), offset) for partition, offset in group.committed.items())
        lags = [end - offset for end, offset in ends if end is not None]
        yield row | {"committed_partitions": len(group.committed), "lag": sum(lags) if lags else None}


def _group_row(entry: Entry, partition: int, members: int) -> dict[str, Any]:
    row: dict[str, Any] = entry.source_columns(partition) | entry.key._asdict()
    value = entry.value
    if value is None:
        return row
    if entry.key.kind != "classic":
        return row | {"generation": value, "member_count": members}
    return row | {
        "generation": value.generation,
        "protocol_type": value.protocol_type,
        "protocol": value.protocol,
        "leader": value.leader,
        "state_since": timestamp_us(value.current_state_timestamp),
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
