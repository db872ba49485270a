"""Reading of messages of format v0 and v1 for compaction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.append.message_layouts import MessageColumn, SetFault
from kafkalog_broker.storage.append.message_set_kernel import find_messages
from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.kernels.primitives import CRC32_TABLE
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.decode.decompressed_batches import OpenedWrapper, open_wrapper
from kafkalog_spark.log.read.header_windows import Window


def find_messages_in(
    payload: npt.NDArray[np.uint8],
    start: int,
    end: int,
    magic: int,
    offset_shift: int = 0,
    from_offset: int = layout.MIN_INT64,
) -> npt.NDArray[np.int64]:
    """Find the messages of format v0 or v1 in payload[start:end].

    Args:
        offset_shift: Number to add to each offset; that of the wrapper if the payload is the content of one.
        from_offset: Messages below this offset are left out.

    Returns:
        int64[n, len(MessageColumn)], from `find_messages`.

    Raises:
        CorruptBatch: If a message is malformed.
    """
    messages = np.empty(((end - start) // layout.LEGACY_MIN_SIZE[magic], len(MessageColumn)), np.int64)
    rows, fault = find_messages(
        payload, start, end, magic, offset_shift, from_offset, layout.MAX_INT64, 1, CRC32_TABLE[:0], messages
    )
    if fault != SetFault.NONE:
        raise CorruptBatch(f"a message has a fault: {SetFault(fault).name.lower().replace('_', ' ')}")
    return messages[:rows]


def open_wrapper_at(window: Window, row: int, scratch: Scratch) -> OpenedWrapper:
    """Open the wrapper message in a row of a window.

    Raises CorruptBatch, UnsupportedFormat with position and offset.
    """
    header = window.header(row)
    try:
        return open_wrapper(window.batch(row), header.magic, header.attributes, header.last_offset, scratch)
    except KafkalogError as error:
        raise error.at(position=header.position, offset=header.last_offset) from None
