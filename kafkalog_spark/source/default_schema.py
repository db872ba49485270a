"""Default schema of a load, in Spark's types."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.read_schema import ALL_TYPES
from kafkalog_spark.typed.formats import ResolvedFormat


def load_schema(options: ReadOptions, formats: Mapping[str, ResolvedFormat]) -> StructType:
    """Return the default schema of a load: Kafka's columns, in which values and keys with a format are structs.

    Args:
        options: Options of the read.
        formats: Resolved formats by side.

    Raises:
        OptionError: If the options do not say which fields a format decodes.
    """
    fields = []
    for name in options.columns:
        kind, format = ALL_TYPES[name], formats.get(name)
        if format is not None:
            # The format `string` is the same as Spark's own cast from bytes.
            kind = StringType() if format.name == "string" else from_arrow_schema(format.schema())
        fields.append(StructField(name, kind, True))  # nullable, like all columns of Spark's Kafka connector
    return StructType(fields)
