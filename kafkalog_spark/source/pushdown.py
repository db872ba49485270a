"""Pushdown of Spark's filters (option `pushdown`): whether a read may apply them."""

from __future__ import annotations

import logging
from functools import cache

import pyspark
from pyspark.sql.datasource import DataSourceReader

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.options import ReadOptions

FILTERS_STAY_WITH_THEIR_SCAN = hasattr(DataSourceReader, "pushLimit")
"""True if Spark keeps the filters of one scan out of other scans of the same load (SPARK-58551, Spark 5, recognised by
`pushLimit`, which came with the same change).

Before that, Spark keeps the plan that a reader makes after filters were pushed with the load
(`PythonDataSourceV2.readInfo`), and uses it in every later scan without calling the reader again. For example,
explain() plans with its filter, and a count() after it runs that plan and lacks rows. A task cannot know which scan it
serves."""

_log = logging.getLogger(__name__)


def check_pushdown(options: ReadOptions) -> None:
    """Raise OptionError if pushdown=true could return wrong rows."""
    if options.pushdown == "true" and not FILTERS_STAY_WITH_THEIR_SCAN:
        raise OptionError(
            "option 'pushdown' needs Spark 5: Spark 4 uses the filters of one query in later queries of the same load, "
            "which then miss rows (SPARK-58551)",
            hint="leave it out, and narrow the read by assign, startingOffsets, endingOffsets, startingTimestamp and "
            "endingTimestamp: these read no more than they name",
        )


def takes_filters(options: ReadOptions) -> bool:
    """Return True if the read applies the filters that Spark pushes.

    Logs the choice of `pushdown=auto` once per process. Spark pushes filters only in sessions with
    spark.sql.python.filterPushdown.enabled, so the user of such a session wants to know.
    """
    if options.reports_damage:
        return False  # a filter may accept rows about damage, which only Spark can decide
    if options.pushdown == "auto":
        _log_auto(FILTERS_STAY_WITH_THEIR_SCAN)
        return FILTERS_STAY_WITH_THEIR_SCAN
    return options.pushdown == "true"


@cache
def _log_auto(on: bool) -> None:
    if on:
        _log.info("pushdown=auto: on, Spark %s keeps the filters of a query to itself", pyspark.__version__)
    else:
        _log.warning(
            "pushdown=auto: off, Spark %s would use the filters of one query in later queries of the same load "
            "(SPARK-58551); Spark applies them itself, after reading",
            pyspark.__version__,
        )
