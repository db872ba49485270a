"""The options of a load, before it is known whether a batch or a stream is loaded: `schema()` cannot know.

What only one of the two refuses is refused when the load turns out to be that one: `startingOffsets=latest` by the
first query of a batch, `endingOffsets` by the start of a stream. What both refuse is refused by `.load()`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

import pyspark
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.options import GivenReadOptions, ReadOptions, parse_read_options, warn_of
from kafkalog_spark.source.schema import ResolvedRead, resolve_formats
from kafkalog_spark.typed.decoder import ResolvedFormat


@dataclass
class LoadOptions:
    """The same options as a batch reads them and as a stream does; an OptionError where that refuses them.

    `logged`: names without effect that have been logged. Spark keeps the data source, and this in it, after `schema()`:
    what formats look up is looked up once a load.
    """

    as_batch: ReadOptions | OptionError
    as_stream: ReadOptions | OptionError
    logged: set[str] = field(default_factory=set)
    _formats: Mapping[str, ResolvedFormat] | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> LoadOptions:
        """Never raises: `either`, `batch` and `stream` do."""
        try:
            given = GivenReadOptions(options)
        except OptionError as error:
            return cls(error.with_traceback(None), error)
        return cls(_parsed(given, streaming=False), _parsed(given, streaming=True))

    def formats(self, options: ReadOptions) -> Mapping[str, ResolvedFormat]:
        """The formats of values and keys, which are the same for a batch and a stream."""
        if self._formats is None:
            self._formats = resolve_formats(options)
        return self._formats

    def resolved(self, options: ReadOptions, schema: StructType) -> ResolvedRead:
        """The read of a schema, which may be the user's own."""
        return ResolvedRead.of(options, schema, self.formats(options))

    def either(self) -> ReadOptions:
        """Options that batch and stream have in common: paths, columns. Raises OptionError when both refuse the
        options; logs those without effect on any."""
        kinds = [kind for kind in (self.as_batch, self.as_stream) if isinstance(kind, ReadOptions)]
        if not kinds:
            assert isinstance(self.as_batch, OptionError)
            raise self.as_batch
        self._tell(name for name in kinds[0].ignored if all(name in kind.ignored for kind in kinds))
        return kinds[0]

    def batch(self) -> ReadOptions:
        """Raises OptionError; logs what has no effect on a batch, once."""
        return self._chosen(self.as_batch)

    def stream(self) -> ReadOptions:
        """Raises OptionError; logs what has no effect on a stream, once."""
        return self._chosen(self.as_stream)

    def _chosen(self, kind: ReadOptions | OptionError) -> ReadOptions:
        if isinstance(kind, OptionError):
            raise kind
        self._tell(kind.ignored)
        return kind

    def _tell(self, ignored: Iterable[str]) -> None:
        news = [name for name in ignored if name not in self.logged]
        warn_of(news)
        self.logged.update(news)


def _parsed(given: GivenReadOptions, *, streaming: bool) -> ReadOptions | OptionError:
    try:
        return parse_read_options(given, streaming=streaming, quiet=True)
    except OptionError as error:
        return error.with_traceback(None)


# The option `pushdown`, and the Spark versions on which it cannot be right.

FILTERS_STAY_WITH_THEIR_SCAN = hasattr(DataSourceReader, "pushLimit")
"""True if Spark keeps the filters of one scan out of the others of the same load (SPARK-58551, Spark 5).

Before, the plan that a reader makes after its filters were pushed is kept with the load (PythonDataSourceV2.readInfo),
and every later scan of it takes that plan without asking: another filter's, or that of a query without one, and in a
union the last one pushed serves both. Nothing that a task is given says which scan it serves, so a reader that leaves
out anything at all can leave out rows that were asked for: an explain() plans with its filter, and the count() after it
runs that plan. Leaving the filters to Spark as well does not help, since it is the other query that lacks rows. The
change that ended this brought `pushLimit`.
"""

_log = logging.getLogger(__name__)


def check_pushdown(options: ReadOptions) -> None:
    """Raise OptionError where pushdown=true could give wrong rows."""
    if options.pushdown == "true" and not FILTERS_STAY_WITH_THEIR_SCAN:
        raise OptionError(
            "option 'pushdown' needs Spark 5: Spark 4 uses the filters of one query in later queries of the same load, "
            "which then miss rows (SPARK-58551)",
            hint="leave it out, and narrow the read by assign, startingOffsets, endingOffsets, startingTimestamp and "
            "endingTimestamp: these read no more than they name",
        )


def takes_filters(options: ReadOptions) -> bool:
    """True if filters that Spark pushes are applied by the read. `pushdown=auto` decides here, and logs why, once in a
    process: Spark pushes only in sessions with spark.sql.python.filterPushdown.enabled, where somebody wanted it."""
    if options.pushdown == "auto":
        _say(FILTERS_STAY_WITH_THEIR_SCAN)
        return FILTERS_STAY_WITH_THEIR_SCAN
    return options.pushdown == "true"


@cache
def _say(on: bool) -> None:
    if on:
        _log.info("pushdown=auto: on, Spark %s keeps the filters of a query to itself", pyspark.__version__)
    else:
        _log.warning(
            "pushdown=auto: off, Spark %s would use the filters of one query in later queries of the same load "
            "(SPARK-58551); Spark applies them itself, after reading",
            pyspark.__version__,
        )


# Option maxScanBytes: a read that would look at too much is refused before it begins.


def check_scan_bytes(size: int, options: ReadOptions) -> None:
    """Raise OptionError where `size`, the bytes of .log files that a batch would look at, is above the limit."""
    limit = options.max_scan_bytes
    if limit is not None and size > limit:
        raise OptionError(
            f"this would read {size} bytes of .log files ({size / 1e9:.3f} GB), maxScanBytes is {limit}",
            hint="narrow it with startingTimestamp, startingOffsets or a subscription, or allow more",
        )
