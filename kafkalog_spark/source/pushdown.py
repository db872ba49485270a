"""Decision whether a read applies the filters that Spark pushes (option `pushdown`)."""

from __future__ import annotations

import logging
from functools import cache

import pyspark
from pyspark.sql.datasource import DataSourceReader

from kafkalog_spark.source.options import ReadOptions

FILTERS_ARE_PER_SCAN = hasattr(DataSourceReader, "pushLimit")
"""True if the filters of one scan do not affect other scans of the same load (SPARK-58551). This holds since Spark 5,
which is recognised by `pushLimit`, a method of the same change.

Spark 4 stores the plan that a reader makes after filters were pushed with the load (`PythonDataSourceV2.readInfo`), and
uses it in every later scan without calling the reader again. For example, explain() of a filtered query makes a plan
with the filter, and a later count() runs that plan and misses rows. A task cannot find out to which scan it belongs."""

_log = logging.getLogger(__name__)


def applies_filters(options: ReadOptions) -> bool:
    """Return True if the read applies the filters that Spark pushes.

    Logs the decision of `pushdown=auto` once per process. Spark pushes filters only in sessions with
    spark.sql.python.filterPushdown.enabled, so the users of such a session want to know it.
    """
    if options.reports_damage:
        return False  # the filter also applies to rows about damage, on which only Spark can evaluate it
    if options.pushdown == "auto":
        _log_auto(FILTERS_ARE_PER_SCAN)
        return FILTERS_ARE_PER_SCAN
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
