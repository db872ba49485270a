"""Every option of a read, declared once: its name, default and the function that reads its text; and ReadOptions, the
values that they become.

options.py parses from these declarations; docs/options.md says what each option means, and a test holds its names and
defaults against them. Names, defaults and rules are those of Spark's Kafka connector (KafkaSourceProvider), down to
`Ours`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import RecordPredicate
from kafkalog_spark.log.read.discovery import REPLICAS, Replicas
from kafkalog_spark.log.tables.table import RECORDS, TABLES
from kafkalog_spark.log.tables.table_query import TableQuery
from kafkalog_spark.log.tiered.tier_options import TIER_OPTIONS, TierOptions
from kafkalog_spark.options import (
    OptionSpec,
    boolean,
    byte_size,
    choice,
    duration_ms,
    local_path,
    option,
    plain_text,
    positive_int,
    positive_long,
    specs_of,
)
from kafkalog_spark.source import offsets
from kafkalog_spark.store.interface import is_local, normalised
from kafkalog_spark.store.storage_options import StorageOptions

IsolationLevel = Literal["read_uncommitted", "read_committed"]
Pushdown = Literal["auto", "true", "false"]
NoMatch = Literal["error", "latest"]
Mode = Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]


def column_names(name: str, text: str) -> tuple[str, ...]:
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
    OptionSpec("subscribe", offsets.subscribed_topics),
    OptionSpec("subscribePattern", offsets.topic_pattern),
    OptionSpec("assign", offsets.assigned),
    OptionSpec("allTopics", offsets.all_topics, "false"),
)
"""Exactly one of them, unless the path is one partition's directory, or `table` another table than `records`."""

START_OPTIONS = (
    OptionSpec("startingTimestamp", offsets.bound_by_global_timestamp),
    OptionSpec("startingOffsetsByTimestamp", offsets.bound_by_timestamp),
    OptionSpec("startingOffsets", offsets.bound_by_offset, "earliest"),
)
END_OPTIONS = (
    OptionSpec("endingTimestamp", offsets.bound_by_global_timestamp),
    OptionSpec("endingOffsetsByTimestamp", offsets.bound_by_timestamp),
    OptionSpec("endingOffsets", offsets.bound_by_offset, "latest"),
)
"""The first one given of each three decides; the others are not even looked at."""

_isolation_level = choice("read_uncommitted", "read_committed")

OTHER_OPTIONS = (
    OptionSpec("path", paths),
    OptionSpec("paths", paths),  # what Spark makes of .load(["/a", "/b"])
    OptionSpec("includeHeaders", boolean, "false"),
    OptionSpec("kafka.isolation.level", _isolation_level),
    OptionSpec("history", boolean, "false"),
)
"""Options that are no field of ReadOptions by themselves."""

SEARCH_OPTIONS = (
    OptionSpec("where.key", search_text),
    OptionSpec("where.key.hex", search_hex),
    OptionSpec("where.key.prefix", search_text),
    OptionSpec("where.value.contains", search_text),
    OptionSpec("where.header", search_header),
)
"""All that are given must hold; a null matches none of them. Records are looked at before anything is copied."""

TYPED_OPTIONS = tuple(OptionSpec(name, plain_text) for name in ("value.format", "key.format", "value.mode", "key.mode"))
"""Parsed with the options of the formats."""

COMMIT_GROUP = OptionSpec("commitGroup", plain_text)
FAIL_ON_COMMIT_ERROR = OptionSpec("failOnCommitError", boolean, "false")


@dataclass(frozen=True)
class FormatOptions:
    """Format of the values or keys, as given. side: "value" or "key". options: of the format, names in small letters
    without prefix. mode: what a bad value does."""

    side: str
    format: str
    options: Mapping[str, str] = field(repr=False)  # passwords of registries are among them
    mode: Mode


@dataclass(frozen=True)
class RateLimits:
    """Limits of a stream's batch: offsets, bytes; None for no limit. A batch ignores them."""

    max_offsets: int | None = option("maxOffsetsPerTrigger", positive_long)
    min_offsets: int | None = option("minOffsetsPerTrigger", positive_long)
    max_bytes: int | None = option("maxBytesPerTrigger", byte_size)


@dataclass(frozen=True)
class CommitGroup:
    """Consumer group that a stream's offsets are committed to. settings: librdkafka's, with passwords, so in no repr.
    fail: whether a commit that fails is the query's failure."""

    group: str
    settings: Mapping[str, str] = field(repr=False)
    fail: bool


@dataclass(frozen=True)
class StreamOptions:
    """Options that only a stream has."""

    limits: RateLimits
    max_trigger_delay_ms: int = option("maxTriggerDelay", duration_ms, "15m")
    commit_group: CommitGroup | None = None


STREAM_OPTIONS = (*specs_of(RateLimits), *specs_of(StreamOptions))


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of a read, parsed. Plain values, picklable.

    `paths`: directories as given, local ones perhaps relative; `storage`: how object stores are reached; `tier`:
    of tiered storage. `columns`: names in the order of the result. `table`: None for records. `wanted`: what
    they must hold. `formats`: what values and keys are decoded as, by side. `tail`: only the last so many of each
    partition. `max_partition_bytes`, `max_decompressed_batch_bytes`: bytes. `stream`: None for a batch.
    `ignored`: names, as given, of options that have no effect here.
    """

    paths: tuple[str, ...]
    storage: StorageOptions
    tier: TierOptions
    subscription: offsets.Subscription
    start: offsets.Bound
    end: offsets.Bound
    on_no_match: NoMatch = option("startingOffsetsByTimestampStrategy", choice("error", "latest"), "error")
    min_partitions: int | None = option("minPartitions", positive_int)
    max_records_per_partition: int | None = option("maxRecordsPerPartition", positive_long)
    fail_on_data_loss: bool = option("failOnDataLoss", boolean, "true")
    # Ours
    isolation_level: IsolationLevel = option("isolationLevel", _isolation_level, "read_uncommitted")
    columns: tuple[str, ...] = option("columns", column_names)
    table: TableQuery | None = option("table", choice(RECORDS, *TABLES), RECORDS)
    max_partition_bytes: int = option("maxPartitionBytes", byte_size, "128m")
    max_scan_bytes: int | None = option("maxScanBytes", byte_size)
    tail: int | None = option("tail", positive_long)
    max_decompressed_batch_bytes: int = option("maxDecompressedBatchBytes", byte_size, "64m")
    replicas: Replicas = option("replicas", choice(*REPLICAS), "longest")
    pushdown: Pushdown = option("pushdown", choice("auto", "true", "false"), "auto")
    mode: Mode = option("mode", choice("FAILFAST", "DROPMALFORMED", "PERMISSIVE"), "FAILFAST")
    wanted: RecordPredicate
    formats: Mapping[str, FormatOptions]
    stream: StreamOptions | None
    ignored: tuple[str, ...]

    @property
    def passes_over_damage(self) -> bool:
        """True if damage keeps no good record from being read."""
        return self.mode != "FAILFAST"

    @property
    def reports_damage(self) -> bool:
        """True if a damaged stretch is a row."""
        return self.mode == "PERMISSIVE"

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"


READ_OPTIONS = (
    *SUBSCRIPTION_OPTIONS,
    *START_OPTIONS,
    *END_OPTIONS,
    *OTHER_OPTIONS,
    *specs_of(ReadOptions),
    *TIER_OPTIONS,
    *SEARCH_OPTIONS,
    *TYPED_OPTIONS,
    *STREAM_OPTIONS,
    COMMIT_GROUP,
    FAIL_ON_COMMIT_ERROR,
)

CONNECTOR_ONLY = (
    "kafka.bootstrap.servers",
    "kafka.group.id",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafka.*",
)
"""Accepted and ignored: there is no broker, and nothing is fetched. With `commitGroup` the connection's count."""

ONLY_OF_READS = frozenset(
    {option.name.lower() for option in READ_OPTIONS if option.name != "path"}
    | {name.lower() for name in CONNECTOR_ONLY if not name.startswith("kafka.")}
)
"""Names that have no meaning in a write, in small letters."""

OF_SPARK = ("maxFilesPerTrigger",)  # the same, of Spark's other sources

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
