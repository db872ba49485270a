"""What was known of producers at an earlier offset of a log: from a snapshot, and the batches after it
(UnifiedLog.rebuildProducerState)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_broker.storage.recovery.producer_replay import replay
from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.durable import descriptor
from kafkalog_spark.log.format.layout import H
from kafkalog_spark.log.format.producer_snapshot import read_producer_snapshot
from kafkalog_spark.log.read.header_windows import Window, header_windows
from kafkalog_spark.log.store.local_store import DescriptorFile

_log = logging.getLogger(__name__)


def producers_at(
    directory: Path, offset: int, snapshots: Iterable[int], segments: Sequence[tuple[int, int]]
) -> ProducerState:
    """The state at `offset`, where a batch begins or a gap is. Changes nothing; any thread, while the log below does
    not change.

    snapshots: the offsets of those in the directory; those below the log's beginning do not count, as when it is
    loaded. segments: (base offset, bytes) of the log up to `offset`. Raises CorruptBatch, UnsupportedFormat, OSError.
    """
    state = ProducerState()
    for candidate in sorted((known for known in snapshots if segments[0][0] <= known <= offset), reverse=True):
        path = directory / (names.segment_name(candidate) + names.PRODUCER_SNAPSHOT_SUFFIX)
        try:
            state.load(read_producer_snapshot(path), candidate)
            break
        except (CorruptLog, UnsupportedFormat) as error:
            _log.warning("%s; an older one is taken", error)
    else:
        state.clear(0)
    since = state.end_offset
    ends = [*(base for base, _ in segments[1:]), offset]
    for (base, size), end in zip(segments, ends, strict=True):
        if end > since:
            _take_in(state, directory / (names.segment_name(base) + names.LOG_SUFFIX), size, since)
    state.end_offset = offset
    return state


def _take_in(state: ProducerState, path: Path, size: int, since: int) -> None:
    with descriptor(path) as fd:
        for window, wrong in header_windows(DescriptorFile(fd), size):
            replay(state, Window(window.table[window.table[:, H.LAST_OFFSET] >= since], window.data, window.start))
            if wrong is not None:
                raise wrong.at(path=str(path))
