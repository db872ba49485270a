"""Rules of a topic's configuration for new records: sizes, timestamps, keys (Kafka: `LogValidator`).

`append_validation` applies them to v2 batches, `message_set_validation` to messages of format v0 and v1.
compression.type is applied in `recompression`.
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
"""Largest number of invalid records that a response lists. Kafka lists all, which can make a response very large."""
_LOG_APPEND_TIME = "LogAppendTime"
_new = tuple.__new__  # creates TimestampBounds without its constructor, which is slower, once per batch


class RecordRule(IntEnum):
    """Rule that a record breaks (Kafka: `LogValidator.validateRecord`)."""

    NO_KEY = 1
    APPEND_TIME_SET = 2
    TIMESTAMP = 3


class InvalidRecord(NamedTuple):
    """Record that breaks a rule: its index in the batch, and the reason (Kafka: `ProduceResponse.RecordError`)."""

    batch_index: int
    message: str


class InvalidRecords(BrokerError):
    """Records of a batch break a rule.

    Attributes:
        records: The first MAX_RECORD_ERRORS of them.
        total: Number of all such records.
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
    """Return whether the broker sets the timestamps of all records (message.timestamp.type)."""
    return config.message_timestamp_type == _LOG_APPEND_TIME


def timestamp_bounds(config: LogConfig, now_ms: int) -> TimestampBounds:
    """Return the bounds for producers' timestamps (message.timestamp.before.max.ms and .after.max.ms)."""
    if config.message_timestamp_type == _LOG_APPEND_TIME:
        return _UNBOUNDED
    smallest = now_ms - config.message_timestamp_before_max_ms
    largest = now_ms + config.message_timestamp_after_max_ms
    return _new(TimestampBounds, (max(smallest, layout.MIN_INT64), min(largest, layout.MAX_INT64)))


def are_timestamps_allowed(smallest: int, largest: int, config: LogConfig, now_ms: int) -> bool:
    """Return whether timestamps from `smallest` to `largest` are within the `timestamp_bounds`.

    If `smallest` is above `largest`, no record has a timestamp. This is called for each batch, so it makes no tuple.
    """
    return (
        smallest > largest
        or config.message_timestamp_type == _LOG_APPEND_TIME
        or (
            smallest >= now_ms - config.message_timestamp_before_max_ms
            and largest <= now_ms + config.message_timestamp_after_max_ms
        )
    )


def needs_keys(config: LogConfig) -> bool:
    """Return whether every record must have a key, because cleanup.policy contains compact."""
    return config.is_compacted


def check_size(size: int, config: LogConfig) -> None:
    """Raise BrokerError message_too_large if a batch or wrapper is larger than max.message.bytes."""
    if size > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.message_too_large,
            f"the batch has {size} bytes, max.message.bytes of the topic is {config.max_message_bytes}",
        )


def check_records(
    timestamps: npt.NDArray[np.int64],
    key_sizes: npt.NDArray[np.int64],
    config: LogConfig,
    bounds: TimestampBounds,
    *,
    has_log_append_time: bool = False,
) -> None:
    """Raise InvalidRecords if a record breaks a rule.

    Args:
        timestamps: int64[n], ms. Records without a timestamp are within all bounds.
        key_sizes: int64[n]; negative for null keys.
        has_log_append_time: True if the producer has set the timestamp type LogAppendTime.
    """
    rules = np.zeros(len(timestamps), np.int64)
    is_outside = (timestamps < bounds.smallest) | (timestamps > bounds.largest)
    rules[is_outside & (timestamps != NO_TIMESTAMP)] = RecordRule.TIMESTAMP
    if has_log_append_time:
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
            return "the topic is compacted, so the record must have a key"
        case RecordRule.APPEND_TIME_SET:
            return "the timestamp type is LogAppendTime, which only brokers may set"
        case RecordRule.TIMESTAMP:
            return f"timestamp {timestamp} is out of range, expected {bounds.smallest} to {bounds.largest}"
