"""Filtering of batches of format v0 and v1 by the rules of compaction: single messages, and wrappers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.append.legacy_wrapper import build_wrapper, compress_message_set
from kafkalog_broker.storage.append.message_layouts import MessageColumn
from kafkalog_broker.storage.compaction.legacy_batches import OpenedWrapper, read_messages, read_wrapper
from kafkalog_broker.storage.compaction.legacy_cleaner_kernel import choose_messages, copy_messages
from kafkalog_broker.storage.compaction.offset_map import OffsetMap
from kafkalog_broker.storage.partition.cleaned_segment import RetainedBatches
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import Codec, HeaderColumn
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.read.header_windows import Window

_RETAINED_COLUMNS = (HeaderColumn.SIZE, HeaderColumn.LAST_OFFSET, HeaderColumn.MAX_TIMESTAMP)
"""Columns of a header table in the order of `RetainedBatches.batches`."""


class LegacyFilter:
    """Filters batches of format v0 and v1 of one cleaning. They keep their format, and wrappers their codec."""

    def __init__(self, offset_map: OffsetMap, scratch: Scratch) -> None:
        """Create a filter.

        Args:
            offset_map: Latest offset of each key.
            scratch: Buffer for decompressed messages.
        """
        self._offset_map = offset_map
        self._scratch = scratch

    def retain(self, window: Window, first: int, end: int, keeps_legacy_tombstones: bool) -> Iterator[RetainedBatches]:
        """Yield the retained batches in rows [first, end) of a window, in order.

        Args:
            window: Window of a segment.
            first: First row. All rows have the same format, and either all or none are wrappers.
            end: Row after the last one.
            keeps_legacy_tombstones: Retain tombstones that are the latest message of their key.

        Raises:
            CorruptBatch, UnsupportedFormat: If a wrapper or message is malformed.
        """
        is_wrapper = bool(window.table[first, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CODEC)
        if not is_wrapper:
            yield from self._retain_messages(window, first, end, keeps_legacy_tombstones)
            return
        for row in range(first, end):
            yield from self._retain_of_wrapper(window, row, keeps_legacy_tombstones)

    def _retain_messages(
        self, window: Window, first: int, end: int, keeps_legacy_tombstones: bool
    ) -> Iterator[RetainedBatches]:
        table, payload = window.table[first:end], window.payload
        messages = read_messages(window, first, end)  # one for each row of the table
        is_retained = self._select_retained(payload, messages, keeps_legacy_tombstones)
        if is_retained.any():
            magic = int(table[0, HeaderColumn.MAGIC])
            out = np.empty(int(table[:, HeaderColumn.SIZE].sum()), np.uint8)
            filled = int(copy_messages(payload, messages[is_retained], magic, 0, out))
            yield RetainedBatches(out.data[:filled], table[is_retained][:, _RETAINED_COLUMNS])

    def _retain_of_wrapper(self, window: Window, row: int, keeps_legacy_tombstones: bool) -> Iterator[RetainedBatches]:
        wrapper = read_wrapper(window, row, self._scratch)
        is_retained = self._select_retained(wrapper.payload, wrapper.messages, keeps_legacy_tombstones)
        if is_retained.all():
            yield RetainedBatches(window.batch(row), window.table[row : row + 1, _RETAINED_COLUMNS])
        elif is_retained.any():
            yield _rewrite_wrapper(window.table[row], wrapper, wrapper.messages[is_retained])

    def _select_retained(
        self, payload: npt.NDArray[np.uint8], messages: npt.NDArray[np.int64], keeps_legacy_tombstones: bool
    ) -> npt.NDArray[np.bool_]:
        """Return bool[n]: whether each of the messages is retained."""
        is_retained = np.empty(len(messages), np.bool_)
        choose_messages(
            payload, messages, self._offset_map.table, self._offset_map.hash_seed, self._offset_map.latest_offset,
            int(keeps_legacy_tombstones), is_retained.view(np.uint8),
        )  # fmt: skip
        return is_retained


def _rewrite_wrapper(
    header: npt.NDArray[np.int64], wrapper: OpenedWrapper, retained: npt.NDArray[np.int64]
) -> RetainedBatches:
    """Compress the retained messages of a wrapper again.

    Args:
        header: Row of the wrapper in its header table.
        wrapper: The opened wrapper.
        retained: At least one of `wrapper.messages`.
    """
    magic, attributes = int(header[HeaderColumn.MAGIC]), int(header[HeaderColumn.ATTRIBUTES])
    # In format v1, offsets in a wrapper are relative; readers derive them from the offset of the wrapper (KIP-31).
    base_offset = int(retained[0, MessageColumn.OFFSET]) if magic == 1 else 0
    last_offset = int(retained[-1, MessageColumn.OFFSET])
    if magic == 0 or attributes & layout.ATTRIBUTE_LOG_APPEND_TIME:
        max_timestamp = int(header[HeaderColumn.MAX_TIMESTAMP])
    else:
        max_timestamp = int(retained[:, MessageColumn.TIMESTAMP].max())
    out = np.empty(len(wrapper.payload), np.uint8)
    filled = int(copy_messages(wrapper.payload, retained, magic, base_offset, out))
    value = compress_message_set(Codec(attributes & layout.ATTRIBUTE_CODEC), magic, out.data[:filled])
    data = build_wrapper(magic, attributes, value, last_offset, max_timestamp, wrapper.key)
    return RetainedBatches(data, np.array([[len(data), last_offset, max_timestamp]], np.int64))
