"""What `__remote_log_metadata` says of remote segments, read from wherever its partitions lie."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafkalog_spark.errors import CorruptRemoteMetadata, KafkalogError, UnsupportedFormat
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.replicas import chosen_copy
from kafkalog_spark.log.tiered.remote_log_metadata import (
    RemoteLogState,
    RemoteSegmentState,
    SegmentUpdate,
    decode_event,
)
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KnownSegments:
    """What the topic says of one partition's segments. segments: those that may be read; refused: those of which it
    says that they may not, as their copy was not finished or they were deleted."""

    segments: Mapping[uuid.UUID, RemoteSegment]
    refused: frozenset[uuid.UUID]

    def may_be_read(self, segment_id: uuid.UUID) -> bool:
        """Of a segment that the topic does not know its files decide: the topic may be an older copy than they are."""
        return segment_id not in self.refused


class RemoteMetadata:
    """The topic, read from its beginning once, and on from there when asked again. Threads share it; a pickle carries
    only where it lies.

    copies: of each of its partitions, the places where it lies.
    """

    def __init__(self, copies: Sequence[Sequence[PartitionPlace]]) -> None:
        self._copies = tuple(map(tuple, copies))
        self._lock = threading.Lock()
        self._state: RemoteLogState | None = None
        self._known: dict[TopicIdPartition, KnownSegments] = {}
        self._deleted: dict[TopicIdPartition, set[uuid.UUID]] = {}
        self._reached: dict[str, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteMetadata, (self._copies,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteMetadata) and self._copies == other._copies

    def __hash__(self) -> int:
        return hash(self._copies)

    def of(self, partition: TopicIdPartition, *, again: bool = False) -> KnownSegments | None:
        """None where the topic does not speak of the partition: its events may lie on brokers whose directories were
        not given. again: read on what was written since. Raises as opening and reading a partition does."""
        with self._lock:
            if self._state is None or again:
                self._read_on()
            return self._known.get(partition)

    def _read_on(self) -> None:
        from kafkalog_spark.log.read.partition_scan import ScanRequest, scan_partition  # loads the kernels

        state = RemoteLogState() if self._state is None else self._state
        for copies in self._copies:
            chosen = chosen_copy(copies)
            if chosen is None:
                continue
            log = chosen[0].place.open()
            start = max(self._reached.get(log.name, 0), log.log_start_offset)
            end = log.log_end_offset
            for batch in scan_partition(log, start, end, ScanRequest(columns=("value",)), on_loss=_log_loss):
                for value in batch.column(0).to_pylist():
                    if value is not None:  # KIP-1266 gives keys to records, and so tombstones
                        self._take(state, value, log.name)
            self._reached[log.name] = end
        self._state = state
        readable: dict[TopicIdPartition, dict[uuid.UUID, RemoteSegment]] = {}
        refused = {where: set(ids) for where, ids in self._deleted.items()}
        for (where, segment_id), (segment, copied) in state.segments.items():
            if copied is RemoteSegmentState.COPY_SEGMENT_FINISHED and where not in state.deleted_partitions:
                readable.setdefault(where, {})[segment_id] = segment
            else:
                refused.setdefault(where, set()).add(segment_id)
        self._known = {
            where: KnownSegments(readable.get(where, {}), frozenset(refused.get(where, ())))
            for where in readable.keys() | refused.keys()
        }

    def _take(self, state: RemoteLogState, value: bytes, name: str) -> None:
        try:
            event = decode_event(value)
        except (CorruptRemoteMetadata, UnsupportedFormat) as error:
            _log.warning("passed over: %s", error.at(topic_partition=name))
            return
        state.take(event)
        if isinstance(event, SegmentUpdate) and event.state is RemoteSegmentState.DELETE_SEGMENT_FINISHED:
            self._deleted.setdefault(event.partition, set()).add(event.segment_id)


def _log_loss(error: KafkalogError) -> None:
    _log.warning("%s", error)
