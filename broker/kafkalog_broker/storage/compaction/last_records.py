"""Last batch of each producer, which compaction keeps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.partition.producer_state import Producer
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import HeaderColumn

_NO_DATA = -1


def last_records(producers: Iterable[Producer]) -> npt.NDArray[np.int64]:
    """int64[n, 3], by id: id, offset of the last data batch (-1 when only a marker is known), epoch
    (UnifiedLog.lastRecordsOfActiveProducers)."""
    # by a generator, which lets others have the interpreter: a log may know hundreds of thousands
    values = (
        value
        for one in producers
        for value in (one.id, one.batches[-1].last_offset if one.batches else _NO_DATA, one.epoch)
    )
    rows = np.fromiter(values, np.int64).reshape(-1, 3)
    return rows[rows[:, 0].argsort()]


def last_batches(table: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """bool[n]: batches whose headers stay, as they hold the last sequence number, or the epoch, of a producer that is
    still known (Cleaner.cleanInto). known: as last_records."""
    if not len(known):
        return np.zeros(len(table), bool)
    ids, offsets, epochs = known.T
    slots = np.minimum(np.searchsorted(ids, table[:, HeaderColumn.PRODUCER_ID]), len(ids) - 1)
    is_control = (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL) != 0
    has_epoch = is_control & (epochs[slots] == table[:, HeaderColumn.PRODUCER_EPOCH])
    is_last = np.where(offsets[slots] == _NO_DATA, has_epoch, offsets[slots] == table[:, HeaderColumn.LAST_OFFSET])
    found: npt.NDArray[np.bool_] = is_last & (ids[slots] == table[:, HeaderColumn.PRODUCER_ID])
    return found
