"""Found by Spark (a top-level module named pyspark_*): lets format("kafkalog") work without a registration call."""

from kafkalog_spark.datasource import KafkaLogDataSource as DefaultSource

__all__ = ["DefaultSource"]
