"""Reading of message sets of format v0 and v1: positions of their messages, and the first fault.

Numba is loaded by the first call.
"""

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
    SetFault.SMALL_SIZE: (_CORRUPT, "is smaller than any message"),
    SetFault.UNKNOWN_MAGIC: (_CORRUPT, "has an unknown magic byte"),
    SetFault.OTHER_MAGIC: (_INVALID, "has another magic byte than the first message or its wrapper"),
    SetFault.TOO_LARGE: (ErrorCode.message_too_large, "is larger than max.message.bytes of the topic"),
    SetFault.CRC: (_CORRUPT, "has a CRC that does not match its bytes"),
    SetFault.COMPRESSED: (_INVALID, "is compressed, but is not the only message of the request's set"),
    SetFault.FIELDS: (_INVALID, "has a key or value that extends past its end"),
    SetFault.APPEND_TIME_SET: (
        ErrorCode.invalid_timestamp,
        "has timestamp type LogAppendTime, which only brokers may set",
    ),
    SetFault.TOO_MANY: (_INVALID, f"exceeds the limit of {MAX_RECORDS} messages; send smaller sets"),
}


class MessageSet(NamedTuple):
    """Messages of a set.

    Attributes:
        messages: int64[n, len(MessageColumn)]: the messages before the first fault. A message that is cut short at the
            end of the set is omitted.
        fault: Fault of the message after them, or NONE.
    """

    messages: npt.NDArray[np.int64]
    fault: SetFault


def read_message_set(
    source: memoryview, magic: int, max_message_bytes: int, *, is_inner: bool, checks_crc: bool = True
) -> MessageSet:
    """Read a message set.

    Args:
        source: Bytes of the set.
        magic: Format that all messages must have.
        max_message_bytes: Largest allowed size of a message.
        is_inner: True for the set in a wrapper. Its messages may have the timestamp type LogAppendTime.
        checks_crc: False leaves CRCs unchecked.
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


def describe_fault(fault: SetFault) -> str:
    """Return what is wrong with a message, as the predicate of a sentence: "has a negative size"."""
    return _FAULTS[fault][1]


def fault_error(fault: SetFault, message: int) -> BrokerError:
    """Return the error for a fault. message: Index of the faulty message in the set."""
    return BrokerError(_FAULTS[fault][0], f"message {message} of the set {describe_fault(fault)}")


class OffsetAndTimestamp(NamedTuple):
    """Offset of a message, and its timestamp in ms."""

    offset: int
    timestamp: int


def inner_messages(payload: memoryview, magic: int, wrapper_offset: int) -> Iterator[OffsetAndTimestamp]:
    """Return offset and timestamp of each message in a wrapper, for ListOffsets. CRCs are not checked.

    In format v0 the messages have absolute offsets. In v1 their offsets are relative, and the last message has the
    wrapper's offset (KIP-31). A message that is cut short at the end is omitted (Kafka: `DeepRecordsIterator`).

    Args:
        payload: Decompressed message set.
        magic: Format of the wrapper.
        wrapper_offset: Offset of the wrapper.

    Raises:
        CorruptBatch: If a message is faulty, or the set is empty.
    """
    messages, fault = read_message_set(payload, magic, MAX_DECOMPRESSED, is_inner=True, checks_crc=False)
    if fault:
        raise CorruptBatch(f"the wrapper is malformed: {fault_error(fault, len(messages)).what}")
    if not len(messages):
        raise CorruptBatch("the wrapper contains no messages")
    offsets = messages[:, MessageColumn.OFFSET]
    if magic and wrapper_offset:  # some librdkafka releases left the wrapper's offset at 0
        if wrapper_offset < offsets[-1]:
            raise CorruptBatch(
                f"the wrapper has offset {wrapper_offset}, below that of its last message, {offsets[-1]}"
            )
        offsets += wrapper_offset - offsets[-1]
    return map(OffsetAndTimestamp, offsets.tolist(), messages[:, MessageColumn.TIMESTAMP].tolist())
