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
    """Register format("kafkalog") with a session. Only needed if Spark does not discover the package by itself.

    Raises:
        OptionError: If the session cannot run the source; see kafkalog_spark.registration.register.
    """
    from kafkalog_spark import registration

    registration.register(spark)


def set_active_session(spark: SparkSession) -> None:
    """Make a session the active one of this thread.

    Spark looks up Python sinks in the active session of the thread. Threads other than the main one have none, so
    `df.write.format("kafkalog")` fails there with DATA_SOURCE_NOT_FOUND.
    """
    # A side effect of createDataFrame; PySpark's method for this purpose alone is private.
    spark.createDataFrame([], "nothing int")


def __getattr__(name: str) -> Any:
    # imported on demand, because every worker that Spark starts imports kafkalog_spark
    if name == "LogDirs":
        from kafkalog_spark.source.log_dirs import LogDirs

        return LogDirs
    if name == "describe":
        from kafkalog_spark.source.description import describe

        return describe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
