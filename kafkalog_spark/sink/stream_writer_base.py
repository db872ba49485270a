"""The base of stream writers that are given Arrow batches, which Spark 4.0 does not have."""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql import datasource

from kafkalog_spark.errors import OptionError

StreamWriterBase: Any = getattr(datasource, "DataSourceStreamArrowWriter", object)


def check_stream_writers() -> None:
    """Raises OptionError where Spark has none."""
    if StreamWriterBase is object:
        raise OptionError(
            f"writing streams needs Spark 4.1 or newer, this is {pyspark.__version__}",
            hint="write each micro-batch with foreachBatch",
        )
