"""The options of a read, from text to values: `parse_read_options`.

Names, defaults, precedence and messages are those of Spark's Kafka connector (KafkaSourceProvider), so that a job moves
by changing the format name. Each option is declared in option_spec.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, COLUMNS, DAMAGE_COLUMN_TYPES, RecordPredicate
from kafkalog_spark.log.tables.table import RECORDS, TABLES
from kafkalog_spark.log.tables.table_query import TableQuery, table_query
from kafkalog_spark.log.tiered.tier_options import TierOptions, is_tier_option
from kafkalog_spark.options import GivenOptions, OptionSpec, choice, is_nearly, specs_of, unknown_option
from kafkalog_spark.source import offsets
from kafkalog_spark.source import option_spec as spec
from kafkalog_spark.source.option_spec import (
    CommitGroup,
    FormatOptions,
    IsolationLevel,
    RateLimits,
    ReadOptions,
    StreamOptions,
)
from kafkalog_spark.spark import librdkafka
from kafkalog_spark.store.storage_options import StorageOptions, is_storage_option
from kafkalog_spark.typed.decoder import FORMATS, check_options, format_name, option_names

NO_DIRECTORY = 'name it in .load("/data/kafka-logs")'
NO_OPTIONS = (
    f"{NO_DIRECTORY}; if this is a table: Spark does not hand a table's options to a source in Python, so use "
    "CREATE TEMPORARY VIEW ... USING kafkalog OPTIONS (path '...', subscribe '...'), or SELECT ... FROM table WITH "
    "('path' = '...', 'subscribe' = '...')"
)
_NAMES = frozenset(option.name.lower() for option in spec.READ_OPTIONS)

_BOOTSTRAP = "kafka.bootstrap.servers"
_CONNECTION_SETTINGS = (
    "bootstrap.servers", "client.id", "enable.ssl.certificate.verification", "security.", "sasl.", "ssl.", "socket.",
    "broker.address.", "receive.buffer.bytes", "send.buffer.bytes",
)  # fmt: skip
"""Names, and beginnings of names, of settings that say how a client connects, in Java's words or librdkafka's. What
else a consumer has (`max.poll.records`, `fetch.min.bytes` ...) is about fetching, and nothing is fetched."""

_log = logging.getLogger(__name__)


def parse_read_options(
    options: Mapping[str, str] | GivenReadOptions, *, streaming: bool = False, quiet: bool = False
) -> ReadOptions:
    """Options as Spark hands them over; names in any case, values trimmed. What is given is parsed once, for a batch
    and a stream together.

    Raises OptionError for a value that cannot be used, for options that contradict each other, for the five that the
    connector refuses, and for an unknown name, with the nearest one. Options without effect are kept in `ignored`, and
    logged in one line unless `quiet`.
    """
    given = options if isinstance(options, GivenReadOptions) else GivenReadOptions(options)
    formats, _ = given.formats
    ignored = given.ignored(streaming)
    values = given.fields(ReadOptions)
    extra = {option.name: given.value(option) for option in spec.OTHER_OPTIONS}
    start = given.first_of(spec.START_OPTIONS, offsets.Latest() if streaming else None)
    end = offsets.Latest() if streaming else given.first_of(spec.END_OPTIONS)
    if streaming:
        _check_stream(given, values)
    else:
        _check_batch_bounds(start, end)
    subscription = _subscription(given)
    limits = _rate_limits(given, streaming)
    for name, why in spec.REFUSED.items():
        if given.has(name):
            raise OptionError(why)
    table = _table_query(given, values, subscription, history=extra["history"], streaming=streaming)
    if table is not None and formats:
        raise OptionError(f"option '{next(iter(formats))}.format' is of records, not of the table '{table.table}'")
    values |= {
        "paths": _paths(given, extra),
        "columns": _columns(values, with_headers=extra["includeHeaders"]) if table is None else table.columns,
        "isolation_level": _isolation_level(given, values["isolation_level"], extra["kafka.isolation.level"]),
        "tail": _tail(given, values["tail"], streaming),
        "table": table,
    }
    if streaming and formats and values["mode"] == "PERMISSIVE":
        values["mode"] = "FAILFAST"
    result = ReadOptions(
        **values,
        storage=given.storage,
        tier=given.tier,
        subscription=subscription,
        start=start,
        end=end,
        wanted=_wanted_records(given),
        formats=formats,
        stream=_stream_options(given, limits, streaming),
        ignored=ignored,
    )
    if not quiet:
        warn_of(ignored)
        _warn_of_seconds(start)
    return result


SECONDS_SINCE = 978_307_200_000
"""2001-01-01 in ms: before any Kafka, and after every time in seconds until the year 32970."""


def _warn_of_seconds(start: offsets.Bound) -> None:
    if isinstance(start, offsets.GlobalTimestamp) and 0 < start.timestamp < SECONDS_SINCE:
        day = datetime.fromtimestamp(start.timestamp / 1000, UTC).date()
        _log.warning(
            "startingTimestamp=%d is in %s, so everything is read: it is in milliseconds, not in seconds",
            start.timestamp,
            day,
        )


def warn_of(ignored: Iterable[str]) -> None:
    """Log options without effect, in one line; nothing for none."""
    if names := ", ".join(ignored):
        _log.warning("options without effect on kafkalog: %s", names)


class GivenReadOptions(GivenOptions):
    """The options of a read as given; each is parsed once."""

    @cached_property
    def storage(self) -> StorageOptions:
        return StorageOptions.of(self.named(is_storage_option))

    @cached_property
    def tier(self) -> TierOptions:
        return TierOptions.of(self.named(is_tier_option))

    @cached_property
    def formats(self) -> tuple[dict[str, FormatOptions], frozenset[str]]:
        """(formats of values and keys by side, the names in small letters that they use).

        An option of a format is given with the prefix `value.` or `key.`, or without it, for both, where it means
        nothing else. `mode` is about values too where one of them has a format; `value.mode` and `key.mode` are about
        nothing else. Raises OptionError for a format that there is not, for an option of a format where none is named,
        and for a prefixed one that the format has not.
        """
        used: set[str] = set()
        formats: dict[str, FormatOptions] = {}
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
            mode_option = f"{side}.mode" if self.has(f"{side}.mode") else "mode"
            mode = _value_mode(mode_option, self.texts.get(mode_option, "PERMISSIVE"))
            used.update(shared, (f"{side}.{option}" for option in (*own, "format", "mode")))
            formats[side] = FormatOptions(side, name, shared | own, mode)
        return formats, frozenset(used)

    def first_of(self, options: tuple[OptionSpec, ...], otherwise: offsets.Bound | None = None) -> Any:
        """The value of the first option that is given, or `otherwise`, or the last one's default."""
        for option in options:
            if option in self:
                return self.value(option)
        return self.value(options[-1]) if otherwise is None else otherwise

    def ignored(self, streaming: bool) -> tuple[str, ...]:
        """Names without effect, in the order given. Raises OptionError for a name that there is not."""
        used = _NAMES | spec.REFUSED.keys()
        without_effect = {name.lower() for name in (*spec.CONNECTOR_ONLY, *spec.OF_SPARK)}
        no_effect = {"endingtimestamp"} if streaming else {option.name.lower() for option in spec.STREAM_OPTIONS}
        result = []
        for key, name in self.names.items():
            if (
                (key in used and key not in no_effect)
                or key in self.formats[1]
                or (self.has("commitGroup") and _of_a_connection(key))
                or is_storage_option(key)
                or is_tier_option(key)
                or self.is_table_property(key)
            ):
                continue
            if key not in used | without_effect:
                _check_known(key, name)
            result.append(name)
        return tuple(result)


_value_mode = choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST")


def _check_known(key: str, name: str) -> None:
    if key.startswith("kafka."):
        isolation_level = "kafka.isolation.level"  # the only consumer setting that changes the result
        if is_nearly(key, isolation_level):
            raise unknown_option(name, [isolation_level], {})
        return
    raise unknown_option(name, [*(option.name for option in spec.READ_OPTIONS), *spec.CONNECTOR_ONLY], spec.OTHER_NAMES)


def _check_stream(given: GivenReadOptions, values: Mapping[str, Any]) -> None:
    _, by_timestamp, by_offset = spec.END_OPTIONS
    if values["mode"] == "PERMISSIVE" and not given.formats[0]:
        raise OptionError(
            "mode=PERMISSIVE is of batch queries: a stream would never come back to what it has reported",
            hint="mode=DROPMALFORMED passes over damage and logs it; read what is lost with spark.read",
        )
    if values["replicas"] == "merge":
        raise OptionError(
            "replicas=merge is of batch queries: it is for directories that no broker writes to",
            hint="replicas=longest follows the copy of the leader",
        )
    if by_offset in given:
        raise OptionError("ending offset not valid in streaming queries")
    if by_timestamp in given:
        raise OptionError("ending timestamp not valid in streaming queries")


def _check_batch_bounds(start: offsets.Bound, end: offsets.Bound) -> None:
    if isinstance(start, offsets.Latest):
        raise OptionError("starting offset can't be latest for batch queries on Kafka")
    for where in _partitions_at(start, offsets.LATEST):
        raise OptionError(f"startingOffsets for {where} can't be latest for batch queries on Kafka")
    if isinstance(end, offsets.Earliest):
        raise OptionError("ending offset can't be earliest for batch queries on Kafka")
    for where in _partitions_at(end, offsets.EARLIEST):
        raise OptionError(f"ending offset for {where} can't be earliest for batch queries on Kafka")
    offsets.check_bounds_agree(start, end)


def _partitions_at(bound: offsets.Bound, sentinel: int) -> list[str]:
    if not isinstance(bound, offsets.SpecificOffsets):
        return []
    partitions = [offsets.tp_text(tp) for tp, offset in sorted(bound.offsets.items()) if offset == sentinel]
    return partitions + [topic for topic, offset in sorted(bound.topics.items()) if offset == sentinel]


def _subscription(given: GivenReadOptions) -> offsets.Subscription:
    chosen = [
        option for option in spec.SUBSCRIPTION_OPTIONS if option in given and given.value(option) != offsets.NotSaid()
    ]
    if len(chosen) > 1:
        names = ", ".join(option.name.lower() for option in spec.SUBSCRIPTION_OPTIONS[:3])
        raise OptionError(
            f"Only one of the following options can be specified for Kafka source: {names}. "
            "See the docs for more details.",
            hint=f"given: {', '.join(option.name for option in chosen)}",
        )
    return given.value(chosen[0]) if chosen else offsets.NotSaid()


def _paths(given: GivenReadOptions, extra: Mapping[str, Any]) -> tuple[str, ...]:
    if extra["path"] is not None and extra["paths"] is not None:
        raise OptionError("options 'path' and 'paths' are both given", hint="name all directories in .load(...)")
    paths: tuple[str, ...] | None = extra["path"] or extra["paths"]
    if paths is None:
        raise OptionError("no log directory is given", hint=NO_DIRECTORY if given.names else NO_OPTIONS)
    return paths


def _columns(values: Mapping[str, Any], *, with_headers: bool) -> tuple[str, ...]:
    """With mode=PERMISSIVE those about damage too: the ones that `columns` names, or all of them at the end."""
    permissive = values["mode"] == "PERMISSIVE"
    known = COLUMN_TYPES | DAMAGE_COLUMN_TYPES if permissive else COLUMN_TYPES
    columns = COLUMNS if values["columns"] is None else spec.known_columns(values["columns"], known)
    if with_headers and "headers" not in columns:
        columns = (*columns, "headers")
    if permissive and not DAMAGE_COLUMN_TYPES.keys() & set(columns):
        columns = (*columns, *DAMAGE_COLUMN_TYPES)
    return columns


def _isolation_level(given: GivenReadOptions, ours: IsolationLevel, kafkas: IsolationLevel | None) -> IsolationLevel:
    if kafkas is None or kafkas == ours:
        return ours
    if given.has("isolationLevel"):
        raise OptionError(f"option 'isolationLevel' is {ours}, but 'kafka.isolation.level' is {kafkas}")
    return kafkas


def _wanted_records(given: GivenReadOptions) -> RecordPredicate:
    key, key_hex, prefix, part, header = (given.value(option) for option in spec.SEARCH_OPTIONS)
    if key is not None and key_hex is not None:
        raise OptionError("options 'where.key' and 'where.key.hex' are both given", hint="a record has one key")
    name, value = header or (None, None)
    return RecordPredicate(key if key_hex is None else key_hex, prefix, part, name, value)


def _tail(given: GivenReadOptions, tail: int | None, streaming: bool) -> int | None:
    if tail is None:
        return None
    if streaming:
        raise OptionError("option 'tail' is of batch queries: a stream has no last records", hint="use spark.read")
    # Where the last records begin is found by the tasks: nothing is known of their bytes or offsets before.
    for name in ("maxScanBytes", "maxRecordsPerPartition", "minPartitions"):
        if given.has(name):
            raise OptionError(
                f"options 'tail' and '{name}' are both given",
                hint=f"leave '{name}' out: a tail is read by one task a partition, and from its end",
            )
    return tail


def _rate_limits(given: GivenReadOptions, streaming: bool) -> RateLimits:
    """Limits of a stream. A batch is checked as by the connector: two limits, both given, must be in order."""
    if streaming:
        limits = RateLimits(**given.fields(RateLimits))
    elif given.has("maxOffsetsPerTrigger") and given.has("minOffsetsPerTrigger"):
        limits = RateLimits(*(given.value(option) for option in specs_of(RateLimits)[:2]))
    else:
        return RateLimits()
    if limits.max_offsets is not None and limits.min_offsets is not None and limits.min_offsets > limits.max_offsets:
        raise OptionError(
            f"The value of minOffsetPerTrigger({limits.min_offsets}) is higher than the "
            f"maxOffsetsPerTrigger({limits.max_offsets})."
        )
    return limits


def _stream_options(given: GivenReadOptions, limits: RateLimits, streaming: bool) -> StreamOptions | None:
    group, fail = given.value(spec.COMMIT_GROUP), given.value(spec.FAIL_ON_COMMIT_ERROR)
    commit_group = None
    if group is not None:
        commit_group = _commit_group(given, group, fail, streaming)
    elif fail:
        raise OptionError("option 'failOnCommitError' is given, and no 'commitGroup' that could be committed to")
    return StreamOptions(limits, **given.fields(StreamOptions), commit_group=commit_group) if streaming else None


def _commit_group(given: GivenReadOptions, group: str, fail: bool, streaming: bool) -> CommitGroup:
    if not streaming:
        raise OptionError(
            "option 'commitGroup' is of streams: a batch has no offsets that it goes on from", hint="use readStream"
        )
    if not group:
        raise OptionError("option 'commitGroup' must be the id of a consumer group, got ''")
    if not given.texts.get(_BOOTSTRAP):
        raise OptionError(
            f"option 'commitGroup' needs '{_BOOTSTRAP}': a group's offsets are kept by a broker",
            hint=f"name one: .option('{_BOOTSTRAP}', 'host:9092')",
        )
    settings: dict[str, str] = {}
    translated: dict[str, str] = {}
    for key, text in given.texts.items():
        if _of_a_connection(key):
            name = key.removeprefix("kafka.")
            as_in_librdkafka = librdkafka.translated(name, text)
            if as_in_librdkafka is None:
                settings[name] = text
            else:
                translated |= as_in_librdkafka
    return CommitGroup(group, translated | settings, fail)


def _of_a_connection(key: str) -> bool:
    """True if an option, its name in small letters, says how the broker of commitGroup is reached."""
    return key.startswith("kafka.") and key.removeprefix("kafka.").startswith(_CONNECTION_SETTINGS)


# What would change which records are read, or how.
_OF_RECORDS = (
    "includeHeaders", "isolationLevel", "kafka.isolation.level", "mode", "tail", "maxRecordsPerPartition",
    *(option.name for option in spec.SEARCH_OPTIONS),
)  # fmt: skip


def _table_query(
    given: GivenReadOptions,
    values: Mapping[str, Any],
    subscription: offsets.Subscription,
    *,
    history: bool,
    streaming: bool,
) -> TableQuery | None:
    """Table query of the options `table`, `history` and `columns`; None for records.

    Raises OptionError for a stream, and for an option that the table gives no meaning.
    """
    name = values["table"]
    if name == RECORDS:
        if history:
            raise OptionError("option 'history' is of tables made of internal topics", hint="name one: option 'table'")
        return None
    if streaming:
        raise OptionError(f"a stream reads records, not the table '{name}'", hint="use spark.read")
    table = TABLES[name]
    if values["replicas"] == "merge":
        raise OptionError(f"replicas=merge is of records, not of the table '{name}', which is about single files")
    for option in _OF_RECORDS:
        if given.has(option):
            raise OptionError(f"option '{option}' is about records; the table '{name}' has none")
    if not table.has_ranges:
        for bound in (*spec.START_OPTIONS, *spec.END_OPTIONS):
            if bound in given:
                of = ", ".join(other.name for other in TABLES.values() if other.has_ranges)
                raise OptionError(f"option '{bound.name}' does not narrow the table '{name}'", hint=f"it narrows {of}")
    columns = None if values["columns"] is None else spec.known_columns(values["columns"], list(table.columns))
    query = table_query(name, columns, of_topics=subscription != offsets.NotSaid(), history=history)
    return replace(
        query,
        fail_on_data_loss=values["fail_on_data_loss"],
        max_decompressed=values["max_decompressed_batch_bytes"],
    )
