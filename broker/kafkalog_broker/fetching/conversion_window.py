"""A window of a log that is to be converted: which batches lie there, whole and undamaged, and what becomes of each."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.append.record_walk import load_kernel
from kafkalog_broker.storage.partition.log_reader import LogReader
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.batch_header import computed_crc, crc_text, parse_prefix
from kafkalog_spark.log.format.layout import Codec, H
from kafkalog_spark.log.read.transactions import AbortedRanges

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]


class Asked(NamedTuple):
    """One window. until: no batch from there on. room: bytes. What a first message may be that has no room: `whole`, or
    `cut` off at it; else it stays away."""

    offset: int
    until: int
    magic: int
    room: int
    whole: bool
    cut: bool


class Kind(IntEnum):
    HIDDEN = 0
    READABLE = 1  # goes out as it lies there
    RECORDS = 2  # v2, not compressed
    PACKED_RECORDS = 3
    MESSAGES = 4  # v1 that must become v0
    PACKED_MESSAGES = 5


def headers_of(data: memoryview) -> I64:
    """The header table (layout.H) of the batches before the first wrong one. Raises CorruptBatch without any."""
    load_kernel()  # in its way: nobody waits for LLVM
    from kafkalog_broker.fetching.conversion_kernel import headers
    from kafkalog_spark.log.kernels.primitives import CRC32_TABLE, CRC32C_TABLE

    table = np.empty((len(data) // layout.LEGACY_MIN_SIZE[0] + 1, len(H)), np.int64)
    rows, _, _ = headers(as_array(data), 0, len(data), table, CRC32C_TABLE, CRC32_TABLE)
    table = table[:rows]
    for row in np.flatnonzero(table[:, H.CRC_SEEN] == 0).tolist():
        position, size, magic = (int(table[row, column]) for column in (H.POSITION, H.SIZE, H.MAGIC))
        if computed_crc(data[position : position + size], magic) != table[row, H.CRC]:
            table = table[:row]
            break
    if not len(table):
        say_what_is_wrong(data, 0)
    return table


def say_what_is_wrong(data: memoryview, position: int) -> None:
    if len(data) - position <= layout.MAGIC_AT:
        raise CorruptBatch(f"{len(data) - position} bytes come after a batch and are none")
    size, magic = parse_prefix(data, position, position)
    crc_at = layout.CRC_AT if magic == 2 else layout.LEGACY_CRC_AT
    expected = int.from_bytes(data[position + crc_at : position + crc_at + 4], "big")
    raise CorruptBatch(crc_text(magic, expected, computed_crc(data[position : position + size], magic)))


def kinds_of(table: I64, reader: LogReader, asked: Asked, up_to: int) -> I64:
    """int64[n]: the Kind of each batch."""
    magic, attributes = table[:, H.MAGIC], table[:, H.ATTRIBUTES]
    packed = (attributes & layout.ATTRIBUTE_CODEC) != Codec.NONE
    kinds = np.where(magic == 2, Kind.RECORDS, Kind.MESSAGES) + packed
    kinds[magic <= asked.magic] = Kind.READABLE
    is_v2 = magic == 2
    kinds[is_v2 & ((attributes & layout.ATTRIBUTE_CONTROL) != 0)] = Kind.HIDDEN
    if (is_v2 & ((attributes & layout.ATTRIBUTE_TRANSACTIONAL) != 0)).any():
        kinds[AbortedRanges(reader.aborted_between(asked.offset, up_to)).hides(table)] = Kind.HIDDEN
    found: I64 = kinds.astype(np.int64)
    return found


def runs(kinds: I64) -> Iterator[tuple[int, int]]:
    """(first, end) of neighbours of the same kind."""
    return pairwise([0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)])


def as_array(data: memoryview) -> U8:
    found: U8 = np.frombuffer(data.toreadonly(), np.uint8) if len(data) else _NOTHING
    return found


_NOTHING = np.empty(0, np.uint8)
_NOTHING.flags.writeable = False
