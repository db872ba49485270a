"""The schema of a table other than `records` in Spark's types, and what a user's own `.schema(...)` may ask for."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql.types import StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.tables.work import TableQuery
from kafkalog_spark.spark_types import arrow_schema


def table_schema(query: TableQuery) -> StructType:
    """Of the query's columns, in their order; all of them nullable."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(query.of.schema(query.columns))


def narrowed(query: TableQuery, schema: StructType) -> TableQuery:
    """The query of the columns that a schema names, in any case; of a schema without any, of one that costs little.

    Raises OptionError for a name that is no column, a column that is named twice, and for another type.
    """
    known = {column.name.lower(): column.name for column in query.of.columns}
    names = tuple(known.get(field.name.lower(), field.name) for field in schema.fields)
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    query = replace(query, columns=names or query.of.default_columns[:1])
    for asked, ours in zip(schema.fields, table_schema(query).fields, strict=bool(names)):
        if asked.dataType.simpleString() != ours.dataType.simpleString():
            raise OptionError(
                f"the schema's column '{asked.name}' is {asked.dataType.simpleString()}, "
                f"expected {ours.dataType.simpleString()}"
            )
        if not asked.nullable:
            raise OptionError(f"the schema's column '{asked.name}' is NOT NULL, but it may be null in a table of a log")
    return query


class TableShape:
    """Brings batches of a table into the Arrow schema that Spark expects of a StructType."""

    def __init__(self, schema: StructType) -> None:
        self._target: pa.Schema = arrow_schema(schema)

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows under Spark's schema, which names the elements of lists differently."""
        if not len(self._target):
            return batch.select([])  # nothing but a number of rows
        arrays = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, self._target, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)
