"""A stream whose options cannot be used."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.spark_errors import raise_first_line


class RefusedStreamReader(DataSourceStreamReader):
    """Raises `error` when the query starts.

    Spark replaces what creating a reader raises by a NameError of its own (python_streaming_source_runner.py
    stops the reader that it does not have).
    """

    def __init__(self, error: KafkalogError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        raise_first_line(self._error)

    def getDefaultReadLimit(self) -> Any:
        self._refuse()

    def initialOffset(self) -> Any:
        self._refuse()

    def latestOffset(self, start: Any = None, limit: Any = None) -> Any:  # Spark 4.1 and 4.0 give neither
        self._refuse()

    def reportLatestOffset(self) -> Any:
        self._refuse()

    def partitions(self, start: Any, end: Any) -> Any:
        self._refuse()

    def read(self, partition: Any) -> Any:
        self._refuse()
