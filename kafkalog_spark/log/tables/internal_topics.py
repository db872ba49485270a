"""The tables `consumer_offsets` and `groups`, from a partition of __consumer_offsets, in which all records of a group
are; and `transactional_ids`, from a partition of __transaction_state.

Records are taken one after the other in plain Python: there are thousands, where topics have millions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.layout import NO_PRODUCER_ID, HeaderColumn
from kafkalog_spark.format.messages.internal import decode_key, message
from kafkalog_spark.format.names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.read.discovery import Root
from kafkalog_spark.log.read.last_stable_offset import aborted_transactions
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.repair.damaged_segment import windows_from
from kafkalog_spark.log.tables.table import (
    FINDINGS,
    PRODUCERS,
    TRANSACTIONS,
    Surroundings,
    TableQuery,
    TransactionalId,
    timestamp_us,
)

_GROUP_KINDS = {2: "classic", 3: "consumer", 11: "share", 17: "streams"}
"""Type of the key of a group's record, and the kind of group (KIP-848, KIP-932, KIP-1071)."""
_MEMBER_KEYS = (5, 10, 19)  # types of the keys of members' records, of consumer, share and streams groups
_OFFSET_VALUE, _CLASSIC_GROUP = message("OffsetCommitValue"), message("GroupMetadataValue")
_TRANSACTION_KEY, _TRANSACTION_VALUE = message("TransactionLogKey"), message("TransactionLogValue")
_VERSION_AND_EPOCH = struct.Struct(">hi")

EndOf = Callable[[str, int], int | None]
"""The log end offset of a topic's partition; None where no directory holds it."""


def committed_records(log: PartitionLog) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of all records but those of aborted and of open transactions. Raises as scan_partition."""
    from kafkalog_spark.log.decode.record_schema import ScanRequest
    from kafkalog_spark.log.read.partition_scan import scan_partition  # loads the kernels

    start, end = log.log_start_offset, log.log_end_offset
    hidden = _batches_of_open_transactions(log, start, end)
    request = ScanRequest(columns=("offset", "key", "value"), read_committed=True, drop_malformed=log.pass_over_damage)
    for batch in scan_partition(log, start, end, request):
        for offset, key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if not len(hidden) or not ((hidden[:, 0] <= offset) & (offset <= hidden[:, 1])).any():
                yield offset, key, value


def _batches_of_open_transactions(log: PartitionLog, start: int, end: int) -> npt.NDArray[np.int64]:
    """int64[n, 2]: first and last offset of the batches of transactions that have not ended."""
    still_open = aborted_transactions(log, start, end, []).open
    ranges = [np.empty((0, 2), np.int64)]
    for window in windows_from(log, min(still_open.values())) if still_open else ():
        table = window.table
        kind = table[:, HeaderColumn.ATTRIBUTES] & (layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL)
        rows = np.zeros(len(table), bool)
        for producer, first in still_open.items():
            rows |= (table[:, HeaderColumn.PRODUCER_ID] == producer) & (table[:, HeaderColumn.BASE_OFFSET] >= first)
        ranges.append(
            table[rows & (kind == layout.ATTRIBUTE_TRANSACTIONAL)][
                :, [HeaderColumn.BASE_OFFSET, HeaderColumn.LAST_OFFSET]
            ]
        )
    return np.concatenate(ranges)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A record, parsed. key: None where it cannot be read. value: None for a tombstone, or with an error."""

    offset: int
    key: Any
    value: Any
    error: str | None = None

    @property
    def is_tombstone(self) -> bool:
        return self.value is None and self.error is None

    def source_columns(self, partition: int) -> dict[str, Any]:
        return {
            "source_partition": partition, "source_offset": self.offset, "deleted": self.is_tombstone,
            "error": self.error,
        }  # fmt: skip


def _latest(entries: Iterable[_Entry]) -> list[_Entry]:
    """Compaction, applied: the last of each key, in the order of the log; tombstones are gone."""
    last: dict[object, _Entry] = {}
    for entry in entries:
        key = entry.offset if entry.key is None else entry.key
        last.pop(key, None)
        if not entry.is_tombstone:
            last[key] = entry
    return list(last.values())


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """kind: of _GROUP_KINDS."""

    group_id: str
    kind: str


class MemberKey(NamedTuple):
    """A member of a group of a newer protocol."""

    group_id: str
    member_id: str


def _group_entries(log: PartitionLog) -> Iterator[_Entry]:
    """The records about offsets (value: a message), groups (a classic one's message, or the epoch), members (bytes)."""
    for offset, data, value in committed_records(log):
        key: OffsetKey | GroupKey | MemberKey | None = None
        decode: Callable[[bytes], Any] = bytes
        try:
            typed_key = decode_key(OFFSETS_TOPIC, data or b"")
            if typed_key is None:
                continue
            kind, fields = typed_key
            if kind < 2:
                key, decode = OffsetKey(*fields), _OFFSET_VALUE.decode
            elif kind in _GROUP_KINDS:
                key = GroupKey(fields[0], _GROUP_KINDS[kind])
                decode = _CLASSIC_GROUP.decode if key.kind == "classic" else partial(_epoch, key.kind)
            elif kind in _MEMBER_KEYS:
                key = MemberKey(*fields)
            else:
                continue
            yield _Entry(offset, key, None if value is None else decode(value))
        except (CorruptLog, UnsupportedFormat) as error:
            yield _Entry(offset, key, None, error.what)


def _epoch(kind: str, value: bytes) -> int:
    """Epoch of a newer protocol's group, with which the fields of its record begin."""
    if len(value) < _VERSION_AND_EPOCH.size:
        raise CorruptLog(f"the record of a {kind} group has {len(value)} bytes, no epoch fits")
    return int(_VERSION_AND_EPOCH.unpack_from(value)[1])


def consumer_offset_rows(log: PartitionLog, end_of: EndOf, *, history: bool) -> Iterator[dict[str, Any]]:
    """The latest commit of each group and partition, or all of them."""
    commits = (entry for entry in _group_entries(log) if entry.key is None or isinstance(entry.key, OffsetKey))
    return (_offset_row(entry, log.partition, end_of) for entry in (commits if history else _latest(commits)))


def _offset_row(entry: _Entry, partition: int, end_of: EndOf) -> dict[str, Any]:
    row = entry.source_columns(partition)
    if entry.key is None:
        return row
    row |= entry.key._asdict()
    end = row["log_end_offset"] = end_of(entry.key.topic, entry.key.partition)
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
    """A group while records are replayed. members: ids, of newer protocols; committed: partition to offset."""

    entry: _Entry | None = None
    members: set[str] = field(default_factory=set)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    last: _Entry | None = None

    def replay(self, entry: _Entry) -> None:
        key, value = entry.key, entry.value
        self.last = entry
        if isinstance(key, GroupKey):
            self.entry = None if entry.is_tombstone else entry
            if entry.is_tombstone or (value is not None and key.kind == "classic"):
                self.members.clear()
        elif isinstance(key, MemberKey):
            (self.members.discard if value is None else self.members.add)(key.member_id)
        elif value is not None:
            self.committed[key.topic, key.partition] = value.offset
        else:
            self.committed.pop((key.topic, key.partition), None)


def group_rows(log: PartitionLog, end_of: EndOf, *, history: bool) -> Iterator[dict[str, Any]]:
    """Each group as it is now, or all records about groups."""
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
        ends = ((end_of(*partition), offset) for partition, offset in group.committed.items())
        lags = [end - offset for end, offset in ends if end is not None]
        yield row | {"committed_partitions": len(group.committed), "lag": sum(lags) if lags else None}


def _group_row(entry: _Entry, partition: int, members: int) -> dict[str, Any]:
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


_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip
"""By number; Kafka's TransactionState."""


def _transaction_entries(log: PartitionLog) -> Iterator[_Entry]:
    """key: the transactional id; value: a TransactionalId."""
    for offset, key, value in committed_records(log):
        name = None
        try:
            name = _TRANSACTION_KEY.decode(key or b"", "a key of __transaction_state").transactional_id
            yield _Entry(offset, name, None if value is None else _transactional_id(name, value))
        except (CorruptLog, UnsupportedFormat) as error:
            yield _Entry(offset, name, None, error.what)


def _transactional_id(name: str, data: bytes) -> TransactionalId:
    """Raises CorruptLog, UnsupportedFormat for another version or state."""
    what = f"the record of transactional id {name!r}"
    value = _TRANSACTION_VALUE.decode(data, what)
    state = value.transaction_status
    if not 0 <= state < len(_STATES):
        raise UnsupportedFormat(f"{what} has state {state}, expected 0 to {len(_STATES) - 1}")
    partitions = ((topic, index) for topic, indexes in value.transaction_partitions or () for index in indexes)
    before, after = value.previous_producer_id, value.next_producer_id
    return {
        "transactional_id": name,
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "state": _STATES[state],
        "timeout_ms": value.transaction_timeout_ms,
        "partitions": [{"topic": topic, "partition": index} for topic, index in sorted(partitions)],
        "last_update": timestamp_us(value.transaction_last_update_timestamp_ms),
        "started_at": timestamp_us(value.transaction_start_timestamp_ms),
        "previous_producer_id": None if before == NO_PRODUCER_ID else before,
        "next_producer_id": None if after == NO_PRODUCER_ID else after,
    }


def transactional_id_rows(log: PartitionLog, *, history: bool) -> Iterator[dict[str, Any]]:
    """The latest state of each transactional id, or all of them."""
    entries = _transaction_entries(log)
    for entry in entries if history else _latest(entries):
        yield entry.source_columns(log.partition) | {"transactional_id": entry.key} | (entry.value or {})


def surroundings_of(
    query: TableQuery, places: Mapping[TopicPartition, PartitionLocation], roots: tuple[Root, ...]
) -> Surroundings:
    """places: of all partitions, whatever is subscribed to."""
    of = query.of
    if of in (TRANSACTIONS, PRODUCERS) and {"transactional_id", "coordinator_state", "state"} & {*query.columns}:
        logs = (at.open(pass_over_damage=True) for (topic, _), at in places.items() if topic == TRANSACTION_TOPIC)
        states = (entry.value for log in logs for entry in _latest(_transaction_entries(log)))
        return Surroundings(coordinators={state["producer_id"]: state for state in states if state is not None})
    needs_ends = of.topic == OFFSETS_TOPIC and {"log_end_offset", "lag"} & {*query.columns}
    return Surroundings(places, roots) if needs_ends or of is FINDINGS else Surroundings()
