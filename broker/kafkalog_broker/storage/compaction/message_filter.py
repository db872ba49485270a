"""Messages v0 and v1 without what compaction removes. They keep their format, and inside a wrapper their codec."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.compaction.message_filter_kernel import choose_messages, copy_messages
from kafkalog_broker.storage.compaction.offset_map import OffsetMap
from kafkalog_broker.storage.partition.cleaned_segment import Piece
from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import Codec, H
from kafkalog_spark.log.kernels.rows import FAULTS, Status
from kafkalog_spark.log.read.batch_contents import OpenedWrapper, open_wrapper
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.scratch import Scratch
from kafkalog_spark.log.write.compress import compress


class MessageFilter:
    """scratch: where wrappers are decompressed."""

    def __init__(self, keys: OffsetMap, scratch: Scratch) -> None:
        self._keys = keys
        self._scratch = scratch
        self._keep = np.empty(1 << 10, np.uint8)

    def pieces(self, window: Window, first: int, last: int, keeps_tombstones: bool) -> Iterator[Piece]:
        """What stays of the rows [first, last) of a window, all messages or all wrappers of one format. Raises
        CorruptBatch, UnsupportedFormat."""
        if not window.table[first, H.ATTRIBUTES] & layout.ATTRIBUTE_CODEC:
            yield from self._messages(window, first, last, keeps_tombstones)
            return
        for row in range(first, last):
            yield from self._wrapper(window, row, keeps_tombstones)

    def _messages(self, window: Window, first: int, last: int, keeps_tombstones: bool) -> Iterator[Piece]:
        """Messages that stand alone; each is a batch of its own."""
        table = window.table[first:last]
        start, magic, payload = int(window.starts[first]), int(table[0, H.MAGIC]), window.payload
        end = start + int(table[:, H.SIZE].sum())
        seen, kept = self._chosen(window, payload, start, end, magic, 0, start, keeps_tombstones)
        if not kept:
            return
        stays = self._keep[:seen] != 0
        out = np.empty(end - start, np.uint8)
        filled_to = int(copy_messages(payload, start, end, magic, 0, 0, self._keep, out, 0)[0])
        yield Piece(out.data[:filled_to], table[stays][:, [H.SIZE, H.LAST_OFFSET, H.MAX_TIMESTAMP]])

    def _wrapper(self, window: Window, row: int, keeps_tombstones: bool) -> Iterator[Piece]:
        """A compressed message set: whole, or with fewer messages in it."""
        header = window.table[row]
        wrapper = opened(window, row, self._scratch)
        payload = self._scratch.read_only()
        magic, position = int(header[H.MAGIC]), int(window.starts[row])
        seen, kept = self._chosen(window, payload, 0, wrapper.end, magic, wrapper.add, position, keeps_tombstones)
        if not kept:
            return
        if kept == seen:
            batches = header[[H.SIZE, H.LAST_OFFSET, H.MAX_TIMESTAMP]].reshape(1, 3)
            yield Piece(window.batch(row), batches)
            return
        out = np.empty(wrapper.end, np.uint8)
        filled_to, _, last_offset, largest = copy_messages(
            payload, 0, wrapper.end, magic, wrapper.add, int(magic == 1), self._keep, out, 0
        )
        if header[H.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME or magic == 0:
            largest = int(header[H.MAX_TIMESTAMP])
        data = _wrapped(header, wrapper, out.data[:filled_to], int(last_offset), int(largest))
        yield Piece(data, np.array([[len(data), last_offset, largest]], np.int64))

    def _chosen(
        self,
        window: Window,
        payload: npt.NDArray[np.uint8],
        start: int,
        end: int,
        magic: int,
        add: int,
        at: int,
        keeps_tombstones: bool,
    ) -> tuple[int, int]:
        """(messages, how many stay); `_keep` says which."""
        most = (end - start) // layout.LEGACY_MIN_SIZE[magic]
        if most > self._keep.size:
            self._keep = np.empty(most, np.uint8)
        table, secret = self._keys.table
        seen, kept = choose_messages(
            payload, start, end, magic, add, table, secret, self._keep, self._keys.latest_offset, int(keeps_tombstones)
        )
        if kept < 0:
            raise CorruptBatch(FAULTS[Status(-int(kept))], position=window.start + at)
        return int(seen), int(kept)


def opened(window: Window, row: int, scratch: Scratch) -> OpenedWrapper:
    """The wrapper in a row of a window. Raises CorruptBatch, UnsupportedFormat with position and offset."""
    header = window.header(row)
    try:
        return open_wrapper(window.batch(row), header.magic, header.attributes, header.last_offset, scratch)
    except KafkalogError as error:
        raise error.at(position=header.position, offset=header.last_offset) from None


def _wrapped(
    header: npt.NDArray[np.int64], wrapper: OpenedWrapper, messages: memoryview, last_offset: int, timestamp: int
) -> bytes:
    """A wrapper around `messages`, with the magic, codec and timestamp type of the one that `header` is of."""
    magic, codec = int(header[H.MAGIC]), int(header[H.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC
    value = compress(Codec(codec), messages)
    kept = struct.pack(">bb", magic, int(header[H.ATTRIBUTES])) + (struct.pack(">q", timestamp) if magic else b"")
    body = kept + wrapper.key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", last_offset, len(body) + 4, zlib.crc32(body)) + body
