"""Found by Spark (a top-level module named pyspark_*): lets format("kafkalog") work without a registration call."""

from __future__ import annotations

import os
import sys

try:
    from kafkalog_spark.datasource import KafkaLogDataSource as DefaultSource
except ImportError as error:  # Spark would only say DATA_SOURCE_NOT_FOUND, of every source that it finds this way
    from pyspark.sql.datasource import DataSource

    _MISSING = (
        f"kafkalog cannot be loaded by {sys.executable}, which Spark runs ({error}): type "
        f"{sys.executable} -m pip install 'kafkalog[spark]', or set PYSPARK_PYTHON to a Python that has it before the "
        "session is created"
    )

    class DefaultSource(DataSource):  # type: ignore[misc,no-redef]
        """Stands in for the source, and raises what is missing."""

        @classmethod
        def name(cls) -> str:
            return "kafkalog"

        def _refuse(self, *_: object, **__: object) -> None:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # as kafkalog_spark.spark.shortened_errors.raise_shortened
            raise ImportError(_MISSING)

        schema = reader = writer = streamReader = streamWriter = _refuse


__all__ = ["DefaultSource"]
