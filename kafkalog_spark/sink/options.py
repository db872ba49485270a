"""The options of a write, from text to values: `parse_write_options`."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import BATCH_OVERHEAD, MAX_INT32, Codec, TimestampType
from kafkalog_spark.format.names import is_internal, valid_topic_name
from kafkalog_spark.log.write.compress import compression_level
from kafkalog_spark.options import (
    GivenOptions,
    OptionSpec,
    byte_size,
    choice,
    local_path,
    markdown_table,
    plain_text,
    positive_int,
    unknown_option,
)
from kafkalog_spark.sink.columns import encoded_columns, is_of_format
from kafkalog_spark.spark import librdkafka
from kafkalog_spark.store.interface import normalised
from kafkalog_spark.store.object_client import OBJECT_SCHEMES
from kafkalog_spark.store.storage_options import StorageOptions, is_storage_option
from kafkalog_spark.typed.decoder import ResolvedFormat, written_format_name

# Every option of a write, declared once: its name, default, meaning and the function that reads its text.
#
# The table of docs/sink.md is made from these declarations. Those of a topic or a
# producer have Kafka's names; `topic` and `kafka.*` are those of Spark's Kafka sink.

TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


def topic_fault(topic: str) -> str | None:
    """Why nothing can be written to a topic of that name; None when it can."""
    if not valid_topic_name(topic):
        return f"'{topic}' is no name of a topic: 1 to 249 of a-z A-Z 0-9 . _ - are one, '.' and '..' are not"
    if is_internal(topic):
        return f"'{topic}' is internal to Kafka: only brokers write to it"
    return None


def _topic(name: str, text: str) -> str:
    if fault := topic_fault(text):
        raise OptionError(f"option '{name}': {fault}")
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


_option = partial(OptionSpec, group="sink")

WRITE_OPTIONS = (
    _option(
        "path",
        plain_text,
        None,
        "What `.save(...)` or `.start(...)` is given: one log directory. Local, `file:`, or in a bucket (`s3://` ...).",
    ),
    _option("topic", _topic, None, "The topic of all rows; takes precedence over the column `topic`."),
    _option(
        "compression.type",
        choice("none", "gzip", "snappy", "lz4", "zstd"),
        "none",
        "Codec of the record batches.",
    ),
    _option("compression.level", _level, None, "Level of gzip (1-9), lz4 (1-17) or zstd (-131072-22)."),
    _option("batch.size", _size, "64k", "Bytes of a record batch before compression."),
    _option("segment.bytes", _size, "1g", "Bytes of a segment."),
    _option(
        "max.message.bytes",
        _size,
        "1048588",
        "Bytes of the largest record batch as it lies in the log; a larger record is an error.",
    ),
    _option(
        "message.timestamp.type",
        choice(*TIMESTAMP_TYPES),
        "CreateTime",
        "`LogAppendTime`: all records get the time of the write, whatever the column `timestamp` says.",
    ),
    _option(
        "value.format",
        written_format_name,
        None,
        "How the column `value`, or without one all columns that are none of Kafka's, becomes the value: `avro`, "
        "`protobuf`, `confluent-avro`, `confluent-protobuf`, `confluent-json`, `string` (docs/typed.md). Options of "
        "the format: `value.*`.",
    ),
    _option("key.format", written_format_name, None, "The same of the column `key`."),
    _option("numPartitions", positive_int, "1", "Partitions of topics that are not there yet."),
    _option(
        "kafka.bootstrap.servers",
        plain_text,
        None,
        "Send to this broker, at least once, instead of writing files, so without `path`. Every other `kafka.*` option "
        "is then given to the producer (librdkafka).",
    ),
    _option("checkpointLocation", plain_text, None, "Streams: Spark's own."),
    _option("queryName", plain_text, None, "Streams: Spark's own."),
)

FILES_ONLY = ("segment.bytes", "max.message.bytes", "message.timestamp.type", "numPartitions")
"""Without effect on the road through a broker: settings of the broker's topics."""

REFUSED = {
    f"kafka.{side}.serializer": (
        f"Kafka option '{side}.serializer' is not supported as {side}s are serialized with ByteArraySerializer."
    )
    for side in ("key", "value")
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
"""Names from other sinks, from Kafka's tools and its configuration, and the option here."""


def options_table() -> str:
    """All options as a Markdown table: name, default, meaning. For the documentation."""
    without_effect = {f"kafka.{name}": why for name, why in librdkafka.PRODUCER_WITHOUT_EFFECT.items()}
    return markdown_table(WRITE_OPTIONS, {}, IGNORED | without_effect, REFUSED)


_log = logging.getLogger(__name__)

_PRODUCER_PREFIX = "kafka."
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
NO_OPTIONS = (
    "if this is a table: Spark does not hand a table's options to a source in Python, so use INSERT INTO table WITH "
    "('path' = '...', 'topic' = '...')"
)


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write, parsed. Plain values, picklable.

    path: local directory, or URL of one in a bucket, normalised; None on the road through a broker. storage: how
    buckets are reached. batch_size, segment_bytes, max_message_bytes: bytes. producer: settings of the producer by
    librdkafka's names, with bootstrap.servers; empty when files are written. `ignored`: names, as
    given, of options without effect.
    """

    path: str | None
    storage: StorageOptions
    topic: str | None
    codec: Codec
    level: int | None
    batch_size: int
    segment_bytes: int
    max_message_bytes: int
    timestamp_type: TimestampType
    num_partitions: int
    checkpoint_location: str | None
    producer: Mapping[str, str]
    encoded: tuple[ResolvedFormat, ...]
    ignored: tuple[str, ...]

    @property
    def append_time(self) -> bool:
        return self.timestamp_type is TimestampType.LOG_APPEND_TIME


def refuse_overwrite(overwrite: bool) -> None:
    """Raises OptionError. Of a stream Spark asks for it in output mode `complete`, which appends."""
    if overwrite:
        raise OptionError(
            "Save mode overwrite not allowed for Kafka",  # the connector's sentence
            hint='write with .mode("append"): a log is only ever appended to, and Spark takes no other mode here',
        )


def parse_write_options(options: Mapping[str, str], of_reads: Collection[str] = ()) -> WriteOptions:
    """Options as Spark hands them over; names in any case, values trimmed. `of_reads`: names, in small letters, of
    options that only a read has.

    Raises OptionError for a value that cannot be used, for values that exclude each other, for the two that the
    connector refuses, for one of a read, and for an unknown name, with the nearest one. Options without effect are
    logged, in one line, and kept in `ignored`.
    """
    given = GivenOptions(options)
    for name, why in REFUSED.items():
        if given.has(name):
            raise OptionError(why)
    values = {option.name: given.value(option) for option in WRITE_OPTIONS}
    through_broker = given.has("kafka.bootstrap.servers")
    encoded = encoded_columns(given)
    ignored = _ignored(given, of_reads, through_broker=through_broker)
    producer, not_translated = _producer(given, values) if through_broker else ({}, ())
    ignored += not_translated
    codec = Codec[values["compression.type"].upper()]
    try:
        level = compression_level(codec, values["compression.level"])
    except ValueError as error:
        raise OptionError(f"option 'compression.level': {error}") from None
    for name in ("max.message.bytes", "segment.bytes"):
        if values["batch.size"] > values[name]:
            raise OptionError(
                f"option 'batch.size' is {values['batch.size']}, larger than '{name}' ({values[name]})",
                hint="a record batch has to fit both",
            )
    result = WriteOptions(
        path=None if through_broker else _path(values["path"], bool(given.names)),
        storage=StorageOptions.of(given.named(is_storage_option)),
        topic=values["topic"],
        codec=codec,
        level=level,
        batch_size=values["batch.size"],
        segment_bytes=values["segment.bytes"],
        max_message_bytes=values["max.message.bytes"],
        timestamp_type=TIMESTAMP_TYPES[values["message.timestamp.type"]],
        num_partitions=values["numPartitions"],
        checkpoint_location=values["checkpointLocation"],
        producer=producer,
        encoded=encoded,
        ignored=ignored,
    )
    if ignored:
        _log.warning("options without effect on a write of kafkalog: %s", ", ".join(ignored))
    return result


def _path(text: str | None, any_given: bool) -> str:
    if not text:
        hint = 'name it in .save("/data/kafka-logs")'
        raise OptionError("no log directory is given", hint=hint if any_given else f"{hint}; {NO_OPTIONS}")
    if text.startswith("[") or "," in text:
        raise OptionError(
            f"option 'path': one log directory is written to, got '{text}'", hint="write once for each of log.dirs"
        )
    if (scheme := _SCHEME.match(text)) and scheme[1].lower() in OBJECT_SCHEMES:
        return normalised(text)
    why = "a local directory is written to, or a bucket (s3://, gs://, abfss://)"
    return os.path.expanduser(local_path("path", text, why))


def _ignored(given: GivenOptions, of_reads: Collection[str], *, through_broker: bool) -> tuple[str, ...]:
    """Names, as given, of options without effect. Raises OptionError for those that a write does not have."""
    specs = [option.name for option in WRITE_OPTIONS]
    used = {name.lower() for name in specs}
    files_only = {name.lower() for name in FILES_ONLY} if through_broker else set()
    result = []
    for key, name in given.names.items():
        if (key in used and key not in files_only) or is_storage_option(key) or is_of_format(key):
            continue
        of_producer = key.startswith(_PRODUCER_PREFIX)
        plain = key.removeprefix(_PRODUCER_PREFIX)
        if not of_producer and (key in files_only or key == "includeheaders"):
            result.append(name)
        elif not of_producer and given.is_table_property(key):
            continue
        elif key in of_reads:
            raise OptionError(
                f"option '{name}' is of a read, and this is a write",
                hint="a view over a log directory is for reading it; to write in SQL: INSERT INTO table WITH ('path' = "
                "'...', 'topic' = '...'), where table is made by CREATE TABLE ... USING kafkalog",
            )
        elif not of_producer:
            raise unknown_option(name, specs, OTHER_NAMES)
        elif not through_broker:
            if plain in used:
                raise OptionError(
                    f"option '{name}' is of a Kafka producer, and without kafka.bootstrap.servers there is none",
                    hint=f"did you mean '{plain}'?",
                )
            result.append(name)
    return tuple(result)


def _producer(given: GivenOptions, values: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The producer's settings (`kafka.*` without the prefix, and the options here that mean the same), and the names of
    those without effect on it."""
    if given.has("path"):
        raise OptionError(
            "options 'path' and 'kafka.bootstrap.servers' are both given: rows go to one of the two",
            hint="leave out 'path' to send them to the broker, or 'kafka.bootstrap.servers' to write to the directory",
        )
    of_producer = {
        key.removeprefix(_PRODUCER_PREFIX): text
        for key, text in given.texts.items()
        if key.startswith(_PRODUCER_PREFIX)
    }
    if not of_producer["bootstrap.servers"]:
        raise OptionError("option 'kafka.bootstrap.servers' is empty", hint="it is host:port, several by comma")
    settings, without_effect = librdkafka.producer_settings(of_producer)
    for name in ("compression.type", "compression.level", "batch.size"):
        if given.has(name):
            settings.setdefault(name, str(values[name]))
    return settings, tuple(given.names[_PRODUCER_PREFIX + name] for name in without_effect)
