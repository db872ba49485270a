"""Options of a read: their declarations and their parsed values (ReadOptions).

Names, defaults, precedence and messages are those of Spark's Kafka connector (KafkaSourceProvider), so that a job can
change to kafkalog by changing the format name. Options whose meaning ends with "Ours." exist in kafkalog only. The
table in docs/options.md is made from the declarations (python -m docs_site.option_tables).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kafkalog_spark.log.decode.scan_request import RecordPredicate
from kafkalog_spark.log.read.replica_choice import REPLICAS, Replicas
from kafkalog_spark.log.tables.declarations import RECORDS, TABLES
from kafkalog_spark.log.tables.table import TableQuery
from kafkalog_spark.log.tiered.tier_options import TIER_OPTIONS, TierOptions
from kafkalog_spark.options import (
    OptionSpec,
    boolean,
    byte_size,
    choice,
    duration_ms,
    help_text,
    option,
    plain_text,
    positive_int,
    positive_long,
    specs_of,
)
from kafkalog_spark.source import option_values, partition_options
from kafkalog_spark.source.bounds import Bound
from kafkalog_spark.source.foreign_options import IGNORED_OF_CONNECTOR
from kafkalog_spark.source.subscription import Subscription
from kafkalog_spark.store.storage_options import StorageOptions

NoMatch = Literal["error", "latest"]
"""Meaning of a start timestamp later than every record of a partition."""

_PATH_OPTIONS = (
    OptionSpec(
        "path",
        option_values.paths,
        meaning="The argument of `.load(...)`: a log directory, several (`log.dirs`) separated by commas or as a JSON "
        "list, or one partition's directory. Local, or `file:`; `~` and wildcards (`*`, `?`, `[a-c]`) work. Or the URL "
        "of one in an object store: `s3://`, `gs://`, `abfss://`, `hdfs://` (docs/object_storage.md). Ours.",
        excludes=("paths",),
        hint="name all directories in .load(...)",
    ),
    OptionSpec("paths", option_values.paths, meaning='How Spark passes `.load(["/a", "/b"])`.'),
)

SUBSCRIPTION_OPTIONS = (
    OptionSpec("subscribe", partition_options.subscribed_topics, meaning="Comma-separated list of topics."),
    OptionSpec(
        "subscribePattern",
        partition_options.topic_pattern,
        meaning="Regular expression: topics are read whose names contain a match.",
    ),
    OptionSpec("assign", partition_options.assigned, meaning='Partitions, as JSON: `{"topicA":[0,1]}`.'),
    OptionSpec(
        "allTopics", partition_options.all_topics, "false", "`true`: every topic that is not internal to Kafka. Ours."
    ),
)
"""Exactly one of these is required, unless the path is one partition's directory, or `table` is not `records`."""

START_OPTIONS = (
    OptionSpec(
        "startingTimestamp",
        partition_options.bound_by_global_timestamp,
        meaning="Start at the first offset with at least this record timestamp (ms), in every partition. Later records "
        "may be older: this is not a row filter. Takes precedence over the two below.",
    ),
    OptionSpec(
        "startingOffsetsByTimestamp",
        partition_options.bound_by_timestamp,
        meaning='First offsets with at least these record timestamps (ms), as JSON: `{"topicA":{"0":1700000000000}}`. '
        "Takes precedence over `startingOffsets`.",
    ),
    OptionSpec(
        "startingOffsets",
        partition_options.bound_by_offset,
        "earliest",
        '`earliest`, `latest`, or JSON: `{"topicA":{"0":23,"1":-1},"topicB":"earliest"}` (-1 latest, -2 earliest). '
        "Every partition read must be named. A batch cannot start at `latest`; a stream does by default.",
    ),
)
END_OPTIONS = (
    OptionSpec(
        "endingTimestamp",
        partition_options.bound_by_global_timestamp,
        meaning="End before the first offset with at least this record timestamp (ms); without one, at the end. Batch "
        "only. Takes precedence over the two below.",
    ),
    OptionSpec(
        "endingOffsetsByTimestamp",
        partition_options.bound_by_timestamp,
        meaning='First offsets with at least these record timestamps (ms), as JSON: `{"topicA":{"0":1700000000000}}`. '
        "Batch only. Takes precedence over `endingOffsets`.",
    ),
    OptionSpec(
        "endingOffsets",
        partition_options.bound_by_offset,
        "latest",
        '`earliest`, `latest`, or JSON: `{"topicA":{"0":23,"1":-1},"topicB":"earliest"}` (-1 latest, -2 earliest); '
        "itself not read. Not `earliest`. Batch only.",
    ),
)
"""Of START_OPTIONS, and of END_OPTIONS, only the first option that is given is parsed."""

_isolation_level = choice("read_uncommitted", "read_committed")
damage_mode = choice("FAILFAST", "DROPMALFORMED", "PERMISSIVE")

_OTHER_OPTIONS = (
    OptionSpec("includeHeaders", boolean, "false", "Add the column `headers`.", records_only=True),
    OptionSpec("kafka.isolation.level", _isolation_level, meaning="The same as `isolationLevel`.", records_only=True),
    OptionSpec(
        "history",
        boolean,
        "false",
        "For the tables `consumer_offsets`, `groups`, `transactional_ids`: every record that is still there, not only "
        "the latest of each. Ours.",
    ),
    # A record must match all conditions; null matches none.
    OptionSpec(
        "where.key",
        option_values.search_text,
        meaning="Only records with this key, as UTF-8. Ours.",
        records_only=True,
        excludes=("where.key.hex",),
        hint="a record has one key",
    ),
    OptionSpec(
        "where.key.hex",
        option_values.search_hex,
        meaning="Only records with this key, in hexadecimal digits. Ours.",
        records_only=True,
    ),
    OptionSpec(
        "where.key.prefix",
        option_values.search_text,
        meaning="Only records whose key begins with this, as UTF-8. Ours.",
        records_only=True,
    ),
    OptionSpec(
        "where.value.contains",
        option_values.search_text,
        meaning="Only records whose value contains this, as UTF-8. Ours.",
        records_only=True,
    ),
    OptionSpec(
        "where.header",
        option_values.search_header,
        meaning="Only records with a header of this name (`name`), or of this name and value (`name=value`). Ours.",
        records_only=True,
    ),
    # The values of the following are parsed with the options of the format.
    OptionSpec(
        "value.format",
        plain_text,
        meaning="The format of values: `json`, `string`, `avro`, `protobuf`, `confluent-avro` …; the columns are those "
        "of `.schema(...)` (docs/typed.md). Ours.",
    ),
    OptionSpec("key.format", plain_text, meaning="The same, for keys. Ours."),
    OptionSpec(
        "value.mode",
        plain_text,
        meaning="Handling of a malformed value, if it differs from `mode`: `PERMISSIVE` (the default), "
        "`DROPMALFORMED`, `FAILFAST`. Ours.",
    ),
    OptionSpec("key.mode", plain_text, meaning="The same, for keys. Ours."),
    OptionSpec(
        "commitGroup",
        plain_text,
        meaning="Streams: the consumer group to which the query's position is committed after each batch, at the "
        "broker of `kafka.bootstrap.servers` (docs/streaming.md). Ours.",
    ),
    OptionSpec(
        "failOnCommitError",
        boolean,
        "false",
        "Streams with `commitGroup`: fail if the offsets cannot be committed. `false`: warn, continue, and try again. "
        "Ours.",
    ),
)
"""Options that are not fields of ReadOptions."""


@dataclass(frozen=True)
class FormatOptions:
    """Format of values or keys as the options name it. `LoadOptions.formats` reads the files and schemas that it needs.

    Attributes:
        name: Key of `typed.formats.FORMATS`.
        options: Options of the format by lower-case name, without the prefix `value.` or `key.`. They may contain
            passwords.
        mode: Spark's parse mode for malformed values.
    """

    name: str
    options: Mapping[str, str] = field(repr=False)
    mode: str


@dataclass(frozen=True)
class RateLimits:
    """Limits of a micro-batch, in offsets and bytes; None for no limit. Batch queries ignore them."""

    max_offsets: int | None = option(
        "maxOffsetsPerTrigger",
        positive_long,
        meaning="Streams: maximum number of offsets in a batch, over all partitions.",
    )
    min_offsets: int | None = option(
        "minOffsetsPerTrigger", positive_long, meaning="Streams: minimum number of offsets that start a batch."
    )
    max_bytes: int | None = option(
        "maxBytesPerTrigger",
        byte_size,
        meaning="Streams: maximum bytes of segments in a batch, as on disk, over all partitions: whole record batches, "
        "and at least one of each partition with new records. Ours.",
    )


@dataclass(frozen=True)
class CommitGroup:
    """Consumer group to which a stream commits its offsets.

    Attributes:
        group: ID of the group.
        settings: librdkafka's settings of the connection, with passwords.
        fail: True if a failed commit fails the query.
    """

    group: str
    settings: Mapping[str, str] = field(repr=False)
    fail: bool


@dataclass(frozen=True)
class StreamOptions:
    """Parsed options that only streams have."""

    limits: RateLimits
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay", duration_ms, "15m", "Streams: longest wait for `minOffsetsPerTrigger`."
    )
    commit_group: CommitGroup | None = None


STREAM_OPTIONS = (*specs_of(RateLimits), *specs_of(StreamOptions))


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Parsed options of a read. Picklable.

    Attributes:
        paths: Directories as given; local ones may be relative.
        columns: Names of the columns in the order of the result.
        table: The table to read; None for records.
        max_partition_bytes: Largest size of a task.
        max_scan_bytes: Largest size of a batch query.
        max_decompressed_batch_bytes: Largest size of a batch after decompression.
        tail: Largest number of records to read from each partition; None for all. A tail is read by one task for each
            partition.
        wanted: Conditions that records must match.
        formats: Formats by side, "value" and "key".
        stream: Options of a stream; None for a batch query.
        ignored: Names, as given, of options without effect.
    """

    paths: tuple[str, ...]
    storage: StorageOptions
    tier: TierOptions
    subscription: Subscription
    start: Bound
    end: Bound
    on_no_match: NoMatch = option(
        "startingOffsetsByTimestampStrategy",
        choice("error", "latest"),
        "error",
        "If a start timestamp is later than every record of a partition: fail, or start at its end.",
    )
    min_partitions: int | None = option(
        "minPartitions", positive_int, meaning="Split large ranges until there are about this many tasks."
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition", positive_long, meaning="Largest number of offsets in a task.", records_only=True
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        boolean,
        "true",
        "Fail if requested offsets are gone. `false`: warn and read what is left.",
    )
    isolation_level: Literal["read_uncommitted", "read_committed"] = option(
        "isolationLevel",
        _isolation_level,
        "read_uncommitted",
        "`read_committed`: no records of aborted transactions, nothing past the last stable offset. Ours.",
        records_only=True,
    )
    columns: tuple[str, ...] = option(
        "columns",
        option_values.column_names,
        meaning="Comma-separated columns to read, in this order; others are not decoded. Default: all but `headers`. "
        "Ours.",
    )
    table: TableQuery | None = option(
        "table",
        choice(RECORDS, *TABLES),
        RECORDS,
        "What to read: the records, or one of the tables of docs/tables.md, such as `batches`, `segments`, "
        "`consumer_offsets`, which need no subscription and then cover all topics. Batch only. Ours.",
    )
    max_partition_bytes: int = option(
        "maxPartitionBytes",
        byte_size,
        "128m",
        "Segments larger than this are split into several tasks, at batch boundaries. Ours.",
    )
    max_scan_bytes: int | None = option(
        "maxScanBytes",
        byte_size,
        meaning="Refuse a batch query that would read more bytes of .log files. The error has the number. Ours.",
    )
    tail: int | None = option(
        "tail",
        positive_long,
        meaning="Only the last N records of each partition, within the range of starts and ends. Conditions "
        "(`where.*`, filters) apply to these records. Batch only. Ours.",
        records_only=True,
        batch_only="a stream has no last records",
        # The tasks search for the first of the last records, so their bytes and offsets are unknown at planning.
        excludes=("maxScanBytes", "maxRecordsPerPartition", "minPartitions"),
        hint="leave '{}' out: one task for each partition reads the tail, from its end",
    )
    max_decompressed_batch_bytes: int = option(
        "maxDecompressedBatchBytes",
        byte_size,
        "64m",
        "A compressed batch that decompresses to more is treated as corrupt. Ours.",
    )
    replicas: Replicas = option(
        "replicas",
        choice(*REPLICAS),
        "longest",
        "For a partition that is in several of the log directories: `longest` reads the copy with the highest leader "
        "epoch, among these the copy that ends last, and logs the choice; `error` fails; `merge` reads batches "
        "that are damaged in that copy, and records that are missing at its ends, from the other copies, by leader "
        "epochs (batch only, in directories that no broker writes to). Ours.",
    )
    pushdown: Literal["auto", "true", "false"] = option(
        "pushdown",
        choice("auto", "true", "false"),
        "auto",
        "Apply the filters that Spark pushes (in a session with `spark.sql.python.filterPushdown.enabled`). `auto`: on "
        "Spark 5 and newer; on Spark 4 the result could be wrong (SPARK-58551), so Spark filters, and a log line says "
        "so. `true` is refused on Spark 4. Ours.",
    )
    mode: Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"] = option(
        "mode",
        damage_mode,
        "FAILFAST",
        "How a damaged batch is handled: `FAILFAST` fails and names file and position; `DROPMALFORMED` skips it with a "
        "warning; `PERMISSIVE` (batch only) returns a row for it, with the columns `_error`, `_file`, `_position`, "
        "`_length`, `_first_offset`, `_next_offset`, which only this mode has (docs/reading.md). A batch can be "
        "malformed under a valid CRC: rows of earlier batches are kept then. If a record's timestamp does not fit "
        "Spark's type, rows of its batch before that record are kept too. Ours.",
        records_only=True,
    )
    wanted: RecordPredicate
    formats: Mapping[str, FormatOptions]
    stream: StreamOptions | None
    ignored: tuple[str, ...]

    @property
    def passes_over_damage(self) -> bool:
        """True if damaged batches are skipped and the other records are read."""
        return self.mode != "FAILFAST"

    @property
    def reports_damage(self) -> bool:
        """True if each damaged part of a log becomes a row."""
        return self.mode == "PERMISSIVE"

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"


READ_OPTIONS = (
    *_PATH_OPTIONS,
    *SUBSCRIPTION_OPTIONS,
    *START_OPTIONS,
    *END_OPTIONS,
    *specs_of(ReadOptions),
    *_OTHER_OPTIONS,
    *TIER_OPTIONS,
    *STREAM_OPTIONS,
)
ReadOptions.__doc__ = f"{(ReadOptions.__doc__ or '').rstrip()}\n\n{help_text(READ_OPTIONS)}"
OPTION_NAMES = frozenset(spec.name.lower() for spec in READ_OPTIONS)
"""Names of all options of a read, in lower case."""

READ_ONLY_OPTIONS = frozenset(
    OPTION_NAMES - {"path"} | {name.lower() for name in IGNORED_OF_CONNECTOR if not name.startswith("kafka.")}
)
"""Names of options that reads have and writes do not, in lower case."""
