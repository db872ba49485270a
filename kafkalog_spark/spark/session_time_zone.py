"""Look-up of the Spark session's time zone in a task."""

from __future__ import annotations

import logging
from functools import cache

from pyspark import TaskContext

from kafkalog_spark.spark.worker_process import running_frames

_log = logging.getLogger(__name__)


def session_time_zone() -> str:
    """Return the name of the session's time zone in a task; UTC outside of tasks, where no value is decoded.

    Spark passes spark.sql.session.timeZone to tasks if the user has set it. Otherwise the zone is that of the driver's
    JVM, which only Spark 4.3 passes to tasks, in a local variable `runner_conf` of its Python worker.
    """
    context = TaskContext.get()
    if context is None:
        return "UTC"
    if zone := context.getLocalProperty("spark.sql.session.timeZone"):
        return str(zone)
    confs = (frame.f_locals.get("runner_conf") for frame in running_frames())
    return next((str(zone) for conf in confs if (zone := getattr(conf, "timezone", None))), None) or _unknown_zone()


@cache
def _unknown_zone() -> str:
    _log.warning(
        "spark.sql.session.timeZone is not set, and this release of Spark does not pass its default to Python: "
        "timestamps without a zone are read as UTC; set it, or the option timeZone"
    )
    return "UTC"
