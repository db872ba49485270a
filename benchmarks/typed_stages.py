"""Processor time of the stages of a task with typed values, without Spark.

The stages are: read segments and return `value`; also decode it to columns; also write them as an Arrow stream to
/dev/null. The reader of Spark's tasks runs in this process, one task after the other.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from benchmarks.data import ensure
from benchmarks.report import Report
from benchmarks.typed import Case, cases
from benchmarks.typed_formats import descriptor_set
from kafkalog_spark.source.batch_reader import KafkaLogBatchReader
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.resolved_read import LoadOptions

TYPES: dict[str, DataType] = {
    "bigint": LongType(),
    "string": StringType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
}


def schema_of(case: Case) -> StructType:
    """Return the columns of a case. Spark's parser of DDL requires a session, so it is not used."""
    fields = [part.split(" ") for part in case.schema.split(", ")]
    return StructType([StructField(name, TYPES[kind], True) for name, kind in fields])


def spent(case: Case, schema: StructType, options: dict[str, str], *, written: bool) -> tuple[float, int, int]:
    """Run all tasks of a read. Return (ns of processor time per row, batches, bytes), without the planning."""
    given = {"subscribe": case.topic.name, "path": str(ensure([case.topic])), **options}
    parsed = parse_read_options(given)
    reader = KafkaLogBatchReader(LoadOptions(given).resolve(parsed, schema))
    tasks: list[Any] = reader.partitions()
    rows, batches, size = 0, 0, 0
    with open("/dev/null", "wb") as nowhere:
        begin = time.process_time()
        for task in tasks:
            writer = None
            for batch in reader.read(task):
                rows, batches, size = rows + batch.num_rows, batches + 1, size + batch.nbytes
                if written:
                    writer = writer or pa.RecordBatchStreamWriter(nowhere, batch.schema)
                    writer.write_batch(batch)
            if writer is not None:
                writer.close()
        seconds = time.process_time() - begin
    assert rows == case.topic.records, (rows, case)
    return seconds / rows * 1e9, batches, size


def main(report: Report, rounds: int = 5) -> None:
    """Report each case by its best round, because other work on the machine can only increase the times."""
    descriptor_set()
    for case in cases():
        plain, schema = StructType([StructField("value", BinaryType(), True)]), schema_of(case)
        options = dict(case.options)
        stages: dict[str, list[float]] = {"read": [], "decoded": [], "written": []}
        for _ in range(rounds + 1):
            stages["read"].append(spent(case, plain, {}, written=False)[0])
            stages["decoded"].append(spent(case, schema, options, written=False)[0])
            nanoseconds, batches, size = spent(case, schema, options, written=True)
            stages["written"].append(nanoseconds)
        read, decoded, written = (min(values[1:]) for values in stages.values())
        report.add(
            "typed_stages",
            case.what,
            read_ns_a_row=round(read),
            read_and_decoded_ns=round(decoded),
            read_decoded_and_written_ns=round(written),
            batches=batches,
            bytes_a_row=round(size / case.topic.records, 1),
        )


if __name__ == "__main__":
    main(Report())
