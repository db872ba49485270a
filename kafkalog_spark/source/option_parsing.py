"""Parsing of the options of a read, and checks that they do not contradict each other."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, COLUMNS, DAMAGE_COLUMN_TYPES
from kafkalog_spark.log.decode.scan_request import RecordPredicate
from kafkalog_spark.log.tables.declarations import RECORDS, TABLES, table_query
from kafkalog_spark.log.tables.table import TableQuery
from kafkalog_spark.log.tiered.tier_options import TierOptions, is_tier_option
from kafkalog_spark.options import day_if_seconds
from kafkalog_spark.source.bounds import AT_LATEST, EARLIEST, LATEST, Bound, check_bounds_agree
from kafkalog_spark.source.foreign_options import REFUSED
from kafkalog_spark.source.given_read_options import GivenReadOptions
from kafkalog_spark.source.options import (
    END_OPTIONS,
    READ_OPTIONS,
    START_OPTIONS,
    SUBSCRIPTION_OPTIONS,
    CommitGroup,
    RateLimits,
    ReadOptions,
    StreamOptions,
)
from kafkalog_spark.source.subscription import NO_SUBSCRIPTION, Subscription
from kafkalog_spark.source.topic_partitions import tp_text
from kafkalog_spark.spark import librdkafka
from kafkalog_spark.store.storage_options import StorageOptions, is_storage_option

_log = logging.getLogger(__name__)

_NO_DIRECTORY_HINT = 'name it in .load("/data/kafka-logs")'
_NO_OPTIONS_HINT = (
    f"{_NO_DIRECTORY_HINT}; if this is a table: Spark does not hand a table's options to a source in Python, so use "
    "CREATE TEMPORARY VIEW ... USING kafkalog OPTIONS (path '...', subscribe '...'), or SELECT ... FROM table WITH "
    "('path' = '...', 'subscribe' = '...')"
)


def parse_read_options(
    options: Mapping[str, str] | GivenReadOptions, *, streaming: bool = False, quiet: bool = False
) -> ReadOptions:
    """Parse the options of a read.

    Args:
        options: Options as Spark passes them: names in any case, values perhaps surrounded by blanks. Each option is
            parsed only once, even if a GivenReadOptions is passed for a batch and then for a stream.
        streaming: True for a stream, False for a batch.
        quiet: True to log nothing about options without effect.

    Raises:
        OptionError: For an invalid value, options that exclude each other, an option that the connector refuses, and an
            unknown name, for which the most similar known name is suggested.
    """
    given = options if isinstance(options, GivenReadOptions) else GivenReadOptions(options)
    formats = given.formats.by_side
    ignored = given.ignored(streaming)
    values = given.fields(ReadOptions)
    start = given.first_of(START_OPTIONS, AT_LATEST if streaming else None)
    end = AT_LATEST if streaming else given.first_of(END_OPTIONS)
    _check_rules(given, streaming)
    if streaming:
        _check_stream(given)
    else:
        _check_batch_bounds(start, end)
    subscription = _subscription(given)
    for name, why in REFUSED.items():
        if name in given:
            raise OptionError(why)
    table = _table_query(given, of_topics=subscription.is_given, streaming=streaming)
    if table is not None and formats:
        raise OptionError(f"option '{next(iter(formats))}.format' applies to records, not to the table '{table.table_name}'")
    paths = given["path"] or given["paths"]
    if paths is None:
        raise OptionError("no log directory is given", hint=_NO_DIRECTORY_HINT if given.names else _NO_OPTIONS_HINT)
    level, kafka_level = given["isolationLevel"], given["kafka.isolation.level"]
    if kafka_level not in (None, level) and "isolationLevel" in given:
        raise OptionError(f"option 'isolationLevel' is {level}, but 'kafka.isolation.level' is {kafka_level}")
    if streaming and formats and given["mode"] == "PERMISSIVE":
        values["mode"] = "FAILFAST"
    values |= {
        "columns": _columns(given) if table is None else table.columns,
        "isolation_level": kafka_level or level,
        "table": table,
        "wanted": _record_predicate(given),
    }
    result = ReadOptions(
        **values,
        paths=paths,
        storage=StorageOptions.of(given.select(is_storage_option)),
        tier=TierOptions.of(given.select(is_tier_option)),
        subscription=subscription,
        start=start,
        end=end,
        formats=formats,
        stream=_stream_options(given, streaming),
        ignored=ignored,
    )
    if not quiet:
        warn_about_options(ignored, start, end)
    return result


def warn_about_options(ignored: Iterable[str], start: Bound, end: Bound) -> None:
    """Log the options without effect, and timestamps that were probably given in seconds.

    Args:
        ignored: Names of options without effect.
        start: Start of the read.
        end: End of the read.
    """
    if names := ", ".join(ignored):
        _log.warning("options without effect on kafkalog: %s", names)
    for name, bound, read in (("startingTimestamp", start, "everything"), ("endingTimestamp", end, "nothing")):
        if bound.by_time and (day := day_if_seconds(bound.of_all)) is not None:
            text = "%s=%d is in %s, so %s is read: the unit is milliseconds, not seconds"
            _log.warning(text, name, bound.of_all, day, read)


def _check_rules(given: GivenReadOptions, streaming: bool) -> None:
    """Check the given options by the rules of their declarations, except `records_only`: see `_table_query`."""
    for spec in (spec for spec in READ_OPTIONS if spec.name in given):
        if streaming and spec.batch_only:
            raise OptionError(
                f"option '{spec.name}' applies to batch queries only: {spec.batch_only}", hint="use spark.read"
            )
        for name in spec.excludes:
            if name in given:
                raise OptionError(f"options '{spec.name}' and '{name}' are both given", hint=spec.hint.format(name))


def _check_stream(given: GivenReadOptions) -> None:
    """Refuse options of batch queries, except those that OptionSpec.batch_only declares."""
    if given["mode"] == "PERMISSIVE" and not given.formats.by_side:
        raise OptionError(
            "mode=PERMISSIVE applies to batch queries only: a stream does not read a damaged part of a log again",
            hint="mode=DROPMALFORMED skips damage and logs it; read the skipped parts with spark.read",
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


def _check_batch_bounds(start: Bound, end: Bound) -> None:
    """Refuse a start at latest and an end at earliest, with the connector's messages, and bounds that disagree."""
    if start.of_all == LATEST and not start.by_time:
        raise OptionError("starting offset can't be latest for batch queries on Kafka")
    if name := _first_with_offset(start, LATEST):
        raise OptionError(f"startingOffsets for {name} can't be latest for batch queries on Kafka")
    if end.of_all == EARLIEST and not end.by_time:
        raise OptionError("ending offset can't be earliest for batch queries on Kafka")
    if name := _first_with_offset(end, EARLIEST):
        raise OptionError(f"ending offset for {name} can't be earliest for batch queries on Kafka")
    check_bounds_agree(start, end)


def _first_with_offset(bound: Bound, offset: int) -> str | None:
    """Return the first partition or topic that has this offset in a bound; None if there is none."""
    if bound.by_time:
        return None
    partitions = (tp_text(tp) for tp, number in sorted(bound.partitions.items()) if number == offset)
    topics = (topic for topic, number in sorted(bound.topics.items()) if number == offset)
    return next(chain(partitions, topics), None)


def _subscription(given: GivenReadOptions) -> Subscription:
    names = [spec.name for spec in SUBSCRIPTION_OPTIONS]
    chosen = [name for name in names if name in given and given[name].is_given]
    if len(chosen) > 1:
        raise OptionError(
            f"Only one of the following options can be specified for Kafka source: {', '.join(names[:3]).lower()}. "
            "See the docs for more details.",
            hint=f"given: {', '.join(chosen)}",
        )
    return given[chosen[0]] if chosen else NO_SUBSCRIPTION


def _record_predicate(given: GivenReadOptions) -> RecordPredicate:
    """Return the conditions of the options `where.*`."""
    key, key_hex, header = given["where.key"], given["where.key.hex"], given["where.header"]
    return RecordPredicate(
        key_hex if key is None else key,
        given["where.key.prefix"],
        given["where.value.contains"],
        None if header is None else header.name,
        None if header is None else header.value,
    )


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
        if spec.records_only and spec.name in given:
            raise OptionError(f"option '{spec.name}' applies to records, not to the table '{name}'")
    for bound in () if table.has_ranges else (*START_OPTIONS, *END_OPTIONS):
        if bound.name in given:
            narrowed = ", ".join(other.name for other in TABLES.values() if other.has_ranges)
            raise OptionError(
                f"option '{bound.name}' does not narrow the table '{name}'", hint=f"it narrows {narrowed}"
            )
    return replace(
        table_query(name, _known_columns(given, table.columns), of_topics=of_topics, history=given["history"]),
        fail_on_data_loss=given["failOnDataLoss"],
        max_decompressed=given["maxDecompressedBatchBytes"],
    )
