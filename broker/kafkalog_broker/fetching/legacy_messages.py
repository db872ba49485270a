"""Messages v0 and v1 made of the records and messages in a payload: found, measured and written by kernels.

Functions that find or write messages load Numba at their first call, not when a broker starts.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.append.message_layouts import MessageColumn, SetFault, Unit
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, HeaderColumn

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]


class Source(Enum):
    """Content of a payload."""

    RECORDS = auto()  # of v2 batches
    MESSAGES = auto()  # v1


class FoundMessages(NamedTuple):
    """Messages found in a payload.

    Attributes:
        columns: int64[n, len(MessageColumn)].
        is_malformed: True if something malformed follows the last one.
    """

    columns: I64
    is_malformed: bool


def units_of(batches: I64) -> I64:
    """Return int64[n, len(Unit)] of v2 batches, given rows of a header table."""
    units = np.empty((len(batches), len(Unit)), np.int64)
    units[:, Unit.START] = batches[:, HeaderColumn.POSITION] + layout.RECORDS_AT
    units[:, Unit.END] = batches[:, HeaderColumn.POSITION] + batches[:, HeaderColumn.SIZE]
    units[:, Unit.BASE_OFFSET], units[:, Unit.COUNT] = (
        batches[:, HeaderColumn.BASE_OFFSET],
        batches[:, HeaderColumn.COUNT],
    )
    units[:, Unit.BASE_TIMESTAMP], units[:, Unit.TIMESTAMP] = (
        batches[:, HeaderColumn.BASE_TIMESTAMP],
        batches[:, HeaderColumn.MAX_TIMESTAMP],
    )
    units[:, Unit.APPEND_TIME] = (batches[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME) != 0
    return units


def find(source: Source, payload: U8, units: I64, offset: int, most: int) -> FoundMessages:
    """Find the records or messages of `units` from `offset` on, at most `most` of them.

    The units of messages must follow one another in the payload; their CRCs are not checked again.
    """
    from kafkalog_broker.storage.append.message_set_kernel import find_messages, find_records
    from kafkalog_spark.kernels.primitives import CRC32_TABLE

    messages = np.empty((most, len(MessageColumn)), np.int64)
    if source is Source.RECORDS:
        rows, malformed = find_records(payload, units, offset, messages)
        return FoundMessages(messages[:rows], bool(malformed))
    rows, fault = find_messages(
        payload, units[0, Unit.START], units[-1, Unit.END], 1, units[0, Unit.BASE_OFFSET], offset, MAX_DECOMPRESSED, 1,
        CRC32_TABLE[:0], messages,
    )  # fmt: skip
    return FoundMessages(messages[:rows], fault not in (SetFault.NONE, SetFault.TOO_MANY))


def end_positions(messages: I64, magic: int) -> I64:
    """Return int64[n]: bytes that the messages up to and including each one take in format `magic`."""
    sizes = np.maximum(messages[:, (MessageColumn.KEY_SIZE, MessageColumn.VALUE_SIZE)], 0).sum(axis=1)
    ends: I64 = np.cumsum(sizes + layout.LEGACY_MIN_SIZE[magic])
    return ends


def write(payload: U8, messages: I64, magic: int, *, relative_offsets: bool = False) -> memoryview:
    """Return the bytes of `messages`, at least one, in format `magic`.

    Args:
        payload: Payload in which the messages were found.
        messages: Columns as `find` returns them.
        magic: Message format, 0 or 1.
        relative_offsets: True if offsets count from the first message, as they do in a wrapper v1.
    """
    from kafkalog_broker.storage.append.message_set_kernel import write_messages
    from kafkalog_spark.kernels.primitives import CRC32_TABLE

    out = np.empty(int(end_positions(messages, magic)[-1]), np.uint8)
    base_offset = int(messages[0, MessageColumn.OFFSET]) if relative_offsets else 0
    write_messages(payload, messages, magic, base_offset, CRC32_TABLE, out)
    return out.data
