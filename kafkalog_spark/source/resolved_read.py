"""Options, formats and schema of a load, resolved once for planning, tasks and streams.

`DataSource.schema` does not know whether a batch or a stream is loaded. So an option that only a batch refuses raises
an error in the first query of the batch, and one that only a stream refuses raises it at the start of the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql.types import StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import DAMAGE_COLUMN_TYPES
from kafkalog_spark.source.bounds import AT_EARLIEST, AT_LATEST
from kafkalog_spark.source.given_read_options import GivenReadOptions
from kafkalog_spark.source.option_parsing import parse_read_options, warn_about_options
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.read_schema import kafka_name
from kafkalog_spark.typed.formats import ResolvedFormat, SchemaSources


@dataclass(frozen=True)
class ResolvedRead:
    """Options of a read, the resolved formats by side, and the schema of the rows. Picklable."""

    options: ReadOptions
    formats: Mapping[str, ResolvedFormat]
    schema: StructType


class LoadOptions:
    """Options of a load, which may be a batch or a stream.

    Spark keeps the data source, and this object in it, after `schema`. So the files and schemas of formats are looked
    up once per load, and each option without effect is logged once. If the user gives a schema, Spark does not call
    `schema`. Then every query has its own LoadOptions, and a stream has two, because Spark creates its reader in two
    processes.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = GivenReadOptions(options)
        self._logged: set[str] = set()
        self._has_logged_bounds = False
        self._formats: Mapping[str, ResolvedFormat] | None = None

    def parse_any(self) -> ReadOptions:
        """Parse the options for a batch, or for a stream if a batch refuses them. Logs options without effect on both.

        Raises:
            OptionError: If a batch and a stream refuse the options.
        """
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
        """Parse the options for a batch or a stream. Logs options without effect, once. Raises OptionError."""
        options = parse_read_options(self._given, streaming=streaming, quiet=True)
        self._log(options, options.ignored)
        return options

    def formats(self, options: ReadOptions) -> Mapping[str, ResolvedFormat]:
        """Return the formats by side, "value" and "key", with the files and registered schemas that they need."""
        if self._formats is None:
            topics, records = tuple(sorted(options.subscription.named_topics)), partial(_records, options)
            self._formats = {
                side: ResolvedFormat.of(given.name, given.options, SchemaSources(side, topics, records), given.mode)
                for side, given in options.formats.items()
            }
        return self._formats

    def resolve(self, options: ReadOptions, schema: StructType) -> ResolvedRead:
        """Return the read with a schema, which may be the user's own.

        With formats, mode=PERMISSIVE applies to damaged batches only if the schema has a column about damage.
        """
        has_damage_column = bool(DAMAGE_COLUMN_TYPES.keys() & set(map(kafka_name, schema.names)))
        if options.formats and options.reports_damage and not has_damage_column:
            options = replace(options, mode="FAILFAST")
        return ResolvedRead(options, self.formats(options), schema)

    def _log(self, options: ReadOptions, ignored: Iterable[str]) -> None:
        unlogged = [name for name in ignored if name not in self._logged]
        bounds = (AT_EARLIEST, AT_LATEST) if self._has_logged_bounds else (options.start, options.end)
        warn_about_options(unlogged, *bounds)
        self._logged.update(unlogged)
        self._has_logged_bounds = True


def _records(options: ReadOptions, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield the keys and values of a topic, for a schema registry that stores its schemas in a topic."""
    from kafkalog_spark.log.log_dir import LogDirs

    return LogDirs.open(options.paths, options.storage, options.tier).keys_and_values(topic)
