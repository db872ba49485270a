"""Reader of the topic `__remote_log_metadata` in the log directories of a read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from kafkalog_spark.errors import CorruptRemoteMetadata, UnsupportedFormat
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.replica_choice import choose_copy
from kafkalog_spark.log.tiered.remote_log_events import decode_event
from kafkalog_spark.log.tiered.remote_log_state import RemoteLogState, SegmentStates
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition

_log = logging.getLogger(__name__)


class RemoteMetadata:
    """States of remote segments in `__remote_log_metadata`.

    The topic is first read from its beginning; later reads resume at the end of the previous read. Thread-safe. A
    pickle contains only the locations of the topic.

    Args:
        replicas: Locations of the replicas of each partition of the topic.
    """

    def __init__(self, replicas: Sequence[Sequence[PartitionLocation]]) -> None:
        self._replicas = tuple(map(tuple, replicas))
        self._lock = threading.Lock()
        self._state: RemoteLogState | None = None
        self._states: dict[TopicIdPartition, SegmentStates] = {}
        self._next_offsets: dict[str, int] = {}  # by topic-partition

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteMetadata, (self._replicas,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteMetadata) and self._replicas == other._replicas

    def __hash__(self) -> int:
        return hash(self._replicas)

    def states_of(self, partition: TopicIdPartition, *, refresh_metadata: bool = False) -> SegmentStates | None:
        """Return the states of the remote segments of a partition.

        Args:
            partition: Partition with its topic ID.
            refresh_metadata: True to read the events that were written since the last call.

        Returns:
            None if the topic has no events about segments of the partition. The events may be in the directories of
            brokers that are not part of the read.

        Raises:
            KafkalogError: If a partition of the topic cannot be opened or read.
            OSError: If a file cannot be read.
        """
        with self._lock:
            if self._state is None or refresh_metadata:
                self._read_new_events()
            return self._states.get(partition)

    def _read_new_events(self) -> None:
        from kafkalog_spark.log.decode.scan_request import ScanRequest
        from kafkalog_spark.log.read.partition_scan import scan_partition  # loads the kernels

        state = RemoteLogState() if self._state is None else self._state
        for replicas in self._replicas:
            chosen = choose_copy(replicas)
            if chosen is None:
                continue
            log = chosen[0].location.open()
            start = max(self._next_offsets.get(log.name, 0), log.log_start_offset)
            end = log.log_end_offset
            skipped, first_error = 0, None
            for batch in scan_partition(
                log, start, end, ScanRequest(columns=("value",)), on_loss=partial(_log.warning, "%s")
            ):
                for value in batch.column(0).to_pylist():
                    if value is None:  # tombstone: the records have keys since KIP-1266
                        continue
                    try:
                        state.apply(decode_event(value))
                    except (CorruptRemoteMetadata, UnsupportedFormat) as error:
                        skipped, first_error = skipped + 1, first_error or error.at(topic_partition=log.name)
            if skipped:
                _log.warning(
                    "%d records are skipped, because they are not valid events; the first error: %s",
                    skipped,
                    first_error,
                )
            self._next_offsets[log.name] = end
        self._state = state
        self._states = state.by_partition()
