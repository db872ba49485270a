"""Which batches a producer that is still known must not lose: their headers stay (Cleaner.cleanInto)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.partition.producer import LastRecord
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import H

_NO_DATA = -1


class KnownProducers:
    """The producers that the log knows, made ready to be asked for many batches."""

    def __init__(self, last_records: Mapping[int, LastRecord]) -> None:
        self._last_records = last_records
        records = last_records.values()
        self._offsets = np.unique(np.fromiter((record.last_data_offset for record in records), np.int64))
        self._with_marker_only = np.array(
            sorted(producer for producer, record in last_records.items() if record.last_data_offset == _NO_DATA),
            np.int64,
        )

    def last_batches(self, table: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which batches' headers hold the last sequence number, or the epoch, of a producer that is still known."""
        found = np.zeros(len(table), bool)
        candidates = _are_in(self._offsets, table[:, H.LAST_OFFSET])
        candidates |= _are_in(self._with_marker_only, table[:, H.PRODUCER_ID])
        for row in np.flatnonzero(candidates & (table[:, H.PRODUCER_ID] >= 0)).tolist():
            header = table[row]
            record = self._last_records.get(int(header[H.PRODUCER_ID]))
            if record is None:
                continue
            if record.last_data_offset != _NO_DATA:
                found[row] = header[H.LAST_OFFSET] == record.last_data_offset
            else:
                is_control = bool(header[H.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL)
                found[row] = is_control and header[H.PRODUCER_EPOCH] == record.producer_epoch
        return found


def _are_in(ordered: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """bool[n]: which `values` are among `ordered`, which rises."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    places = np.searchsorted(ordered, values)
    places[places == len(ordered)] = 0
    found: npt.NDArray[np.bool_] = ordered[places] == values
    return found
