"""Every option of a read, declared once: its name, default, meaning and the function that reads its text.

options.py parses from these declarations, and the table of docs/options.md is made from them. Names, defaults and
rules are those of Spark's Kafka connector (KafkaSourceProvider), down to `Ours`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.read.discovery import REPLICAS
from kafkalog_spark.log.tables.table import RECORDS, TABLES
from kafkalog_spark.log.tiered.tier_options import OPTION as KEY_OPTION
from kafkalog_spark.log.tiered.tier_options import TIER_OPTIONS
from kafkalog_spark.options import (
    OptionSpec,
    boolean,
    byte_size,
    choice,
    duration_ms,
    local_path,
    markdown_table,
    plain_text,
    positive_int,
    positive_long,
)
from kafkalog_spark.source import offsets
from kafkalog_spark.store.interface import is_local, normalised


def columns(name: str, text: str) -> tuple[str, ...]:
    """Column names, by comma, as they are given: which there are depends on the table."""
    return tuple(part.strip() for part in text.split(","))


def known_columns(given: tuple[str, ...], known: Iterable[str]) -> tuple[str, ...]:
    """Those of option `columns`, in any case, in the order given, spelled as in the table's schema."""
    by_key = {column.lower(): column for column in known}
    unknown = [part for part in given if part.lower() not in by_key]
    if unknown:
        raise OptionError(
            f"option 'columns': no column '{unknown[0]}'", hint=f"the columns are {', '.join(by_key.values())}"
        )
    chosen = tuple(by_key[part.lower()] for part in given)
    if len(set(chosen)) != len(chosen):
        raise OptionError(f"option 'columns' names a column twice: '{','.join(given)}'")
    return chosen


def search_text(name: str, text: str) -> bytes:
    """Searched text as UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def search_hex(name: str, text: str) -> bytes:
    """Bytes in hexadecimal digits, two a byte; spaces may be between bytes."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise OptionError(
            f"option '{name}' takes two hexadecimal digits a byte, such as 00ff2a, got '{text}'"
        ) from None


def search_header(name: str, text: str) -> tuple[bytes, bytes | None]:
    """(Name, value); the first = ends the name. Value None: any."""
    header, equals, value = text.partition("=")
    return search_text(name, header), search_text(name, value) if equals else None


def _location(name: str, text: str) -> str:
    """A local path as it is given, `file:` taken off; or the URL of a directory in an object store, normalised."""
    if is_local(text) or text[:5].lower() == "file:":
        return local_path(name, text, "it names no directory of this machine, and no bucket")
    return normalised(text)


def paths(name: str, text: str) -> tuple[str, ...]:
    """Directories, local or as URLs: one, several by comma, or a JSON list (what Spark makes of load(["a", "b"]))."""
    if text.startswith("["):
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            given = None
        if type(given) is not list or not all(type(part) is str for part in given):
            raise OptionError(
                f"option '{name}' must be a path, several by comma, or a JSON list of them, got '{text}'",
                hint='a path that begins with [ is written as ["[path"]',
            )
    else:
        given = [part.strip() for part in text.split(",")]
    result = tuple(dict.fromkeys(_location(name, part) for part in given if part))
    if not result:
        raise OptionError(f"option '{name}' names no path: '{text}'")
    return result


SUBSCRIPTION_OPTIONS = (
    OptionSpec("subscribe", offsets.subscribed_topics, None, "Topics, by comma."),
    OptionSpec(
        "subscribePattern",
        offsets.topic_pattern,
        None,
        "Regular expression; a topic is read if it is found in its name.",
    ),
    OptionSpec("assign", offsets.assigned, None, 'Partitions, as JSON: `{"topicA":[0,1]}`.'),
    OptionSpec("allTopics", offsets.all_topics, "false", "`true`: every topic that is not internal to Kafka. Ours."),
)
"""Exactly one of them, unless the path is one partition's directory, or `table` another table than `records`."""

_OFFSETS = '`earliest`, `latest`, or JSON: `{"topicA":{"0":23,"1":-1},"topicB":"earliest"}` (-1 latest, -2 earliest)'
_TIMESTAMPS = 'First offsets with at least these record timestamps (ms), as JSON: `{"topicA":{"0":1700000000000}}`'

# Of each three, the first one given decides; the others are not even looked at.
START_OPTIONS = (
    OptionSpec(
        "startingTimestamp",
        offsets.bound_by_global_timestamp,
        None,
        "Start at the first offset with at least this record timestamp (ms), in every partition. Later records may be "
        "older: this is not a row filter. Takes precedence over the two below.",
    ),
    OptionSpec(
        "startingOffsetsByTimestamp",
        offsets.bound_by_timestamp,
        None,
        f"{_TIMESTAMPS}. Takes precedence over `startingOffsets`.",
    ),
    OptionSpec(
        "startingOffsets",
        offsets.bound_by_offset,
        "earliest",
        f"{_OFFSETS}. Every partition read must be named. A batch cannot start at `latest`; a stream does by default.",
    ),
)
END_OPTIONS = (
    OptionSpec(
        "endingTimestamp",
        offsets.bound_by_global_timestamp,
        None,
        "End before the first offset with at least this record timestamp (ms); without one, at the end. Batch only. "
        "Takes precedence over the two below.",
    ),
    OptionSpec(
        "endingOffsetsByTimestamp",
        offsets.bound_by_timestamp,
        None,
        f"{_TIMESTAMPS}. Batch only. Takes precedence over `endingOffsets`.",
    ),
    OptionSpec(
        "endingOffsets", offsets.bound_by_offset, "latest", f"{_OFFSETS}; itself not read. Not `earliest`. Batch only."
    ),
)

PLAIN_OPTIONS = (
    OptionSpec(
        "startingOffsetsByTimestampStrategy",
        choice("error", "latest"),
        "error",
        "What a start timestamp after every record of a partition does: fail, or start at its end.",
    ),
    OptionSpec("includeHeaders", boolean, "false", "Adds the column `headers`."),
    OptionSpec("minPartitions", positive_int, None, "Cut large ranges until there are about so many tasks."),
    OptionSpec("maxRecordsPerPartition", positive_long, None, "Largest number of offsets in a task."),
    OptionSpec(
        "failOnDataLoss",
        boolean,
        "true",
        "Fail when offsets that were asked for are gone. `false`: warn and read what is left.",
    ),
    OptionSpec(
        "kafka.isolation.level", choice("read_uncommitted", "read_committed"), None, "The same as `isolationLevel`."
    ),
    # Ours
    OptionSpec(
        "path",
        paths,
        None,
        "What `.load(...)` is given: a log directory, several (`log.dirs`) by comma or as a JSON list, or one "
        "partition's directory. Local, or `file:`; `~` and wildcards (`*`, `?`, `[a-c]`) are understood. Or the URL of "
        "one in an object store: `s3://`, `gs://`, `abfss://`, `hdfs://` (docs/object_storage.md).",
    ),
    OptionSpec("paths", paths, None, 'What Spark makes of `.load(["/a", "/b"])`.'),
    OptionSpec(
        "isolationLevel",
        choice("read_uncommitted", "read_committed"),
        "read_uncommitted",
        "`read_committed`: no records of aborted transactions, nothing past the last stable offset.",
    ),
    OptionSpec(
        "columns",
        columns,
        None,
        "Columns to read, by comma, in this order; the others are not decoded. Default: all but `headers`.",
    ),
    OptionSpec(
        "table",
        choice(RECORDS, *TABLES),
        RECORDS,
        "What is read: the records, or one of the tables of docs/tables.md, such as `batches`, `segments`, "
        "`consumer_offsets`, which need no subscription and then cover all topics. Batch only.",
        "tables",
    ),
    OptionSpec(
        "history",
        boolean,
        "false",
        "Of the tables `consumer_offsets`, `groups`, `transactional_ids`: every record that is still there, instead of "
        "the latest of each.",
        "tables",
    ),
    OptionSpec(
        "maxPartitionBytes",
        byte_size,
        "128m",
        "Segments larger than this are cut into several tasks, at batch boundaries.",
    ),
    OptionSpec(
        "maxScanBytes",
        byte_size,
        None,
        "Refuse to read a batch for which more bytes of .log files would be looked at, and say how many. Ours.",
    ),
    OptionSpec(
        "tail",
        positive_long,
        None,
        "Only the last so many records of each partition, of those in the range that the options above name, read from "
        "its end. Conditions (`where.*`, filters) narrow what these are. Batch only. Ours.",
    ),
    OptionSpec(
        "maxDecompressedBatchBytes",
        byte_size,
        "64m",
        "A compressed batch that decompresses to more is treated as corrupt.",
    ),
    OptionSpec(
        "replicas",
        choice(*REPLICAS),
        "longest",
        "A partition that lies in several of the log directories: `longest` reads the copy of the highest leader "
        "epoch, of these the one that ends last, and logs which; `error` fails; `merge` takes what is damaged in that "
        "copy, or missing at its ends, from the others, by leader epochs. Batch only, of directories that no broker "
        "writes to.",
    ),
    *TIER_OPTIONS,
    OptionSpec(
        "pushdown",
        choice("auto", "true", "false"),
        "auto",
        "Whether the read applies the filters that Spark pushes (in a session with "
        "`spark.sql.python.filterPushdown.enabled`). `auto`: where no wrong row is possible, Spark 5 and newer; on "
        "Spark 4 Spark filters, and one log line says why (SPARK-58551). `true` is refused on Spark 4. Ours.",
    ),
    OptionSpec(
        "mode",
        choice("FAILFAST", "DROPMALFORMED", "PERMISSIVE"),
        "FAILFAST",
        "What a damaged batch does: fail, naming file and position; be skipped, with a warning that does; or, with "
        "`PERMISSIVE`, be a row that does, in the columns `_error`, `_file`, `_position`, `_length`, `_first_offset`, "
        "`_next_offset`, which are there in this mode alone (docs/reading.md; batch only). Rows of it that were handed "
        "over before the damage was met stay: a batch with a valid CRC can be malformed inside.",
    ),
)

GROUP_OPTIONS = (
    OptionSpec(
        "commitGroup",
        plain_text,
        None,
        "Streams: the consumer group that the query's position is committed to, at the broker that "
        "`kafka.bootstrap.servers` names, whenever a batch is done (docs/streaming.md). Ours.",
        "stream",
    ),
    OptionSpec(
        "failOnCommitError",
        boolean,
        "false",
        "Streams with `commitGroup`: fail when the offsets cannot be committed. `false`: warn, go on, and try again. "
        "Ours.",
        "stream",
    ),
)

SEARCH_OPTIONS = (
    OptionSpec("where.key", search_text, None, "Only records with this key, as UTF-8. Ours, as those that follow."),
    OptionSpec("where.key.hex", search_hex, None, "Only records with this key, in hexadecimal digits."),
    OptionSpec("where.key.prefix", search_text, None, "Only records whose key begins with this, as UTF-8."),
    OptionSpec("where.value.contains", search_text, None, "Only records whose value holds this, as UTF-8."),
    OptionSpec(
        "where.header",
        search_header,
        None,
        "Only records with a header of this name, `name`, or of this name and value, `name=value`.",
    ),
)
"""All that are given must hold; a null matches none of them. Records are looked at before anything is copied."""

TYPED_OPTIONS = (
    OptionSpec(
        "value.format",
        plain_text,
        None,
        "What values are decoded as: `json`, `string`, `avro`, `protobuf`, `confluent-avro` …; the columns are those "
        "of `.schema(...)` (docs/typed.md). Ours, as those that follow.",
        "format",
    ),
    OptionSpec("key.format", plain_text, None, "The same of keys.", "format"),
    OptionSpec(
        "value.mode",
        plain_text,
        None,
        "What a bad value does, where that is not what `mode` says: `PERMISSIVE` (the default), `DROPMALFORMED`, "
        "`FAILFAST`.",
        "format",
    ),
    OptionSpec("key.mode", plain_text, None, "The same of keys.", "format"),
)
"""Parsed by options.typed_options, with the options of the formats."""

RATE_OPTIONS = (
    OptionSpec("maxOffsetsPerTrigger", positive_long, None, "Streams: most offsets in a batch, in all.", "stream"),
    OptionSpec("minOffsetsPerTrigger", positive_long, None, "Streams: fewest offsets that start a batch.", "stream"),
    OptionSpec("maxTriggerDelay", duration_ms, "15m", "Streams: longest wait for `minOffsetsPerTrigger`.", "stream"),
    OptionSpec(
        "maxBytesPerTrigger",
        byte_size,
        None,
        "Streams: most bytes of segments in a batch, in all, as they lie on disk; whole record batches, and at least "
        "one of each partition that has news. Ours.",
        "stream",
    ),
)
"""A batch ignores them."""

READ_OPTIONS = (
    *SUBSCRIPTION_OPTIONS,
    *START_OPTIONS,
    *END_OPTIONS,
    *PLAIN_OPTIONS,
    *SEARCH_OPTIONS,
    *TYPED_OPTIONS,
    *RATE_OPTIONS,
    *GROUP_OPTIONS,
)

OF_MANY_NAMES = {
    f"{KEY_OPTION}ID": "Private RSA key that opens segments which Aiven's plugin encrypted with the key pair ID: a "
    "PEM, or a path to one that every worker can read. It is shown nowhere.",
    "value.*": "Options of the format of values, `key.*` of that of keys; without a prefix of both (docs/typed.md).",
}
"""Options of which there are as many as a user needs."""

CONNECTOR_ONLY = {
    "kafka.bootstrap.servers": "there is no broker; with `commitGroup`, the one that it commits to",
    "kafka.group.id": "there is no consumer group; see `commitGroup`",
    "groupIdPrefix": "there is no consumer group",
    "kafkaConsumer.pollTimeoutMs": "nothing is polled",
    "fetchOffset.numRetries": "nothing is fetched",
    "fetchOffset.retryIntervalMs": "nothing is fetched",
    "kafka.*": "every other setting of a Kafka consumer; with `commitGroup`, those of the connection count "
    "(`kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*`, `kafka.client.id`, `kafka.socket.*`)",
}
"""Accepted and ignored, with the reason."""

ONLY_OF_READS = frozenset(
    {option.name.lower() for option in READ_OPTIONS if option.name != "path"}
    | {name.lower() for name in CONNECTOR_ONLY if not name.startswith("kafka.")}
)
"""Names that have no meaning in a write, in small letters."""

OF_SPARK = {
    "maxFilesPerTrigger": "an option of Spark's file sources; see `maxOffsetsPerTrigger` and `maxBytesPerTrigger`",
}
"""The same, of Spark's other sources."""

OTHER_NAMES = {
    "topic": "subscribe",
    "topics": "subscribe",
    "topicpattern": "subscribePattern",
    "pattern": "subscribePattern",
    "partition": "assign",
    "partitions": "assign",
    "topicpartitions": "assign",
    "offset": "startingOffsets",
    "offsets": "startingOffsets",
    "auto.offset.reset": "startingOffsets",
    "isolation.level": "isolationLevel",
    "readcommitted": "isolationLevel",
    "headers": "includeHeaders",
    "where.value": "where.value.contains",
    "where.headers": "where.header",
    "groupid": "commitGroup",
    "group.id": "commitGroup",
    "consumergroup": "commitGroup",
    "select": "columns",
    "log.dirs": "path",
    "logdirs": "path",
    "directory": "path",
}
"""Names from other connectors, from Kafka's tools and its configuration, and the option here."""

REFUSED = {
    "kafka.auto.offset.reset": (
        "Kafka option 'auto.offset.reset' is not supported. Instead set the source option 'startingoffsets' to "
        "'earliest' or 'latest' to specify where to start. Structured Streaming manages which offsets are consumed "
        "internally, rather than relying on the kafkaConsumer to do it. This will ensure that no data is missed when "
        "new topics/partitions are dynamically subscribed. Note that 'startingoffsets' only applies when a new "
        "Streaming query is started, and that resuming will always pick up from where the query left off. See the "
        "docs for more details."
    ),
    "kafka.key.deserializer": (
        "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays with "
        "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the keys."
    ),
    "kafka.value.deserializer": (
        "Kafka option 'value.deserializer' is not supported as values are deserialized as byte arrays with "
        "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the values."
    ),
    "kafka.enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "kafka.interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
}
"""Refused with the connector's words: a job that sets them expects something that neither source does."""


def options_table() -> str:
    """All options as a Markdown table: name, default, meaning. For docs/options.md."""
    return markdown_table(READ_OPTIONS, OF_MANY_NAMES, {**CONNECTOR_ONLY, **OF_SPARK}, REFUSED)
