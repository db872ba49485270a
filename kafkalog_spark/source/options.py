"""The options of a read: their declarations, their parsed values (ReadOptions), and parse_read_options.

Names, defaults, precedence and messages are those of Spark's Kafka connector (KafkaSourceProvider), so that a job moves
by changing the format name; options whose meaning ends with "Ours." are kafkalog's. The table in docs/options.md is
made from the declarations (python -m docs_site.option_tables).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any, Literal

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, COLUMNS, DAMAGE_COLUMN_TYPES, RecordPredicate
from kafkalog_spark.log.read.discovery import REPLICAS, Replicas
from kafkalog_spark.log.tables.table import RECORDS, TABLES, TableQuery, table_query
from kafkalog_spark.log.tiered.tier_options import TIER_OPTIONS, TierOptions, is_tier_option
from kafkalog_spark.options import (
    GivenOptions,
    OptionSpec,
    boolean,
    byte_size,
    choice,
    day_if_seconds,
    described,
    duration_ms,
    local_path,
    option,
    plain_text,
    positive_int,
    positive_long,
    specs_of,
    unknown_option,
)
from kafkalog_spark.source import offsets
from kafkalog_spark.source.foreign_options import IGNORED, OF_SPARK, OTHER_NAMES, REFUSED
from kafkalog_spark.spark import librdkafka
from kafkalog_spark.store.paths import is_local, normalised
from kafkalog_spark.store.storage_options import StorageOptions, is_storage_option
from kafkalog_spark.typed.decoder import FORMATS, ResolvedFormat, check_options, format_name, option_names

NoMatch = Literal["error", "latest"]

_log = logging.getLogger(__name__)


def _column_names(name: str, text: str) -> tuple[str, ...]:
    """Parse comma-separated column names. They are checked later, since the columns depend on the table."""
    return tuple(part.strip() for part in text.split(","))


def _search_text(name: str, text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _search_hex(name: str, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise OptionError(
            f"option '{name}' takes two hexadecimal digits a byte, such as 00ff2a, got '{text}'"
        ) from None


def _search_header(name: str, text: str) -> tuple[bytes, bytes | None]:
    """Parse `name` or `name=value`; the first = ends the name. A value of None matches any value."""
    header, equals, value = text.partition("=")
    return _search_text(name, header), _search_text(name, value) if equals else None


def _location(name: str, text: str) -> str:
    """Parse a local path, without `file:`, or the URL of a directory in an object store, normalised."""
    if is_local(text) or text[:5].lower() == "file:":
        return local_path(name, text, "it names no directory of this machine, and no bucket")
    return normalised(text)


def _paths(name: str, text: str) -> tuple[str, ...]:
    """Parse directories: one, several by comma, or a JSON list, which Spark makes of load(["a", "b"])."""
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


_PATH_OPTIONS = (
    OptionSpec(
        "path",
        _paths,
        meaning="The argument of `.load(...)`: a log directory, several (`log.dirs`) separated by commas or as a JSON "
        "list, or one partition's directory. Local, or `file:`; `~` and wildcards (`*`, `?`, `[a-c]`) work. Or the URL "
        "of one in an object store: `s3://`, `gs://`, `abfss://`, `hdfs://` (docs/object_storage.md). Ours.",
        excludes=("paths",),
        hint="name all directories in .load(...)",
    ),
    OptionSpec("paths", _paths, meaning='How Spark passes `.load(["/a", "/b"])`.'),
)

SUBSCRIPTION_OPTIONS = (
    OptionSpec("subscribe", offsets.subscribed_topics, meaning="Comma-separated list of topics."),
    OptionSpec(
        "subscribePattern",
        offsets.topic_pattern,
        meaning="Regular expression: topics are read whose names contain a match.",
    ),
    OptionSpec("assign", offsets.assigned, meaning='Partitions, as JSON: `{"topicA":[0,1]}`.'),
    OptionSpec("allTopics", offsets.all_topics, "false", "`true`: every topic that is not internal to Kafka. Ours."),
)
"""Exactly one is required, unless the path is one partition's directory, or `table` is not `records`."""

START_OPTIONS = (
    OptionSpec(
        "startingTimestamp",
        offsets.bound_by_global_timestamp,
        meaning="Start at the first offset with at least this record timestamp (ms), in every partition. Later records "
        "may be older: this is not a row filter. Takes precedence over the two below.",
    ),
    OptionSpec(
        "startingOffsetsByTimestamp",
        offsets.bound_by_timestamp,
        meaning='First offsets with at least these record timestamps (ms), as JSON: `{"topicA":{"0":1700000000000}}`. '
        "Takes precedence over `startingOffsets`.",
    ),
    OptionSpec(
        "startingOffsets",
        offsets.bound_by_offset,
        "earliest",
        '`earliest`, `latest`, or JSON: `{"topicA":{"0":23,"1":-1},"topicB":"earliest"}` (-1 latest, -2 earliest). '
        "Every partition read must be named. A batch cannot start at `latest`; a stream does by default.",
    ),
)
END_OPTIONS = (
    OptionSpec(
        "endingTimestamp",
        offsets.bound_by_global_timestamp,
        meaning="End before the first offset with at least this record timestamp (ms); without one, at the end. Batch "
        "only. Takes precedence over the two below.",
    ),
    OptionSpec(
        "endingOffsetsByTimestamp",
        offsets.bound_by_timestamp,
        meaning='First offsets with at least these record timestamps (ms), as JSON: `{"topicA":{"0":1700000000000}}`. '
        "Batch only. Takes precedence over `endingOffsets`.",
    ),
    OptionSpec(
        "endingOffsets",
        offsets.bound_by_offset,
        "latest",
        '`earliest`, `latest`, or JSON: `{"topicA":{"0":23,"1":-1},"topicB":"earliest"}` (-1 latest, -2 earliest); '
        "itself not read. Not `earliest`. Batch only.",
    ),
)
"""The first one that is given decides, of START_OPTIONS and of END_OPTIONS. The others are not parsed."""

_TYPO_RATIO = (
    0.85  # difflib's; "kafka.isolationLevel" has 0.95 with "kafka.isolation.level", Kafka's own settings less than 0.7
)
_isolation_level = choice("read_uncommitted", "read_committed")
_mode = choice("FAILFAST", "DROPMALFORMED", "PERMISSIVE")

_OTHER_OPTIONS = (
    OptionSpec("includeHeaders", boolean, "false", "Add the column `headers`.", of_records=True),
    OptionSpec("kafka.isolation.level", _isolation_level, meaning="The same as `isolationLevel`.", of_records=True),
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
        _search_text,
        meaning="Only records with this key, as UTF-8. Ours.",
        of_records=True,
        excludes=("where.key.hex",),
        hint="a record has one key",
    ),
    OptionSpec(
        "where.key.hex",
        _search_hex,
        meaning="Only records with this key, in hexadecimal digits. Ours.",
        of_records=True,
    ),
    OptionSpec(
        "where.key.prefix",
        _search_text,
        meaning="Only records whose key begins with this, as UTF-8. Ours.",
        of_records=True,
    ),
    OptionSpec(
        "where.value.contains",
        _search_text,
        meaning="Only records whose value contains this, as UTF-8. Ours.",
        of_records=True,
    ),
    OptionSpec(
        "where.header",
        _search_header,
        meaning="Only records with a header of this name (`name`), or of this name and value (`name=value`). Ours.",
        of_records=True,
    ),
    # The values of these are parsed with the options of the format.
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
        meaning="How a bad value is handled, if not as `mode` says: `PERMISSIVE` (the default), `DROPMALFORMED`, "
        "`FAILFAST`. Ours.",
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
"""Options that have no field of ReadOptions of their own."""


@dataclass(frozen=True)
class RateLimits:
    """Limits of a micro-batch, in offsets and bytes; None for no limit. Batch queries ignore them."""

    max_offsets: int | None = option(
        "maxOffsetsPerTrigger", positive_long, meaning="Streams: most offsets in a batch, in all."
    )
    min_offsets: int | None = option(
        "minOffsetsPerTrigger", positive_long, meaning="Streams: fewest offsets that start a batch."
    )
    max_bytes: int | None = option(
        "maxBytesPerTrigger",
        byte_size,
        meaning="Streams: most bytes of segments in a batch, in all, as they are on disk: whole record batches, and at "
        "least one of each partition with new records. Ours.",
    )


@dataclass(frozen=True)
class CommitGroup:
    """Consumer group to which a stream commits its offsets.

    Attributes:
        settings: librdkafka's settings of the connection, with passwords.
        fail: True if a failed commit fails the query.
    """

    group: str
    settings: Mapping[str, str] = field(repr=False)
    fail: bool


@dataclass(frozen=True)
class StreamOptions:
    limits: RateLimits
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay", duration_ms, "15m", "Streams: longest wait for `minOffsetsPerTrigger`."
    )
    commit_group: CommitGroup | None = None


_STREAM_OPTIONS = (*specs_of(RateLimits), *specs_of(StreamOptions))


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Parsed options of a read. Picklable.

    Attributes:
        paths: Directories as given; local ones may be relative.
        columns: Names in the order of the result.
        table: None for records.
        max_partition_bytes, max_scan_bytes, max_decompressed_batch_bytes: Bytes.
        wanted: Conditions that records must match.
        formats: Formats of values and keys, by side.
        stream: None for a batch query.
        ignored: Names, as given, of options without effect.
    """

    paths: tuple[str, ...]
    storage: StorageOptions
    tier: TierOptions
    subscription: offsets.Subscription
    start: offsets.Bound
    end: offsets.Bound
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
        "maxRecordsPerPartition", positive_long, meaning="Largest number of offsets in a task.", of_records=True
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        boolean,
        "true",
        "Fail if requested offsets are gone. `false`: warn and read what is left.",
    )
    # Ours
    isolation_level: Literal["read_uncommitted", "read_committed"] = option(
        "isolationLevel",
        _isolation_level,
        "read_uncommitted",
        "`read_committed`: no records of aborted transactions, nothing past the last stable offset. Ours.",
        of_records=True,
    )
    columns: tuple[str, ...] = option(
        "columns",
        _column_names,
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
        meaning="Refuse a batch query that would read more bytes of .log files than this, and say how many. Ours.",
    )
    tail: int | None = option(
        "tail",
        positive_long,
        meaning="Only the last N records of each partition, within the range that the options above name. Conditions "
        "(`where.*`, filters) apply to these. Batch only. Ours.",
        of_records=True,
        batch_only="a stream has no last records",
        # The tasks find where the last records begin. Planning knows neither their bytes nor their offsets.
        excludes=("maxScanBytes", "maxRecordsPerPartition", "minPartitions"),
        hint="leave '{}' out: a tail is read by one task a partition, and from its end",
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
        "epoch, among these the one that ends last, and logs which; `error` fails; `merge` takes what is damaged in "
        "that copy, or missing at its ends, from the others, by leader epochs (batch only, in directories that no "
        "broker writes to). Ours.",
    )
    pushdown: Literal["auto", "true", "false"] = option(
        "pushdown",
        choice("auto", "true", "false"),
        "auto",
        "Apply the filters that Spark pushes (in a session with `spark.sql.python.filterPushdown.enabled`). `auto`: on "
        "Spark 5 and newer; on Spark 4 it could give wrong rows (SPARK-58551), so Spark filters, and one log line says "
        "so. `true` is refused on Spark 4. Ours.",
    )
    mode: Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"] = option(
        "mode",
        _mode,
        "FAILFAST",
        "How a damaged batch is handled: `FAILFAST` fails and names file and position; `DROPMALFORMED` skips it with a "
        "warning; `PERMISSIVE` (batch only) returns a row for it, with the columns `_error`, `_file`, `_position`, "
        "`_length`, `_first_offset`, `_next_offset`, which only this mode has (docs/reading.md). A batch can be "
        "malformed under a valid CRC: rows of earlier batches are kept then. If a record's timestamp does not fit "
        "Spark's type, rows of its batch before that record are kept too. Ours.",
        of_records=True,
    )
    wanted: RecordPredicate
    formats: Mapping[str, ResolvedFormat]
    stream: StreamOptions | None
    ignored: tuple[str, ...]

    @property
    def passes_over_damage(self) -> bool:
        """True if good records are read in spite of damage."""
        return self.mode != "FAILFAST"

    @property
    def reports_damage(self) -> bool:
        """True if each damaged stretch becomes a row."""
        return self.mode == "PERMISSIVE"

    @property
    def most_records(self) -> int | None:
        """Most records to read of each partition, which one task counts; None for all. Estimates use it."""
        return self.tail

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
    *_STREAM_OPTIONS,
)
ReadOptions.__doc__ = f"{(ReadOptions.__doc__ or '').rstrip()}\n\n{described(READ_OPTIONS)}"
_NAMES = frozenset(spec.name.lower() for spec in READ_OPTIONS)

ONLY_OF_READS = frozenset(
    _NAMES - {"path"}
    | {name.lower() for name, meaning in IGNORED.items() if not name.startswith("kafka.") and meaning != OF_SPARK}
)
"""Names of options that only reads have, in lower case."""

NO_DIRECTORY = 'name it in .load("/data/kafka-logs")'
NO_OPTIONS = (
    f"{NO_DIRECTORY}; if this is a table: Spark does not hand a table's options to a source in Python, so use "
    "CREATE TEMPORARY VIEW ... USING kafkalog OPTIONS (path '...', subscribe '...'), or SELECT ... FROM table WITH "
    "('path' = '...', 'subscribe' = '...')"
)


def parse_read_options(
    options: Mapping[str, str] | GivenReadOptions, *, streaming: bool = False, quiet: bool = False
) -> ReadOptions:
    """Parse the options of a read. Each option is parsed once, for batch and stream.

    Args:
        options: As Spark passes them; names in any case, values with blanks around them.
        quiet: True to log nothing about options without effect.

    Raises:
        OptionError: For invalid values, values that exclude each other, options that the connector refuses, and unknown
            names, with the nearest known one.
    """
    given = options if isinstance(options, GivenReadOptions) else GivenReadOptions(options)
    formats, _ = given.formats
    ignored = given.ignored(streaming)
    values = given.fields(ReadOptions)
    start = given.first_of(START_OPTIONS, offsets.AT_LATEST if streaming else None)
    end = offsets.AT_LATEST if streaming else given.first_of(END_OPTIONS)
    _check_rules(given, streaming)
    if streaming:
        _check_stream(given)
    else:
        _check_batch_bounds(start, end)
    subscription = _subscription(given)
    for name, why in REFUSED.items():
        if name in given:
            raise OptionError(why)
    table = _table_query(given, of_topics=subscription.said, streaming=streaming)
    if table is not None and formats:
        raise OptionError(f"option '{next(iter(formats))}.format' applies to records, not to the table '{table.table}'")
    paths = given["path"] or given["paths"]
    if paths is None:
        raise OptionError("no log directory is given", hint=NO_DIRECTORY if given.names else NO_OPTIONS)
    ours, kafkas = given["isolationLevel"], given["kafka.isolation.level"]
    if kafkas not in (None, ours) and "isolationLevel" in given:
        raise OptionError(f"option 'isolationLevel' is {ours}, but 'kafka.isolation.level' is {kafkas}")
    if streaming and formats and given["mode"] == "PERMISSIVE":
        values["mode"] = "FAILFAST"
    key, key_hex = given["where.key"], given["where.key.hex"]
    header = given["where.header"] or (None, None)
    values |= {
        "columns": _columns(given) if table is None else table.columns,
        "isolation_level": kafkas or ours,
        "table": table,
        "wanted": RecordPredicate(
            key_hex if key is None else key, given["where.key.prefix"], given["where.value.contains"], *header
        ),
    }
    result = ReadOptions(
        **values,
        paths=paths,
        storage=StorageOptions.of(given.named(is_storage_option)),
        tier=TierOptions.of(given.named(is_tier_option)),
        subscription=subscription,
        start=start,
        end=end,
        formats=formats,
        stream=_stream_options(given, streaming),
        ignored=ignored,
    )
    if not quiet:
        warn_of(ignored, start, end)
    return result


def warn_of(ignored: Iterable[str], start: offsets.Bound, end: offsets.Bound) -> None:
    if names := ", ".join(ignored):
        _log.warning("options without effect on kafkalog: %s", names)
    for name, bound, read in (("startingTimestamp", start, "everything"), ("endingTimestamp", end, "nothing")):
        if bound.by_time and (day := day_if_seconds(bound.of_all)) is not None:
            text = "%s=%d is in %s, so %s is read: it is in milliseconds, not in seconds"
            _log.warning(text, name, bound.of_all, day, read)


class GivenReadOptions(GivenOptions):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options, READ_OPTIONS)

    @cached_property
    def formats(self) -> tuple[dict[str, ResolvedFormat], frozenset[str]]:
        """Formats of values and keys by side, not resolved yet, and the names, in lower case, of the options they use.

        An option of a format has the prefix `value.` or `key.`. Without a prefix it applies to both, if the reader has
        no option of that name. If there is a format, `mode` also decides about bad values, unless `value.mode` or
        `key.mode` does.

        Raises:
            OptionError: For an unknown format, and for an option that the format does not have.
        """
        used: set[str] = set()
        formats: dict[str, ResolvedFormat] = {}
        for side in ("value", "key"):
            name = self.texts.get(f"{side}.format")
            prefixed = self.of_side(side)
            if name is None:
                if prefixed:
                    raise OptionError(
                        f"option '{self.names[f'{side}.{next(iter(prefixed))}']}' requires '{side}.format'",
                        hint=f"the formats are {', '.join(FORMATS)}",
                    )
                continue
            name = format_name(f"{side}.format", name)
            shared_names = option_names(name) - _NAMES - {"schema"}
            shared = {key: text for key, text in self.texts.items() if key in shared_names}
            own = {option: text for option, text in prefixed.items() if option not in ("format", "mode")}
            check_options(name, {option: self.names[f"{side}.{option}"] for option in own})
            mode_option = f"{side}.mode" if f"{side}.mode" in self else "mode"
            mode = _mode(mode_option, self.texts.get(mode_option, "PERMISSIVE"))
            used.update(shared, (f"{side}.{option}" for option in (*own, "format", "mode")))
            formats[side] = ResolvedFormat(name, shared | own, side, mode)
        return formats, frozenset(used)

    def first_of(self, options: tuple[OptionSpec, ...], otherwise: offsets.Bound | None = None) -> Any:
        """Return the value of the first of `options` that is given, else `otherwise`, else the last one's default."""
        chosen = next((spec.name for spec in options if spec.name in self), None)
        return otherwise if chosen is None and otherwise is not None else self[chosen or options[-1].name]

    def ignored(self, streaming: bool) -> tuple[str, ...]:
        """Return the names without effect, in the order given. Raises OptionError for an unknown name."""
        used = _NAMES | REFUSED.keys()
        without_effect = {name.lower() for name in IGNORED}
        no_effect = {"endingtimestamp"} if streaming else {spec.name.lower() for spec in _STREAM_OPTIONS}
        result = []
        for key, name in self.names.items():
            if (
                (key in used and key not in no_effect)
                or key in self.formats[1]
                or ("commitGroup" in self and librdkafka.is_of_connection(key))
                or is_storage_option(key)
                or is_tier_option(key)
                or self.is_table_property(key)
            ):
                continue
            level = "kafka.isolation.level"  # the only consumer setting that changes the result
            if key not in used and SequenceMatcher(None, key, level).ratio() >= _TYPO_RATIO:
                raise unknown_option(name, [level], {})
            if key not in used | without_effect and not key.startswith("kafka."):
                raise unknown_option(name, [*(spec.name for spec in READ_OPTIONS), *IGNORED], OTHER_NAMES)
            result.append(name)
        return tuple(result)


def _check_rules(given: GivenReadOptions, streaming: bool) -> None:
    """Check the given options by the rules of their declarations; `_table_query` checks those of tables."""
    for spec in (spec for spec in READ_OPTIONS if spec.name in given):
        if streaming and spec.batch_only:
            raise OptionError(
                f"option '{spec.name}' applies to batch queries only: {spec.batch_only}", hint="use spark.read"
            )
        for name in spec.excludes:
            if name in given:
                raise OptionError(f"options '{spec.name}' and '{name}' are both given", hint=spec.hint.format(name))


def _check_stream(given: GivenReadOptions) -> None:
    if given["mode"] == "PERMISSIVE" and not given.formats[0]:
        raise OptionError(
            "mode=PERMISSIVE applies to batch queries only: a stream never returns to a stretch that it has reported",
            hint="mode=DROPMALFORMED skips damage and logs it; read the skipped stretches with spark.read",
        )
    if given["replicas"] == "merge":
        raise OptionError(
            "replicas=merge applies to batch queries only: it is for directories that no broker writes to",
            hint="replicas=longest follows the copy of the leader",
        )
    if "endingOffsets" in given:
        raise OptionError("ending offset not valid in streaming queries")
    if "endingOffsetsByTimestamp" in given:
        raise OptionError("ending timestamp not valid in streaming queries")


def _check_batch_bounds(start: offsets.Bound, end: offsets.Bound) -> None:
    of_start = (start, offsets.LATEST, "starting offset", "startingOffsets", "latest")
    of_end = (end, offsets.EARLIEST, "ending offset", "ending offset", "earliest")
    for bound, number, side, of_partition, word in (of_start, of_end):
        if bound.by_time:
            continue
        if bound.of_all == number:
            raise OptionError(f"{side} can't be {word} for batch queries on Kafka")
        partitions = (offsets.tp_text(tp) for tp, offset in sorted(bound.partitions.items()) if offset == number)
        for where in (*partitions, *(topic for topic, offset in sorted(bound.topics.items()) if offset == number)):
            raise OptionError(f"{of_partition} for {where} can't be {word} for batch queries on Kafka")
    offsets.check_bounds_agree(start, end)


def _subscription(given: GivenReadOptions) -> offsets.Subscription:
    names = [spec.name for spec in SUBSCRIPTION_OPTIONS]
    chosen = [name for name in names if name in given and given[name].said]
    if len(chosen) > 1:
        raise OptionError(
            f"Only one of the following options can be specified for Kafka source: {', '.join(names[:3]).lower()}. "
            "See the docs for more details.",
            hint=f"given: {', '.join(chosen)}",
        )
    return given[chosen[0]] if chosen else offsets.NOT_SAID


def _columns(given: GivenReadOptions) -> tuple[str, ...]:
    """Return the columns to read. mode=PERMISSIVE adds all columns about damage, unless `columns` names some."""
    permissive = given["mode"] == "PERMISSIVE"
    known = COLUMN_TYPES | DAMAGE_COLUMN_TYPES if permissive else COLUMN_TYPES
    columns = _known_columns(given, known) or COLUMNS
    if given["includeHeaders"] and "headers" not in columns:
        columns = (*columns, "headers")
    if permissive and not DAMAGE_COLUMN_TYPES.keys() & set(columns):
        columns = (*columns, *DAMAGE_COLUMN_TYPES)
    return columns


def _known_columns(given: GivenReadOptions, known: Iterable[str]) -> tuple[str, ...] | None:
    """Return the columns that the option `columns` names in any case, in its order, spelled as in `known`."""
    names = given["columns"]
    if names is None:
        return None
    by_key = {column.lower(): column for column in known}
    unknown = [name for name in names if name.lower() not in by_key]
    if unknown:
        raise OptionError(
            f"option 'columns': no column '{unknown[0]}'", hint=f"the columns are {', '.join(by_key.values())}"
        )
    chosen = tuple(by_key[name.lower()] for name in names)
    if len(set(chosen)) != len(chosen):
        raise OptionError(f"option 'columns' names a column twice: '{','.join(names)}'")
    return chosen


def _stream_options(given: GivenReadOptions, streaming: bool) -> StreamOptions | None:
    """Return the options of a stream; None for a batch, whose limits are checked as the connector does."""
    if streaming or ("maxOffsetsPerTrigger" in given and "minOffsetsPerTrigger" in given):
        most, least = given["maxOffsetsPerTrigger"], given["minOffsetsPerTrigger"]
        if most is not None and least is not None and least > most:
            raise OptionError(
                f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})."
            )
    commit_group = None
    if "commitGroup" in given:
        commit_group = _commit_group(given, streaming)
    elif given["failOnCommitError"]:
        raise OptionError("option 'failOnCommitError' requires 'commitGroup'")
    if not streaming:
        return None
    limits = RateLimits(**given.fields(RateLimits))
    return StreamOptions(limits, **given.fields(StreamOptions), commit_group=commit_group)


def _commit_group(given: GivenReadOptions, streaming: bool) -> CommitGroup:
    if not streaming:
        raise OptionError(
            "option 'commitGroup' applies to streams only: a batch query keeps no position", hint="use readStream"
        )
    if not given["commitGroup"]:
        raise OptionError("option 'commitGroup' must be the id of a consumer group, got ''")
    if not given.texts.get("kafka.bootstrap.servers"):
        raise OptionError(
            "option 'commitGroup' requires 'kafka.bootstrap.servers': a broker keeps the group's offsets",
            hint="name one: .option('kafka.bootstrap.servers', 'host:9092')",
        )
    settings = librdkafka.connection_settings(given.texts)
    return CommitGroup(given["commitGroup"], settings, given["failOnCommitError"])


def _table_query(given: GivenReadOptions, *, of_topics: bool, streaming: bool) -> TableQuery | None:
    """Return the query of a table by the options `table`, `history` and `columns`; None for records.

    Raises:
        OptionError: For a stream, and for options that do not apply to the table.
    """
    name = given["table"]
    if name == RECORDS:
        if given["history"]:
            raise OptionError(
                "option 'history' applies to tables made of internal topics", hint="name one with option 'table'"
            )
        return None
    if streaming:
        raise OptionError(f"a stream reads records, not the table '{name}'", hint="use spark.read")
    table = TABLES[name]
    if given["replicas"] == "merge":
        raise OptionError(f"replicas=merge applies to records, not to the table '{name}', which is about single files")
    for spec in READ_OPTIONS:
        if spec.of_records and spec.name in given:
            raise OptionError(f"option '{spec.name}' applies to records, not to the table '{name}'")
    for bound in () if table.has_ranges else (*START_OPTIONS, *END_OPTIONS):
        if bound.name in given:
            of = ", ".join(other.name for other in TABLES.values() if other.has_ranges)
            raise OptionError(f"option '{bound.name}' does not narrow the table '{name}'", hint=f"it narrows {of}")
    return replace(
        table_query(name, _known_columns(given, table.columns), of_topics=of_topics, history=given["history"]),
        fail_on_data_loss=given["failOnDataLoss"],
        max_decompressed=given["maxDecompressedBatchBytes"],
    )
