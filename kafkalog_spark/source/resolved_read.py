"""A load resolved once, for planning, tasks and streams: its options, what its formats look up, its schema in Spark's
types, and the projection that brings batches into that.

`schema()` cannot know whether a batch or a stream is loaded: what only one of the two refuses is refused by the first
query of a batch, or by the start of a stream.

In a schema of the user's own a name that is one of Kafka's columns, in any case, is that column. A struct column
`value` or `key` holds what is decoded, and keeps names apart; every other name is a column of the values, or of the
keys where those alone have a format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql.types import StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import DAMAGE_COLUMN_TYPES
from kafkalog_spark.source.offsets import AT_EARLIEST, AT_LATEST
from kafkalog_spark.source.options import GivenReadOptions, ReadOptions, parse_read_options, warn_of
from kafkalog_spark.source.read_schema import kafkas_name
from kafkalog_spark.typed.decoder import ResolvedFormat, SchemaSources


class LoadOptions:
    """The options of a load, before it is known whether a batch or a stream is loaded. Spark keeps the data source, and
    this in it, after `schema()`: what formats look up is looked up once a load, and each option without effect is
    logged once. With a schema of the user's own Spark does not ask for ours: every query has LoadOptions of its own, a
    stream two, since Spark makes its reader in two processes."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = GivenReadOptions(options)
        self._logged: set[str] = set()
        self._has_logged_bounds = False
        self._formats: Mapping[str, ResolvedFormat] | None = None

    def formats(self, options: ReadOptions) -> Mapping[str, ResolvedFormat]:
        """By side, for batch and stream: with the files, registered schemas and `_schemas` records they need."""
        if self._formats is None:
            topics, records = tuple(sorted(options.subscription.named_topics)), partial(_records, options)
            self._formats = {
                side: ResolvedFormat.of(given.name, given.options, SchemaSources(side, topics, records), given.mode)
                for side, given in options.formats.items()
            }
        return self._formats

    def resolved(self, options: ReadOptions, schema: StructType) -> ResolvedRead:
        """The read of a schema, which may be the user's own. With formats, mode=PERMISSIVE is about damaged batches
        only where the schema has a column about damage."""
        with_damage = DAMAGE_COLUMN_TYPES.keys() & set(map(kafkas_name, schema.names))
        if options.formats and options.reports_damage and not with_damage:
            options = replace(options, mode="FAILFAST")
        return ResolvedRead(options, self.formats(options), schema)

    def parse_any(self) -> ReadOptions:
        """Raises OptionError when both batch and stream refuse the options; logs those without effect on any."""
        accepted: list[ReadOptions] = []
        errors: list[OptionError] = []
        for streaming in (False, True):
            try:
                accepted.append(parse_read_options(self._given, streaming=streaming, quiet=True))
            except OptionError as error:
                errors.append(error)
        if not accepted:
            raise errors[0]
        self._log(accepted[0], (name for name in accepted[0].ignored if name in accepted[-1].ignored))
        return accepted[0]

    def parse(self, *, streaming: bool) -> ReadOptions:
        """Raises OptionError; logs what has no effect, once."""
        options = parse_read_options(self._given, streaming=streaming, quiet=True)
        self._log(options, options.ignored)
        return options

    def _log(self, options: ReadOptions, ignored: Iterable[str]) -> None:
        news = [name for name in ignored if name not in self._logged]
        bounds = (AT_EARLIEST, AT_LATEST) if self._has_logged_bounds else (options.start, options.end)
        warn_of(news, *bounds)
        self._logged.update(news)
        self._has_logged_bounds = True


@dataclass(frozen=True)
class ResolvedRead:
    """Read options with the formats of values and keys resolved, and the schema of the rows. Picklable."""

    options: ReadOptions
    formats: Mapping[str, ResolvedFormat]
    schema: StructType


def _records(options: ReadOptions, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    from kafkalog_spark.log.log_dir import LogDirs

    return LogDirs.open(options.paths, options.storage, options.tier).keys_and_values(topic)
