"""Message sets v0 and v1, read by a kernel: their messages, and the first fault. Loads Numba at the first call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.kernel_loading import load_kernel
from kafkalog_broker.storage.append.message_layouts import MessageColumn, SetFault
from kafkalog_broker.storage.append.validation_budget import MAX_RECORDS
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import MAX_DECOMPRESSED

_CORRUPT, _INVALID = ErrorCode.corrupt_message, ErrorCode.invalid_record
_FAULTS = {
    SetFault.NEGATIVE_SIZE: (ErrorCode.invalid_fetch_size, "has a negative size"),
    SetFault.SMALL_SIZE: (_CORRUPT, "is smaller than a message can be"),
    SetFault.UNKNOWN_MAGIC: (_CORRUPT, "has a magic byte that is not known"),
    SetFault.OTHER_MAGIC: (_INVALID, "has another magic byte than the first one, or the wrapper that it is in"),
    SetFault.TOO_LARGE: (ErrorCode.message_too_large, "is larger than max.message.bytes of the topic"),
    SetFault.CRC: (_CORRUPT, "has a CRC that does not match its bytes"),
    SetFault.COMPRESSED: (_INVALID, "is compressed: a compressed message stands alone, and not in another one"),
    SetFault.FIELDS: (_INVALID, "has a key or value that does not lie in it"),
    SetFault.APPEND_TIME_SET: (ErrorCode.invalid_timestamp, "has the timestamp type LogAppendTime, which brokers set"),
    SetFault.TOO_MANY: (_INVALID, f"is one more than the {MAX_RECORDS} that are taken; send smaller sets"),
}


class MessageSet(NamedTuple):
    """Messages of a set.

    Attributes:
        messages: int64[n, len(MessageColumn)] of the messages before the first fault. A message that is cut short at
            the end is dropped.
        fault: Fault of the message after them, or NONE.
    """

    messages: npt.NDArray[np.int64]
    fault: SetFault


def read_message_set(
    source: memoryview, magic: int, max_message_bytes: int, *, is_inner: bool, checks_crc: bool = True
) -> MessageSet:
    """Read a message set.

    Args:
        source: The set.
        magic: Format that all messages must have.
        max_message_bytes: Bytes of one message.
        is_inner: True for the set of a wrapper, whose messages may have the timestamp type LogAppendTime.
        checks_crc: False if CRCs need not be checked.
    """
    load_kernel()  # loads LLVM without blocking other threads
    from kafkalog_broker.storage.append.message_set_kernel import find_messages
    from kafkalog_spark.kernels.primitives import CRC32_TABLE

    rows = min(len(source) // layout.LEGACY_MIN_SIZE[0], MAX_RECORDS)
    messages = np.empty((rows, len(MessageColumn)), np.int64)
    count, fault = find_messages(
        np.frombuffer(source.toreadonly(), np.uint8), 0, len(source), magic, 0, layout.MIN_INT64, max_message_bytes,
        int(is_inner), CRC32_TABLE if checks_crc else CRC32_TABLE[:0], messages,
    )  # fmt: skip
    return MessageSet(messages[:count], SetFault(fault))


def fault_error(fault: SetFault, message: int) -> BrokerError:
    """Return the error for a faulty message, given its index in the set."""
    code, what = _FAULTS[fault]
    return BrokerError(code, f"message {message} of the set {what}")


class OffsetAndTimestamp(NamedTuple):
    """Offset of a message, and its timestamp in ms."""

    offset: int
    timestamp: int


def inner_messages(payload: memoryview, magic: int, wrapper_offset: int) -> Iterator[OffsetAndTimestamp]:
    """Return offset and timestamp of each message of a wrapper, for ListOffsets. CRCs are not checked.

    In v0 the messages have offsets of the log. In v1 they count from the first one, and the last one has the offset of
    the wrapper (KIP-31). A message that is cut short at the end is dropped, as in Kafka (DeepRecordsIterator).

    Args:
        payload: The uncompressed message set.
        magic: Format of the wrapper.
        wrapper_offset: Offset of the wrapper.

    Raises:
        CorruptBatch: A message is faulty, or there is none.
    """
    messages, fault = read_message_set(payload, magic, MAX_DECOMPRESSED, is_inner=True, checks_crc=False)
    if fault:
        raise CorruptBatch(f"in a wrapper, {fault_error(fault, len(messages)).what}")
    if not len(messages):
        raise CorruptBatch("a wrapper without a message")
    offsets = messages[:, MessageColumn.OFFSET]
    if magic and wrapper_offset:  # some librdkafka releases left the wrapper's offset at 0
        if wrapper_offset < offsets[-1]:
            raise CorruptBatch(f"offset {wrapper_offset} of a wrapper is below that of its last message")
        offsets += wrapper_offset - offsets[-1]
    return map(OffsetAndTimestamp, offsets.tolist(), messages[:, MessageColumn.TIMESTAMP].tolist())
