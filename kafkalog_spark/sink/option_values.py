"""Parsers of the options of a write."""

from __future__ import annotations

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import BATCH_OVERHEAD, MAX_INT32, Codec, TimestampType
from kafkalog_spark.options import byte_size, choice
from kafkalog_spark.sink.topic_names import topic_fault

TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
"""Timestamp types by the values of Kafka's message.timestamp.type."""
_CODECS = {codec.label: codec for codec in Codec}


def codec(name: str, text: str) -> Codec:
    """Parse the name of a codec, in any case."""
    return _CODECS[choice(*_CODECS)(name, text)]


def timestamp_type(name: str, text: str) -> TimestampType:
    """Parse a value of message.timestamp.type, in any case."""
    return TIMESTAMP_TYPES[choice(*TIMESTAMP_TYPES)(name, text)]


def topic_name(name: str, text: str) -> str:
    """Parse the name of a topic that can be written to."""
    if fault := topic_fault(text):
        raise OptionError(f"option '{name}': {fault}")
    return text


def level(name: str, text: str) -> int:
    """Parse a compression level. Whether the codec has it is checked later."""
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"option '{name}' must be a whole number, got '{text}'") from None


def int32_byte_size(name: str, text: str) -> int:
    """Parse a size in bytes that fits an int32 and is larger than an empty record batch."""
    size = byte_size(name, text)
    if not BATCH_OVERHEAD < size <= MAX_INT32:
        raise OptionError(f"option '{name}' must be between {BATCH_OVERHEAD + 1} and {MAX_INT32} bytes, got '{text}'")
    return size
