"""A window of batches without what compaction removes: whole batches byte for byte, others written anew.

v2 batches that are not compressed go through one kernel call together. Compressed ones are unfolded until a megabyte
is there, and packed again one by one where they have changed. Messages v0 and v1 stay what they are.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from broker.storage.cleaner_kernel import (
    CRC_TABLE,
    A,
    CleanStatus,
    Outcome,
    R,
    Rule,
    U,
    choose_messages,
    clean_batches,
    copy_messages,
)
from broker.storage.message_sets import OpenedWrapper, open_wrapper
from broker.storage.offset_map import OffsetMap
from broker.storage.segment_windows import BatchWindow
from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.log import layout
from kafkalog_spark.log.compress import compress
from kafkalog_spark.log.decompress import MAX_DECOMPRESSED, Output, decompress
from kafkalog_spark.log.encoded_batch import seal
from kafkalog_spark.log.kernels.rows import FAULTS, Status
from kafkalog_spark.log.layout import Codec, H
from kafkalog_spark.log.scratch import Scratch

UNFOLDED = 1 << 20
"""Decompressed bytes that are looked at together; the buffer is brought back to twice that after a larger batch."""
_OUT_SIZE = 1 << 20
_NO_MAGIC = 2  # from this magic on there are batches

Batches = npt.NDArray[np.int64]
"""int64[n, 3]: size, last offset, largest timestamp (ms) of each batch."""


class Verdict(NamedTuple):
    """What the records of each batch of a window are to go by; arrays as long as the table.

    rule: see Rule. keep_empty: bool. ended_empty: bool, see U. drop: bool, gone without a look at its records.
    """

    rule: npt.NDArray[np.int64]
    keep_empty: npt.NDArray[np.bool_]
    ended_empty: npt.NDArray[np.bool_]
    drop: npt.NDArray[np.bool_]


class Piece(NamedTuple):
    """Bytes that stay, good until the next one is asked for; the batches in them, and how many records those have."""

    data: memoryview | bytes
    batches: Batches
    records: int


def runs(table: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Neighbours of one kind: v2 plain, v2 compressed, messages, wrappers."""
    if not len(table):
        return
    compressed = (table[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CODEC) != Codec.NONE
    kind = (table[:, H.MAGIC] < _NO_MAGIC) * 4 + (table[:, H.MAGIC] == 1) * 2 + compressed
    yield from pairwise([0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(table)])


class Unfolder:
    """Decompresses v2 batches behind one another into a buffer that is used again."""

    def __init__(self) -> None:
        self.scratch = Scratch(UNFOLDED, most=MAX_DECOMPRESSED + UNFOLDED)

    def groups(
        self, window: BatchWindow, first: int, last: int, wanted: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[int, int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """(first row, last row, starts, ends in the buffer) for as many batches as unfold to a megabyte.

        Batches that are not `wanted` (by row of the window) get an empty range. Raises CorruptBatch,
        UnsupportedFormat.
        """
        starts, ends = np.zeros(last - first, np.int64), np.zeros(last - first, np.int64)
        at, begun = 0, first
        for row in range(first, last):
            starts[row - first] = at
            if wanted[row]:
                codec = int(window.table[row, H.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC
                try:
                    at = decompress(
                        codec, window.batch(row)[layout.RECORDS_AT :], Output(self.scratch, at, MAX_DECOMPRESSED)
                    )
                except KafkalogError as error:
                    raise _placed(error, window, row) from None
            ends[row - first] = at
            if at >= UNFOLDED or row + 1 == last:
                yield begun, row + 1, starts[begun - first : row + 1 - first], ends[begun - first : row + 1 - first]
                at, begun = 0, row + 1
                self.scratch.shrink(2 * UNFOLDED)


class BatchFilter:
    """What one cleaning does to its batches. now_ms: the time. horizon_ms: when a tombstone that stays now may go."""

    def __init__(self, keys: OffsetMap, now_ms: int, horizon_ms: int) -> None:
        self._table, self._secret = keys.table
        self._limits = np.zeros(len(A), np.int64)
        self._limits[A.LATEST] = keys.latest_offset
        self._limits[A.NOW] = now_ms
        self._limits[A.HORIZON] = horizon_ms
        self._out = np.empty(_OUT_SIZE, np.uint8)
        self._keep = np.empty(1 << 10, np.uint8)
        self._unfolder = Unfolder()

    def pieces(self, window: BatchWindow, verdict: Verdict, keeps_legacy_tombstones: bool) -> Iterator[Piece]:
        """What stays of a window, in order. Raises CorruptBatch, UnsupportedFormat."""
        self._limits[A.LEGACY_TOMBSTONES] = keeps_legacy_tombstones
        for first, last in runs(window.table):
            compressed = bool(window.table[first, H.ATTRIBUTES] & layout.ATTRIBUTE_CODEC)
            if window.table[first, H.MAGIC] < _NO_MAGIC:
                for row in range(first, last) if compressed else ():
                    yield from self._wrapper(window, row)
                if not compressed:
                    yield from self._messages(window, first, last)
            elif compressed:
                yield from self._compressed(window, verdict, first, last)
            else:
                yield from self._plain(window, verdict, first, last)

    # ---- v2

    def _plain(self, window: BatchWindow, verdict: Verdict, first: int, last: int) -> Iterator[Piece]:
        rows = np.flatnonzero(~verdict.drop[first:last]) + first
        table = window.table[rows]
        starts = table[:, H.POSITION] + layout.RECORDS_AT
        ends = table[:, H.POSITION] + table[:, H.SIZE]
        units = _units(table, verdict, rows)
        for _, results in self._run(window, window.data, starts, ends, units, copy_whole=True):
            stays = results[results[:, R.OUTCOME] != Outcome.DROPPED]
            batches = stays[:, [R.OUT_SIZE, R.LAST_OFFSET, R.MAX_TIMESTAMP]]
            yield Piece(self._out.data[: int(self._limits[A.OUT_AT])], batches, int(stays[:, R.KEPT].sum()))

    def _compressed(self, window: BatchWindow, verdict: Verdict, first: int, last: int) -> Iterator[Piece]:
        wanted = ~verdict.drop & (verdict.rule != Rule.NONE)
        for group_first, group_last, starts, ends in self._unfolder.groups(window, first, last, wanted):
            kept = ~verdict.drop[group_first:group_last]
            rows = np.flatnonzero(kept) + group_first
            payload = self._unfolder.scratch.read_only()
            units = _units(window.table[rows], verdict, rows)
            for begun, results in self._run(window, payload, starts[kept], ends[kept], units, copy_whole=False):
                yield self._packed(window, rows[begun : begun + len(results)], results)

    def _packed(self, window: BatchWindow, rows: npt.NDArray[np.int64], results: npt.NDArray[np.int64]) -> Piece:
        """Batches as they were, and those that have changed, compressed again."""
        pieces: list[bytes | memoryview] = []
        batches: list[tuple[int, int, int]] = []
        for row, (outcome, at, size, last_offset, max_timestamp, _) in zip(
            rows.tolist(), results.tolist(), strict=True
        ):
            if outcome == Outcome.DROPPED:
                continue
            data: bytes | memoryview = self._out.data[at : at + size]
            if outcome == Outcome.WHOLE:
                data = window.batch(row)
            elif outcome == Outcome.REWRITTEN:
                codec = int(window.table[row, H.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC
                data = self._pack(self._out.data[at : at + size], codec)
            pieces.append(data)
            batches.append((len(data), last_offset, max_timestamp))
        table = np.array(batches, np.int64).reshape(-1, 3)
        stays = results[:, R.OUTCOME] != Outcome.DROPPED
        return Piece(b"".join(pieces), table, int(results[stays, R.KEPT].sum()))

    def _pack(self, batch: memoryview, codec: int) -> bytes:
        """With the codec's default level, whatever the topic's is, as Kafka's cleaner does."""
        fields = layout.BATCH_HEADER.unpack_from(batch)
        records = compress(Codec(codec), batch[layout.RECORDS_AT :])
        packed = bytearray(layout.BATCH_OVERHEAD) + records
        attributes_at = 5  # of BATCH_HEADER's fields
        seal(
            packed,
            0,
            len(packed),
            (*fields[:attributes_at], fields[attributes_at] | codec, *fields[attributes_at + 1 :]),
        )
        return bytes(packed)

    def _run(
        self,
        window: BatchWindow,
        payload: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        units: npt.NDArray[np.int64],
        *,
        copy_whole: bool,
    ) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """(first unit, results) for as many batches as `out` takes; the caller takes them away before going on."""
        if not len(units):
            return
        # No batch has more records than bytes for them, whatever its header says; the kernel finds that out.
        most = np.minimum(units[:, U.COUNT], (ends - starts) // layout.MIN_RECORD_SIZE)
        self._make_room_for(int(most.max(initial=0)))
        limits = self._limits
        limits[A.COPY_WHOLE] = copy_whole
        limits[A.UNIT] = 0
        results = np.empty((len(units), len(R)), np.int64)
        while True:
            begun = int(limits[A.UNIT])
            limits[A.OUT_AT] = 0
            status = clean_batches(
                window.data, payload, starts, ends, units, self._table, self._secret, self._keep, limits, self._out,
                results, CRC_TABLE,
            )  # fmt: skip
            done = int(limits[A.UNIT])
            if status >= Status.RECORD_OVERRUNS:
                raise CorruptBatch(
                    FAULTS[Status(status)],
                    position=window.start + int(units[done, U.HEADER_AT]),
                    offset=int(units[done, U.BASE_OFFSET]),
                )
            if done > begun:
                yield begun, results[begun:done]
            if status == CleanStatus.DONE:
                break
            if limits[A.NEEDED] > self._out.size:
                self._out = np.empty(int(limits[A.NEEDED]), np.uint8)
        if self._out.size > _OUT_SIZE:
            self._out = np.empty(_OUT_SIZE, np.uint8)

    def _make_room_for(self, records: int) -> None:
        if records > self._keep.size:
            self._keep = np.empty(records, np.uint8)

    # ---- v0, v1

    def _messages(self, window: BatchWindow, first: int, last: int) -> Iterator[Piece]:
        """Messages that stand alone; each is a batch of its own."""
        table = window.table[first:last]
        start, end = int(table[0, H.POSITION]), int(table[-1, H.POSITION] + table[-1, H.SIZE])
        magic = int(table[0, H.MAGIC])
        seen, kept = self._chosen(window, window.data, start, end, magic, 0, start)
        if not kept:
            return
        stays = self._keep[:seen] != 0
        out = np.empty(end - start, np.uint8)
        behind = int(copy_messages(window.data, start, end, magic, 0, 0, self._keep, out, 0)[0])
        yield Piece(out.data[:behind], table[stays][:, [H.SIZE, H.LAST_OFFSET, H.MAX_TIMESTAMP]], kept)

    def _wrapper(self, window: BatchWindow, row: int) -> Iterator[Piece]:
        """A compressed message set: whole, or with fewer messages in it."""
        header = window.table[row]
        wrapper = open_wrapper(window, row, self._unfolder.scratch)
        payload = self._unfolder.scratch.read_only()
        magic, position = int(header[H.MAGIC]), int(header[H.POSITION])
        seen, kept = self._chosen(window, payload, 0, wrapper.end, magic, wrapper.add, position)
        if not kept:
            return
        if kept == seen:
            batches = header[[H.SIZE, H.LAST_OFFSET, H.MAX_TIMESTAMP]].reshape(1, 3)
            yield Piece(window.batch(row), batches, kept)
            return
        out = np.empty(wrapper.end, np.uint8)
        behind, _, last_offset, largest = copy_messages(
            payload, 0, wrapper.end, magic, wrapper.add, int(magic == 1), self._keep, out, 0
        )
        if header[H.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME or magic == 0:
            largest = int(header[H.MAX_TIMESTAMP])
        data = _wrapped(header, wrapper, out.data[:behind], int(last_offset), int(largest))
        yield Piece(data, np.array([[len(data), last_offset, largest]], np.int64), kept)

    def _chosen(
        self, window: BatchWindow, payload: npt.NDArray[np.uint8], start: int, end: int, magic: int, add: int, at: int
    ) -> tuple[int, int]:
        """(messages, how many stay); `_keep` says which."""
        self._make_room_for((end - start) // layout.LEGACY_MIN_SIZE[magic])
        seen, kept = choose_messages(
            payload, start, end, magic, add, self._table, self._secret, self._keep, self._limits
        )
        if kept < 0:
            raise CorruptBatch(FAULTS[Status(-int(kept))], position=window.start + at)
        return int(seen), int(kept)


def _units(table: npt.NDArray[np.int64], verdict: Verdict, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    units = np.empty((len(table), len(U)), np.int64)
    for column, source in (
        (U.BASE_OFFSET, H.BASE_OFFSET),
        (U.LAST_OFFSET, H.LAST_OFFSET),
        (U.COUNT, H.COUNT),
        (U.BASE_TIMESTAMP, H.BASE_TIMESTAMP),
        (U.MAX_TIMESTAMP, H.MAX_TIMESTAMP),
        (U.ATTRIBUTES, H.ATTRIBUTES),
        (U.HEADER_AT, H.POSITION),
        (U.SIZE, H.SIZE),
    ):
        units[:, column] = table[:, source]
    units[:, U.RULE] = verdict.rule[rows]
    units[:, U.KEEP_EMPTY] = verdict.keep_empty[rows]
    units[:, U.ENDED_EMPTY] = verdict.ended_empty[rows]
    return units


def _wrapped(
    header: npt.NDArray[np.int64], wrapper: OpenedWrapper, messages: memoryview, last_offset: int, timestamp: int
) -> bytes:
    """A wrapper around `messages`, with the magic, codec and timestamp type of the one that `header` is of."""
    magic, codec = int(header[H.MAGIC]), int(header[H.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC
    value = compress(Codec(codec), messages)
    kept = struct.pack(">bb", magic, int(header[H.ATTRIBUTES])) + (struct.pack(">q", timestamp) if magic else b"")
    body = kept + wrapper.key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", last_offset, len(body) + 4, zlib.crc32(body)) + body


def _placed(error: KafkalogError, window: BatchWindow, row: int) -> KafkalogError:
    return error.at(
        position=window.start + int(window.table[row, H.POSITION]), offset=int(window.table[row, H.BASE_OFFSET])
    )
