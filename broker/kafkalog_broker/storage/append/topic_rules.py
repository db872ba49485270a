"""Rules of a topic for new records (LogValidator), on plain facts: sizes, timestamps, keys.

Both validators apply them: `append_validation` to v2 batches, `message_sets` to messages v0 and v1. The codec of
compression.type is in `recompression`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import NO_TIMESTAMP

MAX_RECORD_ERRORS = 100
"""Records listed in a response. Kafka lists all: 65 MB for a million records."""
_LOG_APPEND_TIME = "LogAppendTime"
_new = tuple.__new__  # TimestampBounds(...) takes three times as long, for every batch


class RecordRule(IntEnum):
    """Rule that a record breaks (LogValidator.validateRecord)."""

    NO_KEY = 1
    APPEND_TIME_SET = 2
    TIMESTAMP = 3


class InvalidRecord(NamedTuple):
    """Record that breaks a rule: its index in the batch, and the reason as text (ProduceResponse.RecordError)."""

    batch_index: int
    message: str


class InvalidRecords(BrokerError):
    """Records of a batch break a rule.

    Attributes:
        records: The first of them, at most MAX_RECORD_ERRORS.
        total: Number of all of them.
    """

    def __init__(self, code: ErrorCode, records: Sequence[InvalidRecord], total: int) -> None:
        shown = "; ".join(f"record {record.batch_index}: {record.message}" for record in records[:3])
        more = f" ({total - len(records)} more than are listed)" if total > len(records) else ""
        super().__init__(code, f"{total} of the batch's records are refused{more}, the first of them: {shown}")
        self.records = records
        self.total = total


class TimestampBounds(NamedTuple):
    """Smallest and largest timestamp that a record may have, in ms; both are int64."""

    smallest: int
    largest: int


_UNBOUNDED = TimestampBounds(layout.MIN_INT64, layout.MAX_INT64)


def sets_append_time(config: LogConfig) -> bool:
    """message.timestamp.type: return whether all records get the time of the broker."""
    return config.message_timestamp_type == _LOG_APPEND_TIME


def timestamp_bounds(config: LogConfig, now_ms: int) -> TimestampBounds:
    """message.timestamp.before.max.ms and after.max.ms: return the bounds of the timestamps of producers."""
    if config.message_timestamp_type == _LOG_APPEND_TIME:
        return _UNBOUNDED
    smallest = now_ms - config.message_timestamp_before_max_ms
    largest = now_ms + config.message_timestamp_after_max_ms
    return _new(TimestampBounds, (max(smallest, layout.MIN_INT64), min(largest, layout.MAX_INT64)))


def needs_keys(config: LogConfig) -> bool:
    """cleanup.policy: return whether a record must have a key."""
    return config.is_compacted


def check_size(size: int, config: LogConfig) -> None:
    """max.message.bytes: raise BrokerError message_too_large for a batch or wrapper of more bytes."""
    if size > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.message_too_large,
            f"a batch of {size} bytes, max.message.bytes of the topic is {config.max_message_bytes}",
        )


def check_records(
    timestamps: npt.NDArray[np.int64],
    key_sizes: npt.NDArray[np.int64],
    config: LogConfig,
    bounds: TimestampBounds,
    *,
    append_time_set: bool = False,
) -> None:
    """Raise InvalidRecords if a record breaks a rule.

    Args:
        timestamps: int64[n], ms. Records without a timestamp are within all bounds.
        key_sizes: int64[n], negative for null.
        config: Configuration of the topic.
        bounds: Bounds of timestamps.
        append_time_set: True if the producer has set the timestamp type LogAppendTime.
    """
    rules = np.zeros(len(timestamps), np.int64)
    is_outside = (timestamps < bounds.smallest) | (timestamps > bounds.largest)
    rules[is_outside & (timestamps != NO_TIMESTAMP)] = RecordRule.TIMESTAMP
    if append_time_set:
        rules[:] = RecordRule.APPEND_TIME_SET
    if needs_keys(config):
        rules[key_sizes < 0] = RecordRule.NO_KEY
    broken = np.flatnonzero(rules)
    if not len(broken):
        return
    first = [
        InvalidRecord(index, _reason(RecordRule(int(rules[index])), int(timestamps[index]), bounds))
        for index in broken[:MAX_RECORD_ERRORS].tolist()
    ]
    is_about_time = bool((rules[broken] != RecordRule.NO_KEY).any())
    code = ErrorCode.invalid_timestamp if is_about_time else ErrorCode.invalid_record
    raise InvalidRecords(code, first, len(broken))


def _reason(rule: RecordRule, timestamp: int, bounds: TimestampBounds) -> str:
    match rule:
        case RecordRule.NO_KEY:
            return "a compacted topic takes no record without a key"
        case RecordRule.APPEND_TIME_SET:
            return "a producer does not set the timestamp type to LogAppendTime"
        case RecordRule.TIMESTAMP:
            return f"timestamp {timestamp} is out of range, it should be within {bounds.smallest}, {bounds.largest}"
