"""The options of a read: every one declared once, the values that they become (ReadOptions), and the way from text to
values, `parse_read_options`.

Names, defaults, precedence and messages are those of Spark's Kafka connector (KafkaSourceProvider), down to `Ours`, so
that a job moves by changing the format name. docs/options.md says what each option means; a test holds its names and
defaults against the declarations.
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
from kafkalog_spark.source.foreign_options import CONNECTOR_ONLY, OF_SPARK, OTHER_NAMES, REFUSED
from kafkalog_spark.spark import librdkafka
from kafkalog_spark.store.interface import is_local, normalised
from kafkalog_spark.store.storage_options import StorageOptions, is_storage_option
from kafkalog_spark.typed.formats import FORMATS, ResolvedFormat, check_options, format_name, option_names

NoMatch = Literal["error", "latest"]

_log = logging.getLogger(__name__)


def _column_names(name: str, text: str) -> tuple[str, ...]:
    """Column names, by comma, as they are given: which there are depends on the table."""
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
    """(Name, value); the first = ends the name. Value None: any."""
    header, equals, value = text.partition("=")
    return _search_text(name, header), _search_text(name, value) if equals else None


def _location(name: str, text: str) -> str:
    """A local path as it is given, `file:` taken off; or the URL of a directory in an object store, normalised."""
    if is_local(text) or text[:5].lower() == "file:":
        return local_path(name, text, "it names no directory of this machine, and no bucket")
    return normalised(text)


def _paths(name: str, text: str) -> tuple[str, ...]:
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

_TYPO_RATIO = 0.85  # difflib's; "kafka.isolationLevel" is 0.95 from "kafka.isolation.level", Kafka's own are below 0.7
_isolation_level = choice("read_uncommitted", "read_committed")
_mode = choice("FAILFAST", "DROPMALFORMED", "PERMISSIVE")

_OTHER_OPTIONS = (
    OptionSpec("path", _paths, excludes=("paths",), hint="name all directories in .load(...)"),
    OptionSpec("paths", _paths),  # what Spark makes of .load(["/a", "/b"])
    OptionSpec("includeHeaders", boolean, "false", of_records=True),
    OptionSpec("kafka.isolation.level", _isolation_level, of_records=True),
    OptionSpec("history", boolean, "false"),
    # all that are given must hold; a null matches none of them
    OptionSpec("where.key", _search_text, of_records=True, excludes=("where.key.hex",), hint="a record has one key"),
    OptionSpec("where.key.hex", _search_hex, of_records=True),
    OptionSpec("where.key.prefix", _search_text, of_records=True),
    OptionSpec("where.value.contains", _search_text, of_records=True),
    OptionSpec("where.header", _search_header, of_records=True),
    # those of formats are parsed with the options of the formats
    *(OptionSpec(name, plain_text) for name in ("value.format", "key.format", "value.mode", "key.mode")),
    OptionSpec("commitGroup", plain_text),
    OptionSpec("failOnCommitError", boolean, "false"),
)
"""Options that are no field of ReadOptions by themselves."""


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
    limits: RateLimits
    max_trigger_delay_ms: int = option("maxTriggerDelay", duration_ms, "15m")
    commit_group: CommitGroup | None = None


_STREAM_OPTIONS = (*specs_of(RateLimits), *specs_of(StreamOptions))


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of a read, parsed. Plain values, picklable.

    `paths`: directories as given, local ones perhaps relative. `columns`: names in the order of the result. `table`:
    None for records. `wanted`: what they must hold. `formats`: what values and keys are decoded as, by side.
    `max_partition_bytes`, `max_decompressed_batch_bytes`: bytes. `stream`: None for a batch. `ignored`: names, as
    given, of options that have no effect here.
    """

    paths: tuple[str, ...]
    storage: StorageOptions
    tier: TierOptions
    subscription: offsets.Subscription
    start: offsets.Bound
    end: offsets.Bound
    on_no_match: NoMatch = option("startingOffsetsByTimestampStrategy", choice("error", "latest"), "error")
    min_partitions: int | None = option("minPartitions", positive_int)
    max_records_per_partition: int | None = option("maxRecordsPerPartition", positive_long, of_records=True)
    fail_on_data_loss: bool = option("failOnDataLoss", boolean, "true")
    # Ours
    isolation_level: Literal["read_uncommitted", "read_committed"] = option(
        "isolationLevel", _isolation_level, "read_uncommitted", of_records=True
    )
    columns: tuple[str, ...] = option("columns", _column_names)
    table: TableQuery | None = option("table", choice(RECORDS, *TABLES), RECORDS)
    max_partition_bytes: int = option("maxPartitionBytes", byte_size, "128m")
    max_scan_bytes: int | None = option("maxScanBytes", byte_size)
    tail: int | None = option(
        "tail",
        positive_long,
        of_records=True,
        batch_only="a stream has no last records",
        # the tasks find where the last records begin: before, nothing is known of their bytes or offsets
        excludes=("maxScanBytes", "maxRecordsPerPartition", "minPartitions"),
        hint="leave '{}' out: a tail is read by one task a partition, and from its end",
    )
    max_decompressed_batch_bytes: int = option("maxDecompressedBatchBytes", byte_size, "64m")
    replicas: Replicas = option("replicas", choice(*REPLICAS), "longest")
    pushdown: Literal["auto", "true", "false"] = option("pushdown", choice("auto", "true", "false"), "auto")
    mode: Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"] = option("mode", _mode, "FAILFAST", of_records=True)
    wanted: RecordPredicate
    formats: Mapping[str, ResolvedFormat]
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
    def most_records(self) -> int | None:
        """Records of each partition that are read at most: one task counts them, and estimates go by it. None: all."""
        return self.tail

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"


READ_OPTIONS = (
    *SUBSCRIPTION_OPTIONS,
    *START_OPTIONS,
    *END_OPTIONS,
    *specs_of(ReadOptions),
    *_OTHER_OPTIONS,
    *TIER_OPTIONS,
    *_STREAM_OPTIONS,
)
_NAMES = frozenset(spec.name.lower() for spec in READ_OPTIONS)

ONLY_OF_READS = frozenset(
    _NAMES - {"path"} | {name.lower() for name in CONNECTOR_ONLY if not name.startswith("kafka.")}
)
"""Names that have no meaning in a write, in small letters."""

NO_DIRECTORY = 'name it in .load("/data/kafka-logs")'
NO_OPTIONS = (
    f"{NO_DIRECTORY}; if this is a table: Spark does not hand a table's options to a source in Python, so use "
    "CREATE TEMPORARY VIEW ... USING kafkalog OPTIONS (path '...', subscribe '...'), or SELECT ... FROM table WITH "
    "('path' = '...', 'subscribe' = '...')"
)


def parse_read_options(
    options: Mapping[str, str] | GivenReadOptions, *, streaming: bool = False, quiet: bool = False
) -> ReadOptions:
    """Options as Spark hands them over; names in any case, values trimmed. Each is parsed once for batch and stream.

    Raises OptionError for values that cannot be used, or not together, for the five that the connector refuses, and for
    unknown names, with the nearest one. Options without effect are in `ignored`, and logged in a line unless `quiet`.
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
        raise OptionError(f"option '{next(iter(formats))}.format' is of records, not of the table '{table.table}'")
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
        """(formats of values and keys by side, not resolved yet; the names in small letters that they use).

        An option of a format is given with the prefix `value.` or `key.`, or without it, for both, where it means
        nothing else. `mode` is about values too where one of them has a format; `value.mode` and `key.mode` are about
        nothing else. Raises OptionError for a format that there is not, and for an option that none has.
        """
        used: set[str] = set()
        formats: dict[str, ResolvedFormat] = {}
        for side in ("value", "key"):
            name = self.texts.get(f"{side}.format")
            prefixed = self.of_side(side)
            if name is None:
                if prefixed:
                    raise OptionError(
                        f"option '{self.names[f'{side}.{next(iter(prefixed))}']}' is of a format, and option "
                        f"'{side}.format' is not given",
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
        """The value of the first option that is given, or `otherwise`, or the last one's default."""
        chosen = next((spec.name for spec in options if spec.name in self), None)
        return otherwise if chosen is None and otherwise is not None else self[chosen or options[-1].name]

    def ignored(self, streaming: bool) -> tuple[str, ...]:
        """Names without effect, in the order given. Raises OptionError for a name that there is not."""
        used = _NAMES | REFUSED.keys()
        without_effect = {name.lower() for name in (*CONNECTOR_ONLY, *OF_SPARK)}
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
                raise unknown_option(name, [*(spec.name for spec in READ_OPTIONS), *CONNECTOR_ONLY], OTHER_NAMES)
            result.append(name)
        return tuple(result)


def _check_rules(given: GivenReadOptions, streaming: bool) -> None:
    """Hold what is given against the rules of its declarations, but those of tables."""
    for spec in (spec for spec in READ_OPTIONS if spec.name in given):
        if streaming and spec.batch_only:
            raise OptionError(f"option '{spec.name}' is of batch queries: {spec.batch_only}", hint="use spark.read")
        for name in spec.excludes:
            if name in given:
                raise OptionError(f"options '{spec.name}' and '{name}' are both given", hint=spec.hint.format(name))


def _check_stream(given: GivenReadOptions) -> None:
    if given["mode"] == "PERMISSIVE" and not given.formats[0]:
        raise OptionError(
            "mode=PERMISSIVE is of batch queries: a stream would never come back to what it has reported",
            hint="mode=DROPMALFORMED passes over damage and logs it; read what is lost with spark.read",
        )
    if given["replicas"] == "merge":
        raise OptionError(
            "replicas=merge is of batch queries: it is for directories that no broker writes to",
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
    """With mode=PERMISSIVE those about damage too: the ones that `columns` names, or all of them at the end."""
    permissive = given["mode"] == "PERMISSIVE"
    known = COLUMN_TYPES | DAMAGE_COLUMN_TYPES if permissive else COLUMN_TYPES
    columns = _known_columns(given, known) or COLUMNS
    if given["includeHeaders"] and "headers" not in columns:
        columns = (*columns, "headers")
    if permissive and not DAMAGE_COLUMN_TYPES.keys() & set(columns):
        columns = (*columns, *DAMAGE_COLUMN_TYPES)
    return columns


def _known_columns(given: GivenReadOptions, known: Iterable[str]) -> tuple[str, ...] | None:
    """Those of option `columns`, in any case, in the order given, spelled as in `known`."""
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
    """A batch is checked as by the connector: two limits, both given, must be in order."""
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
        raise OptionError("option 'failOnCommitError' is given, and no 'commitGroup' that could be committed to")
    if not streaming:
        return None
    limits = RateLimits(**given.fields(RateLimits))
    return StreamOptions(limits, **given.fields(StreamOptions), commit_group=commit_group)


def _commit_group(given: GivenReadOptions, streaming: bool) -> CommitGroup:
    if not streaming:
        raise OptionError(
            "option 'commitGroup' is of streams: a batch has no offsets that it goes on from", hint="use readStream"
        )
    if not given["commitGroup"]:
        raise OptionError("option 'commitGroup' must be the id of a consumer group, got ''")
    if not given.texts.get("kafka.bootstrap.servers"):
        raise OptionError(
            "option 'commitGroup' needs 'kafka.bootstrap.servers': a group's offsets are kept by a broker",
            hint="name one: .option('kafka.bootstrap.servers', 'host:9092')",
        )
    settings = librdkafka.connection_settings(given.texts)
    return CommitGroup(given["commitGroup"], settings, given["failOnCommitError"])


def _table_query(given: GivenReadOptions, *, of_topics: bool, streaming: bool) -> TableQuery | None:
    """Table query of the options `table`, `history` and `columns`; None for records.

    Raises OptionError for a stream, and for an option that the table gives no meaning.
    """
    name = given["table"]
    if name == RECORDS:
        if given["history"]:
            raise OptionError("option 'history' is of tables made of internal topics", hint="name one: option 'table'")
        return None
    if streaming:
        raise OptionError(f"a stream reads records, not the table '{name}'", hint="use spark.read")
    table = TABLES[name]
    if given["replicas"] == "merge":
        raise OptionError(f"replicas=merge is of records, not of the table '{name}', which is about single files")
    for spec in READ_OPTIONS:
        if spec.of_records and spec.name in given:
            raise OptionError(f"option '{spec.name}' is about records; the table '{name}' has none")
    for bound in () if table.has_ranges else (*START_OPTIONS, *END_OPTIONS):
        if bound.name in given:
            of = ", ".join(other.name for other in TABLES.values() if other.has_ranges)
            raise OptionError(f"option '{bound.name}' does not narrow the table '{name}'", hint=f"it narrows {of}")
    return replace(
        table_query(name, _known_columns(given, table.columns), of_topics=of_topics, history=given["history"]),
        fail_on_data_loss=given["failOnDataLoss"],
        max_decompressed=given["maxDecompressedBatchBytes"],
    )
