"""Last batch of each producer. Compaction keeps its header, so that the producer's sequence number is not lost."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.partition.producer_state import Producer
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import HeaderColumn

_NO_DATA = -1


def last_records(producers: Iterable[Producer]) -> npt.NDArray[np.int64]:
    """Return the last data batch of each producer (Kafka: `UnifiedLog.lastRecordsOfActiveProducers`).

    Returns:
        int64[n, 3], by ID: producer ID, offset of the last data batch (-1 if only a marker is known), epoch.
    """
    # A generator lets other threads run in between, because a log may have hundreds of thousands of producers.
    values = (
        value
        for producer in producers
        for value in (producer.id, producer.batches[-1].last_offset if producer.batches else _NO_DATA, producer.epoch)
    )
    rows = np.fromiter(values, np.int64).reshape(-1, 3)
    return rows[rows[:, 0].argsort()]


def last_batches(table: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Flag the batches that contain a producer's last sequence number or epoch (Kafka: `Cleaner.cleanInto`).

    Args:
        last: Result of `last_records`.

    Returns:
        bool[n]: True if the batch's header must be kept.
    """
    if not len(last):
        return np.zeros(len(table), bool)
    ids, offsets, epochs = last.T
    slots = np.minimum(np.searchsorted(ids, table[:, HeaderColumn.PRODUCER_ID]), len(ids) - 1)
    is_control = (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL) != 0
    has_epoch = is_control & (epochs[slots] == table[:, HeaderColumn.PRODUCER_EPOCH])
    is_last = np.where(offsets[slots] == _NO_DATA, has_epoch, offsets[slots] == table[:, HeaderColumn.LAST_OFFSET])
    is_kept: npt.NDArray[np.bool_] = is_last & (ids[slots] == table[:, HeaderColumn.PRODUCER_ID])
    return is_kept
