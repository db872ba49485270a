"""Reader of __remote_log_metadata among the opened directories."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from kafkalog_spark.errors import (
    CorruptRemoteMetadata,
    UnsupportedFormat,
)
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.replica_choice import chosen_copy
from kafkalog_spark.log.tiered.remote_log_metadata import RemoteLogState, SegmentStates, decode_event
from kafkalog_spark.log.tiered.remote_names import (
    TopicIdPartition,
)

_log = logging.getLogger(__name__)


class RemoteMetadata:
    """The topic, read from its beginning once, and on from there when asked again. Threads share it; a pickle carries
    only where it lies. copies: of each of its partitions, the places where it lies."""

    def __init__(self, copies: Sequence[Sequence[PartitionLocation]]) -> None:
        self._copies = tuple(map(tuple, copies))
        self._lock = threading.Lock()
        self._state: RemoteLogState | None = None
        self._known: dict[TopicIdPartition, SegmentStates] = {}
        self._reached: dict[str, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteMetadata, (self._copies,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteMetadata) and self._copies == other._copies

    def __hash__(self) -> int:
        return hash(self._copies)

    def of(self, partition: TopicIdPartition, *, again: bool = False) -> SegmentStates | None:
        """None where the topic does not speak of the partition: its events may lie on brokers whose directories were
        not given. again: read on what was written since. Raises as opening and reading a partition does."""
        with self._lock:
            if self._state is None or again:
                self._read_on()
            return self._known.get(partition)

    def _read_on(self) -> None:
        from kafkalog_spark.log.decode.scan_request import ScanRequest
        from kafkalog_spark.log.read.partition_scan import scan_partition  # loads the kernels

        state = RemoteLogState() if self._state is None else self._state
        for copies in self._copies:
            chosen = chosen_copy(copies)
            if chosen is None:
                continue
            log = chosen[0].location.open()
            start = max(self._reached.get(log.name, 0), log.log_start_offset)
            end = log.log_end_offset
            odd, first = 0, None
            for batch in scan_partition(
                log, start, end, ScanRequest(columns=("value",)), on_loss=partial(_log.warning, "%s")
            ):
                for value in batch.column(0).to_pylist():
                    if value is None:  # KIP-1266 gives keys to records, and so tombstones
                        continue
                    try:
                        state.take(decode_event(value))
                    except (CorruptRemoteMetadata, UnsupportedFormat) as error:
                        odd, first = odd + 1, first or error.at(topic_partition=log.name)
            if odd:
                _log.warning("%d records are skipped, because they are no events; the first: %s", odd, first)
            self._reached[log.name] = end
        self._state = state
        self._known = state.by_partition()
