"""Every option of a write, declared once: its name, default, meaning and the function that reads its text.

options.py parses from these declarations, and the table of docs/sink.md is made from them. Those of a topic or a
producer have Kafka's names; `topic` and `kafka.*` are those of Spark's Kafka sink.
"""

from __future__ import annotations

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.format.layout import BATCH_OVERHEAD, MAX_INT32, TimestampType
from kafkalog_spark.option_text import Option, byte_size, choice, positive_int
from kafkalog_spark.sink.producer_settings import WITHOUT_EFFECT
from kafkalog_spark.typed.decoder import written_format_name

TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


def _text(name: str, text: str) -> str:
    return text


def _level(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"option '{name}' must be a whole number, got '{text}'") from None


def _size(name: str, text: str) -> int:
    size = byte_size(name, text)
    if not BATCH_OVERHEAD < size <= MAX_INT32:
        raise OptionError(f"option '{name}' must be between {BATCH_OVERHEAD + 1} and {MAX_INT32} bytes, got '{text}'")
    return size


WRITE_OPTIONS = (
    Option(
        "path",
        _text,
        None,
        "What `.save(...)` or `.start(...)` is given: one log directory. Local, `file:`, or in a bucket (`s3://` ...).",
    ),
    Option("topic", _text, None, "The topic of all rows; takes precedence over the column `topic`."),
    Option("compression.type", choice("none", "gzip", "snappy", "lz4", "zstd"), "none", "Codec of the record batches."),
    Option("compression.level", _level, None, "Level of gzip (1-9), lz4 (1-17) or zstd (-131072-22)."),
    Option("batch.size", _size, "64k", "Bytes of a record batch before compression."),
    Option("segment.bytes", _size, "1g", "Bytes of a segment."),
    Option(
        "max.message.bytes",
        _size,
        "1048588",
        "Bytes of the largest record batch as it lies in the log; a larger record is an error.",
    ),
    Option(
        "message.timestamp.type",
        choice(*TIMESTAMP_TYPES),
        "CreateTime",
        "`LogAppendTime`: all records get the time of the write, whatever the column `timestamp` says.",
    ),
    Option(
        "value.format",
        written_format_name,
        None,
        "How the column `value`, or without one all columns that are none of Kafka's, becomes the value: `avro`, "
        "`protobuf`, `confluent-avro`, `confluent-protobuf`, `confluent-json`, `string` (docs/typed.md). Options of "
        "the format: `value.*`.",
    ),
    Option("key.format", written_format_name, None, "The same of the column `key`."),
    Option("numPartitions", positive_int, "1", "Partitions of topics that are not there yet."),
    Option(
        "kafka.bootstrap.servers",
        _text,
        None,
        "Send to this broker, at least once, instead of writing files, so without `path`. Every other `kafka.*` option "
        "is then given to the producer (librdkafka).",
    ),
    Option("checkpointLocation", _text, None, "Streams: Spark's own."),
    Option("queryName", _text, None, "Streams: Spark's own."),
)

FILES_ONLY = ("segment.bytes", "max.message.bytes", "message.timestamp.type", "numPartitions")
"""Without effect on the road through a broker: settings of the broker's topics."""

REFUSED = {
    "kafka.key.serializer": (
        "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer."
    ),
    "kafka.value.serializer": (
        "Kafka option 'value.serializer' is not supported as values are serialized with ByteArraySerializer."
    ),
}
"""Refused with the connector's words."""

IGNORED = {
    "includeHeaders": "headers are written where the column `headers` is there",
    "kafka.*": "without `kafka.bootstrap.servers`: settings of a producer, and there is none",
}
"""Accepted and ignored, with the reason."""

OTHER_NAMES = {
    "topics": "topic",
    "compression": "compression.type",
    "compressiontype": "compression.type",
    "compressioncodec": "compression.type",
    "codec": "compression.type",
    "num.partitions": "numPartitions",
    "partitions": "numPartitions",
    "directory": "path",
    "log.dirs": "path",
    "maxrequestsize": "max.message.bytes",
    "bootstrap.servers": "kafka.bootstrap.servers",
}
"""What users of other sinks, of Kafka's tools or of its configuration write, and the option here."""


def options_table() -> str:
    """All options as a Markdown table: name, default, meaning. For the documentation."""
    rows = [
        (f"`{option.name}`", "" if option.default is None else f"`{option.default}`", option.meaning)
        for option in WRITE_OPTIONS
    ]
    rows += [(f"`{name}`", "", f"Accepted and ignored: {why}.") for name, why in IGNORED.items()]
    rows += [(f"`kafka.{name}`", "", f"Accepted and ignored: {why}.") for name, why in WITHOUT_EFFECT.items()]
    rows += [(f"`{name}`", "", "Refused, as in the connector.") for name in REFUSED]
    lines = ["| option | default | meaning |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {default} | {meaning} |" for name, default, meaning in rows)]) + "\n"
