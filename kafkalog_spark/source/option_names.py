"""Every option of a read, declared once: its name, default, meaning and the function that reads its text.

options.py parses from these declarations, and the table of docs/options.md is made from them. Names, defaults and
rules are those of Spark's Kafka connector (KafkaSourceProvider), down to `Ours`.
"""

from __future__ import annotations

from kafkalog_spark.log.read.replicas import REPLICAS
from kafkalog_spark.log.tables.columns import RECORDS, TABLES
from kafkalog_spark.log.tiered.key_wrap import OPTION as KEY_OPTION
from kafkalog_spark.log.tiered.tier_options import AUTO, LAYOUT_OPTION, LAYOUTS, PREFIX_OPTION
from kafkalog_spark.option_text import Option
from kafkalog_spark.source import option_values as values

SUBSCRIPTION_OPTIONS = (
    Option("subscribe", values.topics, None, "Topics, by comma."),
    Option("subscribePattern", values.pattern, None, "Regular expression; a topic is read if it is found in its name."),
    Option("assign", values.assignment, None, 'Partitions, as JSON: `{"topicA":[0,1]}`.'),
    Option("allTopics", values.all_topics, "false", "`true`: every topic that is not internal to Kafka. Ours."),
)
"""Exactly one of them, unless the path is one partition's directory, or `table` another table than `records`."""

_OFFSETS = '`earliest`, `latest`, or JSON: `{"topicA":{"0":23,"1":-1},"topicB":"earliest"}` (-1 latest, -2 earliest)'
_TIMESTAMPS = 'First offsets with at least these record timestamps (ms), as JSON: `{"topicA":{"0":1700000000000}}`'

# Of each three, the first one given decides; the others are not even looked at.
START_OPTIONS = (
    Option(
        "startingTimestamp",
        values.bound_by_global_timestamp,
        None,
        "Start at the first offset with at least this record timestamp (ms), in every partition. Later records may be "
        "older: this is not a row filter. Takes precedence over the two below.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        values.bound_by_timestamp,
        None,
        f"{_TIMESTAMPS}. Takes precedence over `startingOffsets`.",
    ),
    Option(
        "startingOffsets",
        values.bound_by_offset,
        "earliest",
        f"{_OFFSETS}. Every partition read must be named. A batch cannot start at `latest`; a stream does by default.",
    ),
)
END_OPTIONS = (
    Option(
        "endingTimestamp",
        values.bound_by_global_timestamp,
        None,
        "End before the first offset with at least this record timestamp (ms); without one, at the end. Batch only. "
        "Takes precedence over the two below.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        values.bound_by_timestamp,
        None,
        f"{_TIMESTAMPS}. Batch only. Takes precedence over `endingOffsets`.",
    ),
    Option(
        "endingOffsets", values.bound_by_offset, "latest", f"{_OFFSETS}; itself not read. Not `earliest`. Batch only."
    ),
)

PLAIN_OPTIONS = (
    Option(
        "startingOffsetsByTimestampStrategy",
        values.choice("error", "latest"),
        "error",
        "What a start timestamp after every record of a partition does: fail, or start at its end.",
    ),
    Option("includeHeaders", values.boolean, "false", "Adds the column `headers`."),
    Option("minPartitions", values.positive_int, None, "Cut large ranges until there are about so many tasks."),
    Option("maxRecordsPerPartition", values.positive_long, None, "Largest number of offsets in a task."),
    Option(
        "failOnDataLoss",
        values.boolean,
        "true",
        "Fail when offsets that were asked for are gone. `false`: warn and read what is left.",
    ),
    Option(
        "kafka.isolation.level",
        values.choice("read_uncommitted", "read_committed"),
        None,
        "The same as `isolationLevel`.",
    ),
    # Ours
    Option(
        "path",
        values.paths,
        None,
        "What `.load(...)` is given: a log directory, several (`log.dirs`) by comma or as a JSON list, or one "
        "partition's directory. Local, or `file:`; `~` and wildcards (`*`, `?`, `[a-c]`) are understood. Or the URL of "
        "one in an object store: `s3://`, `gs://`, `abfss://`, `hdfs://` (docs/object_storage.md).",
    ),
    Option("paths", values.paths, None, 'What Spark makes of `.load(["/a", "/b"])`.'),
    Option(
        "isolationLevel",
        values.choice("read_uncommitted", "read_committed"),
        "read_uncommitted",
        "`read_committed`: no records of aborted transactions, nothing past the last stable offset.",
    ),
    Option(
        "columns",
        values.columns,
        None,
        "Columns to read, by comma, in this order; the others are not decoded. Default: all but `headers`.",
    ),
    Option(
        "table",
        values.choice(RECORDS, *TABLES),
        RECORDS,
        "What is read: the records, or one of the tables of docs/tables.md, such as `batches`, `segments`, "
        "`consumer_offsets`, which need no subscription and then cover all topics. Batch only.",
    ),
    Option(
        "history",
        values.boolean,
        "false",
        "Of the tables `consumer_offsets`, `groups`, `transactional_ids`: every record that is still there, instead of "
        "the latest of each.",
    ),
    Option(
        "maxPartitionBytes",
        values.byte_size,
        "128m",
        "Segments larger than this are cut into several tasks, at batch boundaries.",
    ),
    Option(
        "maxScanBytes",
        values.byte_size,
        None,
        "Refuse to read a batch for which more bytes of .log files would be looked at, and say how many. Ours.",
    ),
    Option(
        "tail",
        values.positive_long,
        None,
        "Only the last so many records of each partition, of those in the range that the options above name, read from "
        "its end. Conditions (`where.*`, filters) narrow what these are. Batch only. Ours.",
    ),
    Option(
        "maxDecompressedBatchBytes",
        values.byte_size,
        "64m",
        "A compressed batch that decompresses to more is treated as corrupt.",
    ),
    Option(
        "replicas",
        values.choice(*REPLICAS),
        "longest",
        "A partition that lies in several of the log directories: `longest` reads the copy of the highest leader "
        "epoch, of these the one that ends last, and logs which; `error` fails; `merge` takes what is damaged in that "
        "copy, or missing at its ends, from the others, by leader epochs. Batch only, of directories that no broker "
        "writes to.",
    ),
    Option(
        LAYOUT_OPTION,
        values.choice(*LAYOUTS),
        AUTO,
        "How the names below the paths are made: `broker`, a log directory's; `aiven`, Aiven's plugin for tiered "
        "storage; `local-tiered`, Kafka's LocalTieredStorage. `auto` finds it for each path by itself.",
    ),
    Option(
        PREFIX_OPTION,
        values.text,
        None,
        "`layout=aiven`: what of the plugin's `key.prefix` follows its last slash.",
    ),
    Option(
        "pushdown",
        values.choice("auto", "true", "false"),
        "auto",
        "Whether the read applies the filters that Spark pushes (in a session with "
        "`spark.sql.python.filterPushdown.enabled`). `auto`: where no wrong row is possible, Spark 5 and newer; on "
        "Spark 4 Spark filters, and one log line says why (SPARK-58551). `true` is refused on Spark 4. Ours.",
    ),
    Option(
        "mode",
        values.choice("FAILFAST", "DROPMALFORMED", "PERMISSIVE"),
        "FAILFAST",
        "What a damaged batch does: fail, naming file and position; be skipped, with a warning that does; or, with "
        "`PERMISSIVE`, be a row that does, in the columns `_error`, `_file`, `_position`, `_length`, `_first_offset`, "
        "`_next_offset`, which are there in this mode alone (docs/reading.md; batch only). Rows of it that were handed "
        "over before the damage was met stay: a batch with a valid CRC can be malformed inside.",
    ),
)

GROUP_OPTIONS = (
    Option(
        "commitGroup",
        values.text,
        None,
        "Streams: the consumer group that the query's position is committed to, at the broker that "
        "`kafka.bootstrap.servers` names, whenever a batch is done (docs/streaming.md). Ours.",
    ),
    Option(
        "failOnCommitError",
        values.boolean,
        "false",
        "Streams with `commitGroup`: fail when the offsets cannot be committed. `false`: warn, go on, and try again. "
        "Ours.",
    ),
)

SEARCH_OPTIONS = (
    Option("where.key", values.search_text, None, "Only records with this key, as UTF-8. Ours, as those that follow."),
    Option("where.key.hex", values.search_hex, None, "Only records with this key, in hexadecimal digits."),
    Option("where.key.prefix", values.search_text, None, "Only records whose key begins with this, as UTF-8."),
    Option("where.value.contains", values.search_text, None, "Only records whose value holds this, as UTF-8."),
    Option(
        "where.header",
        values.search_header,
        None,
        "Only records with a header of this name, `name`, or of this name and value, `name=value`.",
    ),
)
"""All that are given must hold; a null matches none of them. Records are looked at before anything is copied."""

TYPED_OPTIONS = (
    Option(
        "value.format",
        values.text,
        None,
        "What values are decoded as: `json`, `string`, `avro`, `protobuf`, `confluent-avro` …; the columns are those "
        "of `.schema(...)` (docs/typed.md). Ours, as those that follow.",
    ),
    Option("key.format", values.text, None, "The same of keys."),
    Option(
        "value.mode",
        values.text,
        None,
        "What a bad value does, where that is not what `mode` says: `PERMISSIVE` (the default), `DROPMALFORMED`, "
        "`FAILFAST`.",
    ),
    Option("key.mode", values.text, None, "The same of keys."),
)
"""Parsed by typed_options.py, with the options of the formats."""

RATE_OPTIONS = (
    Option("maxOffsetsPerTrigger", values.positive_long, None, "Streams: most offsets in a batch, in all."),
    Option("minOffsetsPerTrigger", values.positive_long, None, "Streams: fewest offsets that start a batch."),
    Option("maxTriggerDelay", values.duration_ms, "15m", "Streams: longest wait for `minOffsetsPerTrigger`."),
    Option(
        "maxBytesPerTrigger",
        values.byte_size,
        None,
        "Streams: most bytes of segments in a batch, in all, as they lie on disk; whole record batches, and at least "
        "one of each partition that has news. Ours.",
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
"""What users of other connectors, of Kafka's tools or of its configuration write, and the option here."""

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
    rows = [(f"`{option.name}`", _default_text(option), option.meaning) for option in READ_OPTIONS]
    rows += [(f"`{name}`", "", meaning) for name, meaning in OF_MANY_NAMES.items()]
    ignored = {**CONNECTOR_ONLY, **OF_SPARK}
    rows += [(f"`{name}`", "", f"Accepted and ignored: {why}.") for name, why in ignored.items()]
    rows += [(f"`{name}`", "", "Refused, as in the connector.") for name in REFUSED]
    lines = ["| option | default | meaning |", "|---|---|---|"]
    lines += [f"| {name} | {default} | {meaning.replace('|', chr(92) + '|')} |" for name, default, meaning in rows]
    return "\n".join(lines) + "\n"


def _default_text(option: Option) -> str:
    return "" if option.default is None else f"`{option.default}`"
