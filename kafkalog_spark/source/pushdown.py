"""The option `pushdown`, and the Spark versions on which it cannot be right."""

from __future__ import annotations

import logging
from functools import cache

import pyspark
from pyspark.sql.datasource import DataSourceReader

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.options import ReadOptions

FILTERS_STAY_WITH_THEIR_SCAN = hasattr(DataSourceReader, "pushLimit")
"""Whether Spark keeps the filters of one scan out of the others of the same load (SPARK-58551, Spark 5).

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
    """Whether filters that Spark pushes are applied by the read. `pushdown=auto` decides here, and logs why, once in a
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
