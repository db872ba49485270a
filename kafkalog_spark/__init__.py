"""kafkalog: Kafka logs as Spark tables, read from the segment files.

    spark.read.format("kafkalog").option("subscribe", "orders").load("/data/kafka-logs")

Without Spark: `LogDirs.open("/data/kafka-logs").scan("orders")`, see kafkalog_spark.log.log_dir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalog_spark.source.description import describe
    from kafkalog_spark.source.log_dirs import LogDirs

__version__ = "0.1.0"
__all__ = ["LogDirs", "__version__", "describe", "register", "set_active_session"]


def register(spark: SparkSession) -> None:
    """Register format("kafkalog") with a session by hand; needed only where Spark does not find it by itself.

    Raises OptionError where Spark could not run it: see kafkalog_spark.registration.register.
    """
    from kafkalog_spark import registration

    registration.register(spark)


def set_active_session(spark: SparkSession) -> None:
    """Make a session the active one of this thread. Spark looks for sinks in Python in the thread's active session, and
    threads other than the main one have none: `df.write.format("kafkalog")` would end in DATA_SOURCE_NOT_FOUND there.
    """
    spark.createDataFrame([], "nothing int")  # what PySpark has that sets it: its name for that alone is private


def __getattr__(name: str) -> Any:
    # imported on demand: `import kafkalog_spark` happens in every worker that Spark starts
    if name == "LogDirs":
        from kafkalog_spark.source.log_dirs import LogDirs

        return LogDirs
    if name == "describe":
        from kafkalog_spark.source.description import describe

        return describe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
