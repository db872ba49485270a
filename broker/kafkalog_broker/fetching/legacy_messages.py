"""Conversion of the records and messages in a payload into messages v0 and v1: locate, measure and encode them.

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


class PayloadKind(Enum):
    """Kind of the content of a payload."""

    RECORDS = auto()  # of v2 batches
    MESSAGES = auto()  # v1


class LocatedMessages(NamedTuple):
    """Records or messages located in a payload.

    Attributes:
        columns: int64[n, len(MessageColumn)], a row for each message.
        is_malformed: True if something malformed follows the last one.
    """

    columns: I64
    is_malformed: bool


def units_of_batches(batches: I64) -> I64:
    """Return the units of v2 batches for the kernels, int64[n, len(Unit)], given rows of a header table."""
    units = np.empty((len(batches), len(Unit)), np.int64)
    units[:, Unit.START] = batches[:, HeaderColumn.POSITION] + layout.RECORDS_AT
    units[:, Unit.END] = batches[:, HeaderColumn.POSITION] + batches[:, HeaderColumn.SIZE]
    units[:, Unit.BASE_OFFSET] = batches[:, HeaderColumn.BASE_OFFSET]
    units[:, Unit.COUNT] = batches[:, HeaderColumn.COUNT]
    units[:, Unit.BASE_TIMESTAMP] = batches[:, HeaderColumn.BASE_TIMESTAMP]
    units[:, Unit.TIMESTAMP] = batches[:, HeaderColumn.MAX_TIMESTAMP]
    units[:, Unit.APPEND_TIME] = (batches[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME) != 0
    return units


def locate_messages(kind: PayloadKind, payload: U8, units: I64, offset: int, max_messages: int) -> LocatedMessages:
    """Locate the records or messages of `units` from `offset` on.

    The units of messages must follow one another in the payload. Their CRCs are not checked again.

    Args:
        kind: Kind of the content of `payload`.
        payload: Bytes of the batches.
        units: Units in the payload, in order.
        offset: Offset of the first wanted message.
        max_messages: Limit on the number of messages.
    """
    from kafkalog_broker.storage.append.message_set_kernel import find_messages, find_records
    from kafkalog_spark.kernels.primitives import CRC32_TABLE

    messages = np.empty((max_messages, len(MessageColumn)), np.int64)
    if kind is PayloadKind.RECORDS:
        rows, malformed = find_records(payload, units, offset, messages)
        return LocatedMessages(messages[:rows], bool(malformed))
    rows, fault = find_messages(
        payload, units[0, Unit.START], units[-1, Unit.END], 1, units[0, Unit.BASE_OFFSET], offset, MAX_DECOMPRESSED, 1,
        CRC32_TABLE[:0], messages,
    )  # fmt: skip
    return LocatedMessages(messages[:rows], fault not in (SetFault.NONE, SetFault.TOO_MANY))


def end_positions(messages: I64, magic: int) -> I64:
    """Return int64[n]: the end position of each message if all are encoded one after another in format `magic`."""
    sizes = np.maximum(messages[:, (MessageColumn.KEY_SIZE, MessageColumn.VALUE_SIZE)], 0).sum(axis=1)
    ends: I64 = np.cumsum(sizes + layout.LEGACY_MIN_SIZE[magic])
    return ends


def encode_messages(payload: U8, messages: I64, magic: int, *, relative_offsets: bool = False) -> memoryview:
    """Return the bytes of `messages`, at least one, in format `magic`.

    Args:
        payload: Payload in which the messages were found.
        messages: Columns as `locate_messages` returns them.
        magic: Message format, 0 or 1.
        relative_offsets: True if offsets are relative to the first message, as in a wrapper v1.
    """
    from kafkalog_broker.storage.append.message_set_kernel import write_messages
    from kafkalog_spark.kernels.primitives import CRC32_TABLE

    out = np.empty(int(end_positions(messages, magic)[-1]), np.uint8)
    base_offset = int(messages[0, MessageColumn.OFFSET]) if relative_offsets else 0
    write_messages(payload, messages, magic, base_offset, CRC32_TABLE, out)
    return out.data
