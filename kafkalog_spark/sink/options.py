"""Options of a write: their declarations and their parsed values (WriteOptions).

Options of a topic or a producer have Kafka's names; `topic` and `kafka.*` are those of Spark's Kafka sink. The table in
docs/sink.md is made from the declarations (python -m docs_site.option_tables).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkalog_spark.format.codecs import CODECS
from kafkalog_spark.format.layout import Codec, TimestampType
from kafkalog_spark.format.names import MAX_PARTITIONS
from kafkalog_spark.options import (
    OptionSpec,
    help_text,
    option,
    plain_text,
    positive,
    specs_of,
)
from kafkalog_spark.sink import option_values
from kafkalog_spark.store.storage_options import StorageOptions
from kafkalog_spark.typed.formats import ResolvedFormat, written_format_name


def _levels_text() -> str:
    """Return the levels of all codecs, such as "gzip (1-9), lz4 (1-17) or zstd (-131072-22)"."""
    *others, last = (
        f"{codec.label} ({facts.levels.lowest}-{facts.levels.highest})"
        for codec, facts in CODECS.items()
        if facts.levels is not None
    )
    return f"{', '.join(others)} or {last}"


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Parsed options of a write. Picklable.

    Attributes:
        path: Local directory, or normalised URL of a directory in a bucket; None with kafka.bootstrap.servers.
        batch_size, segment_bytes, max_message_bytes: Bytes.
        producer: Settings by librdkafka's names, with bootstrap.servers; empty if files are written.
        formats: Formats in which values and keys are encoded.
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
        "topic", option_values.topic_name, meaning="The topic of all rows; takes precedence over the column `topic`."
    )
    codec: Codec = option(
        "compression.type",
        option_values.codec,
        Codec.NONE.label,
        f"Codec of the record batches: {', '.join(f'`{codec.label}`' for codec in Codec)}.",
    )
    level: int | None = option("compression.level", option_values.level, meaning=f"Level of {_levels_text()}.")
    batch_size: int = option(
        "batch.size", option_values.int32_byte_size, "64k", "Bytes of a record batch before compression."
    )
    segment_bytes: int = option("segment.bytes", option_values.int32_byte_size, "1g", "Bytes of a segment.")
    max_message_bytes: int = option(
        "max.message.bytes",
        option_values.int32_byte_size,
        "1048588",
        "Bytes of the largest record batch as it is in the log; a larger record is an error.",
    )
    timestamp_type: TimestampType = option(
        "message.timestamp.type",
        option_values.timestamp_type,
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
    formats: tuple[ResolvedFormat, ...]
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

WriteOptions.__doc__ = f"{(WriteOptions.__doc__ or '').rstrip()}\n\n{help_text(WRITE_OPTIONS)}"
