"""The options of a write: their declarations, their parsed values (WriteOptions), and parse_write_options.

Options of a topic or a producer have Kafka's names; `topic` and `kafka.*` are those of Spark's Kafka sink. The table in
docs/sink.md is made from the declarations (python -m docs_site.option_tables).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.codecs import CODECS, compression_level
from kafkalog_spark.format.layout import BATCH_OVERHEAD, MAX_INT32, Codec, TimestampType
from kafkalog_spark.format.names import MAX_PARTITIONS, is_internal, valid_topic_name
from kafkalog_spark.options import (
    GivenOptions,
    OptionSpec,
    byte_size,
    choice,
    described,
    local_path,
    option,
    plain_text,
    positive,
    specs_of,
    unknown_option,
)
from kafkalog_spark.sink.columns import encoded_columns
from kafkalog_spark.spark import librdkafka
from kafkalog_spark.store.paths import OBJECT_SCHEMES, normalised
from kafkalog_spark.store.storage_options import StorageOptions, is_storage_option
from kafkalog_spark.typed.formats import ResolvedFormat, written_format_name

TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


def topic_fault(topic: str) -> str | None:
    """Return why a topic of that name cannot be written to; None if it can."""
    if not valid_topic_name(topic):
        return f"'{topic}' is no name of a topic: 1 to 249 of a-z A-Z 0-9 . _ - are one, '.' and '..' are not"
    if is_internal(topic):
        return f"'{topic}' is internal to Kafka: only brokers write to it"
    return None


_CODECS = {codec.label: codec for codec in Codec}


def _codec(name: str, text: str) -> Codec:
    return _CODECS[choice(*_CODECS)(name, text)]


def _timestamp_type(name: str, text: str) -> TimestampType:
    return TIMESTAMP_TYPES[choice(*TIMESTAMP_TYPES)(name, text)]


def _topic(name: str, text: str) -> str:
    if fault := topic_fault(text):
        raise OptionError(f"option '{name}': {fault}")
    return text


def _level(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"option '{name}' must be a whole number, got '{text}'") from None


def _levels_text() -> str:
    """Return the levels of all codecs, such as "gzip (1-9), lz4 (1-17) or zstd (-131072-22)"."""
    *others, last = (
        f"{codec.label} ({facts.levels.lowest}-{facts.levels.highest})"
        for codec, facts in CODECS.items()
        if facts.levels is not None
    )
    return f"{', '.join(others)} or {last}"


def _size(name: str, text: str) -> int:
    size = byte_size(name, text)
    if not BATCH_OVERHEAD < size <= MAX_INT32:
        raise OptionError(f"option '{name}' must be between {BATCH_OVERHEAD + 1} and {MAX_INT32} bytes, got '{text}'")
    return size


FILES_ONLY = ("segment.bytes", "max.message.bytes", "message.timestamp.type", "numPartitions")
"""Options without effect with kafka.bootstrap.servers: the broker's topics have such settings."""

REFUSED = {
    f"kafka.{side}.serializer": (
        f"Kafka option '{side}.serializer' is not supported as {side}s are serialized with ByteArraySerializer."
    )
    for side in ("key", "value")
}
"""Options that are refused with the connector's messages."""

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
"""Names in other sinks, Kafka's tools and its configuration, with the option to suggest."""


_log = logging.getLogger(__name__)

_PRODUCER_PREFIX = "kafka."
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
NO_OPTIONS = (
    "if this is a table: Spark does not hand a table's options to a source in Python, so use INSERT INTO table WITH "
    "('path' = '...', 'topic' = '...')"
)


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Parsed options of a write. Picklable.

    Attributes:
        path: Local directory, or normalised URL of one in a bucket; None with kafka.bootstrap.servers.
        batch_size, segment_bytes, max_message_bytes: Bytes.
        producer: Settings by librdkafka's names, with bootstrap.servers; empty if files are written.
        ignored: Names, as given, of options without effect.
    """

    path: str | None = option(
        "path",
        plain_text,
        meaning="The argument of `.save(...)` or `.start(...)`: a log directory, local, `file:` or in a bucket "
        "(`s3://` ...).",
    )
    storage: StorageOptions
    topic: str | None = option(
        "topic", _topic, meaning="The topic of all rows; takes precedence over the column `topic`."
    )
    codec: Codec = option(
        "compression.type",
        _codec,
        Codec.NONE.label,
        f"Codec of the record batches: {', '.join(f'`{codec.label}`' for codec in Codec)}.",
    )
    level: int | None = option("compression.level", _level, meaning=f"Level of {_levels_text()}.")
    batch_size: int = option("batch.size", _size, "64k", "Bytes of a record batch before compression.")
    segment_bytes: int = option("segment.bytes", _size, "1g", "Bytes of a segment.")
    max_message_bytes: int = option(
        "max.message.bytes",
        _size,
        "1048588",
        "Bytes of the largest record batch as it is in the log; a larger record is an error.",
    )
    timestamp_type: TimestampType = option(
        "message.timestamp.type",
        _timestamp_type,
        "CreateTime",
        "`LogAppendTime`: all records get the time of the write, whatever the column `timestamp` says.",
    )
    num_partitions: int = option(
        "numPartitions",
        positive(MAX_PARTITIONS),
        "1",
        f"Partitions of topics that do not exist yet, at most {MAX_PARTITIONS:,}.",
    )
    checkpoint_location: str | None = option("checkpointLocation", plain_text, meaning="Streams: Spark's own.")
    producer: Mapping[str, str]
    encoded: tuple[ResolvedFormat, ...]
    ignored: tuple[str, ...]

    @property
    def append_time(self) -> bool:
        return self.timestamp_type is TimestampType.LOG_APPEND_TIME


WRITE_OPTIONS = (
    *specs_of(WriteOptions),
    OptionSpec(
        "value.format",
        written_format_name,
        meaning="The format in which the column `value`, or without one all columns that are not Kafka's, is encoded: "
        "`avro`, `protobuf`, `confluent-avro`, `confluent-protobuf`, `confluent-json`, `string` (docs/typed.md). "
        "Options of the format: `value.*`.",
    ),
    OptionSpec("key.format", written_format_name, meaning="The same, for the column `key`."),
    OptionSpec(
        "kafka.bootstrap.servers",
        plain_text,
        meaning="Send to this broker, at least once, instead of writing files, so without `path`. Every other "
        "`kafka.*` option is then given to the producer (librdkafka).",
    ),
    OptionSpec("queryName", plain_text, meaning="Streams: Spark's own."),
)

WriteOptions.__doc__ = f"{(WriteOptions.__doc__ or '').rstrip()}\n\n{described(WRITE_OPTIONS)}"

IGNORED = {
    "includeHeaders": "headers are written where the column `headers` is there.",
    "kafka.*": "settings of a producer, which exists only with `kafka.bootstrap.servers`.",
    **{f"kafka.{name}": why for name, why in librdkafka.PRODUCER_WITHOUT_EFFECT.items()},
}
"""Options that are accepted without effect, and why."""


def parse_write_options(options: Mapping[str, str], of_reads: Collection[str] = ()) -> WriteOptions:
    """Parse the options of a write. Options without effect are logged in one line.

    Args:
        options: As Spark passes them; names in any case, values with blanks around them.
        of_reads: Names, in lower case, of options that only reads have.

    Raises:
        OptionError: For invalid values, values that exclude each other, options that the connector refuses, options of
            reads, and unknown names, with the nearest known one.
    """
    given = GivenOptions(options, WRITE_OPTIONS)
    for name, why in REFUSED.items():
        if name in given:
            raise OptionError(why)
    for spec in WRITE_OPTIONS:
        _ = given[spec.name]
    values = given.fields(WriteOptions)
    through_broker = "kafka.bootstrap.servers" in given
    encoded = encoded_columns(given)
    ignored = _ignored(given, of_reads, through_broker=through_broker)
    producer, not_translated = _producer(given, values) if through_broker else ({}, ())
    ignored += not_translated
    try:
        values["level"] = compression_level(values["codec"], values["level"])
    except ValueError as error:
        raise OptionError(f"option 'compression.level': {error}") from None
    for name, largest in (("max.message.bytes", "max_message_bytes"), ("segment.bytes", "segment_bytes")):
        if values["batch_size"] > values[largest]:
            raise OptionError(
                f"option 'batch.size' is {values['batch_size']}, larger than '{name}' ({values[largest]})",
                hint="a record batch has to fit both",
            )
    values["path"] = None if through_broker else _path(values["path"], bool(given.names))
    storage = StorageOptions.of(given.named(is_storage_option))
    result = WriteOptions(**values, storage=storage, producer=producer, encoded=encoded, ignored=ignored)
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
    """Return the names, as given, of options without effect. Raises OptionError for unknown options."""
    specs = [spec.name for spec in WRITE_OPTIONS]
    used = {name.lower() for name in specs}
    files_only = {name.lower() for name in FILES_ONLY} if through_broker else set()
    result = []
    for key, name in given.names.items():
        if (key in used and key not in files_only) or is_storage_option(key) or key.startswith(("value.", "key.")):
            continue
        of_producer = key.startswith(_PRODUCER_PREFIX)
        plain = key.removeprefix(_PRODUCER_PREFIX)
        if not of_producer and (key in files_only or key == "includeheaders"):
            result.append(name)
        elif not of_producer and given.is_table_property(key):
            continue
        elif key in of_reads:
            raise OptionError(
                f"option '{name}' is a read option, and this is a write",
                hint="a view over a log directory is for reading it; to write in SQL: INSERT INTO table WITH ('path' = "
                "'...', 'topic' = '...'), where table is made by CREATE TABLE ... USING kafkalog",
            )
        elif not of_producer:
            raise unknown_option(name, specs, OTHER_NAMES)
        elif not through_broker:
            if plain in used:
                raise OptionError(
                    f"option '{name}' requires kafka.bootstrap.servers",
                    hint=f"did you mean '{plain}'?",
                )
            result.append(name)
    return tuple(result)


def _producer(given: GivenOptions, values: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the producer's settings, by `kafka.*` and our own options, and the names of options without effect."""
    if "path" in given:
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
    translated = librdkafka.producer_settings(of_producer)
    shared = {
        "compression.type": values["codec"].label,
        "compression.level": values["level"],
        "batch.size": values["batch_size"],
    }
    for name, value in shared.items():
        if name in given:
            translated.settings.setdefault(name, str(value))
    return translated.settings, tuple(given.names[_PRODUCER_PREFIX + name] for name in translated.without_effect)
