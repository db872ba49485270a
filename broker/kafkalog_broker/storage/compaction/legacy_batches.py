"""Reads batches of format v0 and v1 for compaction: single messages, and wrappers around compressed messages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.append.message_layouts import MessageColumn, SetFault
from kafkalog_broker.storage.append.message_set import describe_fault
from kafkalog_broker.storage.append.message_set_kernel import find_messages
from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.kernels.primitives import CRC32_TABLE
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.decode.decompressed_batches import open_wrapper
from kafkalog_spark.log.read.header_windows import Window

# Arguments of `find_messages`: a log may contain messages larger than the present max.message.bytes, and messages to
# which the broker has given the timestamp type LogAppendTime.
_ANY_SIZE = layout.MAX_INT64
_APPEND_TIME_ALLOWED = 1
_CRCS_UNCHECKED = CRC32_TABLE[:0]


class OpenedWrapper(NamedTuple):
    """The messages in a wrapper.

    Attributes:
        payload: uint8[], the decompressed message set. Valid until its Scratch is used again.
        messages: int64[n, len(MessageColumn)], with absolute offsets and positions in `payload`.
        key: Bytes of the wrapper's key field, with its length.
    """

    payload: npt.NDArray[np.uint8]
    messages: npt.NDArray[np.int64]
    key: bytes


def read_messages(window: Window, first: int, end: int, from_offset: int = layout.MIN_INT64) -> npt.NDArray[np.int64]:
    """Return the messages in rows [first, end) of a window, which have the same format and are not in a wrapper.

    Args:
        window: Window of a segment.
        first: First row.
        end: Row after the last one.
        from_offset: Messages below this offset are left out.

    Returns:
        int64[n, len(MessageColumn)], with positions in `window.payload`. Without `from_offset`, one for each row.

    Raises:
        CorruptBatch: If a message is malformed.
    """
    start = int(window.starts[first])
    size = int(window.table[first:end, HeaderColumn.SIZE].sum())
    magic = int(window.table[first, HeaderColumn.MAGIC])
    return messages_in(window.payload, start, start + size, magic, from_offset=from_offset)


def read_wrapper(window: Window, row: int, scratch: Scratch, from_offset: int = layout.MIN_INT64) -> OpenedWrapper:
    """Decompress the wrapper in a row of a window.

    Args:
        window: Window of a segment.
        row: Row of the wrapper.
        scratch: Gets the decompressed messages.
        from_offset: Messages below this offset are left out.

    Raises:
        CorruptBatch, UnsupportedFormat: If the wrapper or one of its messages is malformed; with position and offset.
    """
    header = window.header(row)
    try:
        wrapper = open_wrapper(window.batch(row), header.magic, header.attributes, header.last_offset, scratch)
        payload = scratch.read_only()[: wrapper.end]
        messages = messages_in(payload, 0, wrapper.end, header.magic, wrapper.offset_shift, from_offset)
    except KafkalogError as error:
        raise error.at(position=header.position, offset=header.last_offset) from None
    return OpenedWrapper(payload, messages, wrapper.key)


def messages_in(
    payload: npt.NDArray[np.uint8],
    start: int,
    end: int,
    magic: int,
    offset_shift: int = 0,
    from_offset: int = layout.MIN_INT64,
) -> npt.NDArray[np.int64]:
    """Return the messages of format v0 or v1 in payload[start:end].

    The last one must not be cut short, because it would be left out. Headers of a window are those of whole batches,
    and `open_wrapper` refuses a set whose last message is cut short. Both have checked the CRCs.

    Args:
        payload: Bytes with the messages.
        start: Position of the first message.
        end: Position after the last message.
        magic: Format of the messages.
        offset_shift: Number to add to each offset; that of the wrapper if the payload is the content of one.
        from_offset: Messages below this offset are left out.

    Returns:
        int64[n, len(MessageColumn)].

    Raises:
        CorruptBatch: If a message is malformed.
    """
    messages = np.empty(((end - start) // layout.LEGACY_MIN_SIZE[magic], len(MessageColumn)), np.int64)
    count, fault = find_messages(
        payload, start, end, magic, offset_shift, from_offset, _ANY_SIZE, _APPEND_TIME_ALLOWED, _CRCS_UNCHECKED,
        messages,
    )  # fmt: skip
    if fault != SetFault.NONE:
        raise CorruptBatch(f"a message {describe_fault(SetFault(fault))}")
    return messages[:count]
