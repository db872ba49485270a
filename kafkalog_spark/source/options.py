"""The options of a read, from text to values: `parse_read_options`.

Names, defaults, precedence and messages are those of Spark's Kafka connector (KafkaSourceProvider), so that a job moves
by changing the format name. Each option is declared in option_spec.py.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, COLUMNS, DAMAGE_COLUMN_TYPES, RecordPredicate
from kafkalog_spark.log.read.replicas import Replicas
from kafkalog_spark.log.tables.table_query import TableQuery
from kafkalog_spark.log.tiered.tier_options import TierOptions, is_tier_option
from kafkalog_spark.options import GivenOptions, OptionSpec, choice, is_nearly, unknown_option
from kafkalog_spark.source.offsets import (
    EARLIEST,
    LATEST,
    Bound,
    Earliest,
    Latest,
    NotSaid,
    SpecificOffsets,
    Subscription,
    check_bounds_agree,
    tp_text,
)
from kafkalog_spark.source.option_spec import (
    CONNECTOR_ONLY,
    END_OPTIONS,
    GROUP_OPTIONS,
    OF_SPARK,
    OTHER_NAMES,
    PLAIN_OPTIONS,
    RATE_OPTIONS,
    READ_OPTIONS,
    REFUSED,
    SEARCH_OPTIONS,
    START_OPTIONS,
    SUBSCRIPTION_OPTIONS,
    known_columns,
    options_table,
    table_query,
)
from kafkalog_spark.source.partition_bounds import NoMatch
from kafkalog_spark.spark import librdkafka
from kafkalog_spark.store.storage_options import StorageOptions, is_storage_option
from kafkalog_spark.typed.decoder import FORMATS, check_options, format_name, option_names

# The options of a search: which records a read is about, by what they hold.


def wanted_records(given: GivenOptions) -> RecordPredicate:
    """Search of the options where.*. Raises OptionError for two of a record's one key."""
    key, key_hex, prefix, part, header = (given.value(option) for option in SEARCH_OPTIONS)
    if key is not None and key_hex is not None:
        raise OptionError("options 'where.key' and 'where.key.hex' are both given", hint="a record has one key")
    name, value = (None, None) if header is None else header
    return RecordPredicate(key if key_hex is None else key_hex, prefix, part, name, value)


# Options of a read about what values and keys hold: value.format, key.format, and those of the formats.
#
# An option of a format is given with the prefix `value.` or `key.`, or without it, for both. `mode` is about values
# too where one of them has a format; `value.mode` and `key.mode` are about nothing else.

ValueMode = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]
Side = Literal["value", "key"]
SIDES: tuple[Side, ...] = ("value", "key")
_mode = choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
_ONLY_WITH_PREFIX = "schema"


@dataclass(frozen=True)
class FormatOptions:
    """Format of the values or keys, as given. `options`: of the format, names in small letters without prefix."""

    side: Side
    format: str
    options: tuple[tuple[str, str], ...] = field(repr=False)  # passwords of registries are among them
    mode: ValueMode


@dataclass(frozen=True)
class TypedOptions:
    """Formats of values and keys; None where they stay bytes."""

    value: FormatOptions | None = None
    key: FormatOptions | None = None

    def __bool__(self) -> bool:
        return self.value is not None or self.key is not None

    def side(self, name: str) -> FormatOptions | None:
        return self.value if name == "value" else self.key if name == "key" else None

    @property
    def sides(self) -> tuple[FormatOptions, ...]:
        return tuple(side for side in (self.value, self.key) if side is not None)


def typed_options(given: GivenOptions, reserved: Collection[str]) -> tuple[TypedOptions, frozenset[str]]:
    """(The options, the names in small letters that they use). reserved: names that mean something else without a
    prefix.

    Raises OptionError for a format that there is not, for an option of a format where none is named, and for a prefixed
    one that the format has not.
    """
    used: set[str] = set()
    found: dict[str, FormatOptions] = {}
    for side in SIDES:
        name = given.texts.get(f"{side}.format")
        prefixed = given.of_side(side)
        if name is None:
            if prefixed:
                key = f"{side}.{next(iter(prefixed))}"
                raise OptionError(
                    f"option '{given.names[key]}' is of a format, and option '{side}.format' is not given",
                    hint=f"the formats are {', '.join(FORMATS)}",
                )
            continue
        chosen = format_name(f"{side}.format", name)
        options = _options_of(given, side, chosen, prefixed, reserved, used)
        text = given.texts.get(f"{side}.mode")
        mode = given.texts.get("mode", "PERMISSIVE") if text is None else text
        used |= {f"{side}.format", f"{side}.mode"}
        found[side] = FormatOptions(side, chosen, options, _mode("mode" if text is None else f"{side}.mode", mode))
    return TypedOptions(found.get("value"), found.get("key")), frozenset(used)


def _options_of(
    given: GivenOptions,
    side: str,
    name: str,
    prefixed: Mapping[str, str],
    reserved: Collection[str],
    used: set[str],
) -> tuple[tuple[str, str], ...]:
    known = option_names(name) - {_ONLY_WITH_PREFIX}.union(reserved)
    options = {key: text for key, text in given.texts.items() if key in known}
    own = {option: text for option, text in prefixed.items() if option not in ("format", "mode")}
    check_options(name, {option: given.names[f"{side}.{option}"] for option in own})
    used.update(options, (f"{side}.{option}" for option in own))
    return tuple(sorted((options | own).items()))


# The option `commitGroup`: which consumer group a stream's offsets are committed to, and how its broker is reached.

BOOTSTRAP = "kafka.bootstrap.servers"
_PREFIX = "kafka."
_OF_A_CONNECTION = (
    "bootstrap.servers",
    "client.id",
    "enable.ssl.certificate.verification",
    "security.",
    "sasl.",
    "ssl.",
    "socket.",
    "broker.address.",
    "receive.buffer.bytes",
    "send.buffer.bytes",
)
"""Names, and beginnings of names, of settings that say how a client connects, in Java's words or librdkafka's. What
else a consumer has (`max.poll.records`, `fetch.min.bytes` ...) is about fetching, and nothing is fetched."""


@dataclass(frozen=True)
class CommitGroup:
    """`group`: its id. `settings`: librdkafka's, with passwords, so in no repr. `fail`: whether a commit that fails is
    the query's failure."""

    group: str
    settings: Mapping[str, str] = field(repr=False)
    fail: bool


def of_the_connection(key: str) -> bool:
    """True if an option, its name in small letters, says how the broker of commitGroup is reached."""
    return key.startswith(_PREFIX) and key.removeprefix(_PREFIX).startswith(_OF_A_CONNECTION)


def commit_group(given: GivenOptions, plain: Mapping[str, Any], *, streaming: bool) -> CommitGroup | None:
    """Consumer group of the options; None without `commitGroup`.

    Raises OptionError for a batch, an empty group, and a group without a broker.
    """
    group: str | None = plain["commitGroup"]
    if group is None:
        if plain["failOnCommitError"]:
            raise OptionError("option 'failOnCommitError' is given, and no 'commitGroup' that could be committed to")
        return None
    if not streaming:
        raise OptionError(
            "option 'commitGroup' is of streams: a batch has no offsets that it goes on from", hint="use readStream"
        )
    if not group:
        raise OptionError("option 'commitGroup' must be the id of a consumer group, got ''")
    if not given.texts.get(BOOTSTRAP):
        raise OptionError(
            f"option 'commitGroup' needs '{BOOTSTRAP}': a group's offsets are kept by a broker",
            hint=f"name one: .option('{BOOTSTRAP}', 'host:9092')",
        )
    settings: dict[str, str] = {}
    as_in_librdkafka: dict[str, str] = {}
    for key, text in given.texts.items():
        if of_the_connection(key):
            name = key.removeprefix(_PREFIX)
            changed = librdkafka.translated(name, text)
            if changed is None:
                settings[name] = text
            else:
                as_in_librdkafka |= changed
    return CommitGroup(group, as_in_librdkafka | settings, plain["failOnCommitError"])


__all__ = ["ReadOptions", "options_table", "parse_read_options", "warn_of"]

IsolationLevel = Literal["read_uncommitted", "read_committed"]
Pushdown = Literal["auto", "true", "false"]
Mode = Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]

NO_DIRECTORY = 'name it in .load("/data/kafka-logs")'
NO_OPTIONS = (
    f"{NO_DIRECTORY}; if this is a table: Spark does not hand a table's options to a source in Python, so use "
    "CREATE TEMPORARY VIEW ... USING kafkalog OPTIONS (path '...', subscribe '...'), or SELECT ... FROM table WITH "
    "('path' = '...', 'subscribe' = '...')"
)

_RESERVED = frozenset(option.name.lower() for option in READ_OPTIONS)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadOptions:
    """Options of a read, parsed. Plain values, picklable.

    `paths`: directories as given, local ones perhaps relative; `storage`: how object stores are reached; `tier`:
    of tiered storage. `columns`: names in the order of the result. `table`: None for records. `wanted`: what
    they must hold. `typed`: what values and keys are decoded as. `tail`: only the last so many of each partition.
    `max_partition_bytes`, `max_decompressed_batch_bytes`, `max_bytes_per_trigger`: bytes. `max_trigger_delay_ms`: ms.
    Of a batch, the four rate options and `commit_group` are None.
    `ignored`: names, as given, of options that have no effect here.
    """

    paths: tuple[str, ...]
    storage: StorageOptions
    tier: TierOptions
    subscription: Subscription
    start: Bound
    end: Bound
    on_no_match: NoMatch
    columns: tuple[str, ...]
    isolation_level: IsolationLevel
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_partition_bytes: int
    max_decompressed_batch_bytes: int
    max_scan_bytes: int | None
    tail: int | None
    replicas: Replicas
    pushdown: Pushdown
    mode: Mode
    table: TableQuery | None
    wanted: RecordPredicate
    typed: TypedOptions
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int | None
    max_bytes_per_trigger: int | None
    commit_group: CommitGroup | None
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
    typed, of_formats = given.typed
    ignored = given.ignored(streaming, of_formats)
    start = given.first_of(START_OPTIONS, Latest() if streaming else None)
    end = Latest() if streaming else given.first_of(END_OPTIONS)
    if streaming:
        _check_stream(given, typed)
    else:
        _check_batch_start(start)
        _check_batch_end(end)
        check_bounds_agree(start, end)
    subscription = _subscription(given)
    plain = {option.name: given.value(option) for option in PLAIN_OPTIONS}
    rate = _rates(given, streaming)
    given.refuse()
    table = table_query(given, plain, subscription, streaming=streaming)
    if table is not None and typed:
        raise OptionError(f"option '{typed.sides[0].side}.format' is of records, not of the table '{table.table}'")
    result = ReadOptions(
        paths=_paths(given, plain),
        storage=given.storage,
        tier=given.tier,
        subscription=subscription,
        start=start,
        end=end,
        on_no_match=plain["startingOffsetsByTimestampStrategy"],
        columns=_columns(plain) if table is None else table.columns,
        isolation_level=_isolation_level(given, plain),
        fail_on_data_loss=plain["failOnDataLoss"],
        min_partitions=plain["minPartitions"],
        max_records_per_partition=plain["maxRecordsPerPartition"],
        max_partition_bytes=plain["maxPartitionBytes"],
        max_decompressed_batch_bytes=plain["maxDecompressedBatchBytes"],
        max_scan_bytes=plain["maxScanBytes"],
        tail=_tail(given, plain, streaming),
        replicas=plain["replicas"],
        pushdown=plain["pushdown"],
        mode="FAILFAST" if streaming and typed and plain["mode"] == "PERMISSIVE" else plain["mode"],
        table=table,
        wanted=wanted_records(given),
        typed=typed,
        max_offsets_per_trigger=rate["maxOffsetsPerTrigger"],
        min_offsets_per_trigger=rate["minOffsetsPerTrigger"],
        max_trigger_delay_ms=rate["maxTriggerDelay"],
        max_bytes_per_trigger=rate["maxBytesPerTrigger"],
        commit_group=commit_group(
            given, {option.name: given.value(option) for option in GROUP_OPTIONS}, streaming=streaming
        ),
        ignored=ignored,
    )
    if not quiet:
        warn_of(ignored)
    return result


def warn_of(ignored: Iterable[str]) -> None:
    """Log options without effect, in one line; nothing for none."""
    if names := ", ".join(ignored):
        _log.warning("options without effect on kafkalog: %s", names)


class GivenReadOptions(GivenOptions):
    """The options of a read as given; each is parsed once."""

    @cached_property
    def typed(self) -> tuple[TypedOptions, frozenset[str]]:
        """See `typed_options`."""
        return typed_options(self, _RESERVED)

    @cached_property
    def storage(self) -> StorageOptions:
        return StorageOptions.of(self.named(is_storage_option))

    @cached_property
    def tier(self) -> TierOptions:
        return TierOptions.of(self.named(is_tier_option))

    def first_of(self, options: tuple[OptionSpec, ...], otherwise: Bound | None = None) -> Any:
        """The value of the first option that is given, or `otherwise`, or the last one's default."""
        for option in options:
            if option in self:
                return self.value(option)
        return self.value(options[-1]) if otherwise is None else otherwise

    def refuse(self) -> None:
        for name, why in REFUSED.items():
            if self.has(name):
                raise OptionError(why)

    def ignored(self, streaming: bool, of_formats: Collection[str]) -> tuple[str, ...]:
        """Names without effect, in the order given. of_formats: names that formats use. Raises OptionError for a name
        that there is not."""
        used = {option.name.lower() for option in READ_OPTIONS} | REFUSED.keys()
        without_effect = {name.lower() for name in (*CONNECTOR_ONLY, *OF_SPARK)}
        no_effect = {"endingtimestamp"} if streaming else {option.name.lower() for option in RATE_OPTIONS}
        result = []
        for key, name in self.names.items():
            if (
                (key in used and key not in no_effect)
                or key in of_formats
                or (self.has("commitGroup") and of_the_connection(key))
                or is_storage_option(key)
                or is_tier_option(key)
                or self.is_table_property(key)
            ):
                continue
            if key not in used | without_effect:
                _check_known(key, name)
            result.append(name)
        return tuple(result)


def _check_known(key: str, name: str) -> None:
    if key.startswith("kafka."):
        isolation_level = "kafka.isolation.level"  # the only consumer setting that changes the result
        if is_nearly(key, isolation_level):
            raise unknown_option(name, [isolation_level], {})
        return
    raise unknown_option(name, [*(option.name for option in READ_OPTIONS), *CONNECTOR_ONLY], OTHER_NAMES)


def _check_stream(given: GivenReadOptions, typed: TypedOptions) -> None:
    _, by_timestamp, by_offset = END_OPTIONS
    mode = next(option for option in PLAIN_OPTIONS if option.name == "mode")
    if given.value(mode) == "PERMISSIVE" and not typed:
        raise OptionError(
            "mode=PERMISSIVE is of batch queries: a stream would never come back to what it has reported",
            hint="mode=DROPMALFORMED passes over damage and logs it; read what is lost with spark.read",
        )
    replicas = next(option for option in PLAIN_OPTIONS if option.name == "replicas")
    if given.value(replicas) == "merge":
        raise OptionError(
            "replicas=merge is of batch queries: it is for directories that no broker writes to",
            hint="replicas=longest follows the copy of the leader",
        )
    if by_offset in given:
        raise OptionError("ending offset not valid in streaming queries")
    if by_timestamp in given:
        raise OptionError("ending timestamp not valid in streaming queries")


def _check_batch_start(start: Bound) -> None:
    if isinstance(start, Latest):
        raise OptionError("starting offset can't be latest for batch queries on Kafka")
    for where in _partitions_at(start, LATEST):
        raise OptionError(f"startingOffsets for {where} can't be latest for batch queries on Kafka")


def _check_batch_end(end: Bound) -> None:
    if isinstance(end, Earliest):
        raise OptionError("ending offset can't be earliest for batch queries on Kafka")
    for where in _partitions_at(end, EARLIEST):
        raise OptionError(f"ending offset for {where} can't be earliest for batch queries on Kafka")


def _partitions_at(bound: Bound, sentinel: int) -> list[str]:
    if not isinstance(bound, SpecificOffsets):
        return []
    partitions = [tp_text(tp) for tp, offset in sorted(bound.offsets.items()) if offset == sentinel]
    return partitions + [topic for topic, offset in sorted(bound.topics.items()) if offset == sentinel]


def _subscription(given: GivenReadOptions) -> Subscription:
    chosen = [option for option in SUBSCRIPTION_OPTIONS if option in given and given.value(option) != NotSaid()]
    if len(chosen) > 1:
        names = ", ".join(option.name.lower() for option in SUBSCRIPTION_OPTIONS[:3])
        raise OptionError(
            f"Only one of the following options can be specified for Kafka source: {names}. "
            "See the docs for more details.",
            hint=f"given: {', '.join(option.name for option in chosen)}",
        )
    return given.value(chosen[0]) if chosen else NotSaid()


def _paths(given: GivenReadOptions, plain: Mapping[str, Any]) -> tuple[str, ...]:
    if plain["path"] is not None and plain["paths"] is not None:
        raise OptionError("options 'path' and 'paths' are both given", hint="name all directories in .load(...)")
    paths: tuple[str, ...] | None = plain["path"] or plain["paths"]
    if paths is None:
        raise OptionError("no log directory is given", hint=NO_DIRECTORY if given.names else NO_OPTIONS)
    return paths


def _columns(plain: Mapping[str, Any]) -> tuple[str, ...]:
    """With mode=PERMISSIVE those about damage too: the ones that `columns` names, or all of them at the end."""
    permissive = plain["mode"] == "PERMISSIVE"
    known = COLUMN_TYPES | DAMAGE_COLUMN_TYPES if permissive else COLUMN_TYPES
    columns = COLUMNS if plain["columns"] is None else known_columns(plain["columns"], known)
    if plain["includeHeaders"] and "headers" not in columns:
        columns = (*columns, "headers")
    if permissive and not DAMAGE_COLUMN_TYPES.keys() & set(columns):
        columns = (*columns, *DAMAGE_COLUMN_TYPES)
    return columns


def _isolation_level(given: GivenReadOptions, plain: Mapping[str, Any]) -> IsolationLevel:
    ours: IsolationLevel = plain["isolationLevel"]
    kafkas: IsolationLevel | None = plain["kafka.isolation.level"]
    if kafkas is None or kafkas == ours:
        return ours
    if given.has("isolationLevel"):
        raise OptionError(f"option 'isolationLevel' is {ours}, but 'kafka.isolation.level' is {kafkas}")
    return kafkas


_NOT_WITH_TAIL = ("maxScanBytes", "maxRecordsPerPartition", "minPartitions")
"""Where the last records begin is found by the tasks: nothing is known of their bytes or offsets before."""


def _tail(given: GivenReadOptions, plain: Mapping[str, Any], streaming: bool) -> int | None:
    tail: int | None = plain["tail"]
    if tail is None:
        return None
    if streaming:
        raise OptionError("option 'tail' is of batch queries: a stream has no last records", hint="use spark.read")
    for name in _NOT_WITH_TAIL:
        if given.has(name):
            raise OptionError(
                f"options 'tail' and '{name}' are both given",
                hint=f"leave '{name}' out: a tail is read by one task a partition, and from its end",
            )
    return tail


def _rates(given: GivenReadOptions, streaming: bool) -> Mapping[str, int | None]:
    """A batch checks only what the connector checks of it: that the two limits, both given, are in order."""
    largest, smallest, *_ = RATE_OPTIONS
    both = largest in given and smallest in given
    rates = {option.name: given.value(option) for option in RATE_OPTIONS if streaming or (both and option in given)}
    if both and rates[smallest.name] > rates[largest.name]:
        raise OptionError(
            f"The value of minOffsetPerTrigger({rates[smallest.name]}) is higher than the "
            f"maxOffsetsPerTrigger({rates[largest.name]})."
        )
    return rates if streaming else dict.fromkeys((option.name for option in RATE_OPTIONS), None)
