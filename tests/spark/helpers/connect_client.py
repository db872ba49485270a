"""A client of Spark Connect: PATH-OF-A-LOG-DIRECTORY REMOTE WORK-DIRECTORY; prints what it finds as one JSON object.

Run by test_connect.py with a Python that has no kafkalog and no Java (pyspark-client), so nothing of this project is
imported here; and with one that has it, which registers it too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

if "MORE_PACKAGES" in os.environ:  # what pyspark[connect] brings beside pyspark
    sys.path.append(os.environ["MORE_PACKAGES"])

from pyspark.sql import SparkSession
from pyspark.sql.functions import col


def refused(action: Any) -> str:
    """The text of the error that an action ends with."""
    try:
        action()
    except Exception as error:  # noqa: BLE001  whichever of Spark's it is
        return str(error)
    raise AssertionError("not refused")


NO_TIME = "Python worker failed to connect back"
"""As in streams.py: the process of a stream's source has 10 s to start, which a busy machine may take."""


def to_its_end(writer: Any, path: str) -> Any:
    """The query, ended; begun anew where Spark gave the source's process no time."""
    end = time.monotonic() + 600
    while True:
        query = writer.start(path)
        try:
            query.awaitTermination()
            return query
        except Exception as error:
            if NO_TIME not in str(error) or time.monotonic() > end:
                raise


def main(log_dir: str, remote: str, work: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    orders = spark.read.format("kafkalog").option("subscribe", "segments").load(log_dir)
    found: dict[str, Any] = {
        "server": spark.version,
        "session": type(spark).__module__,
        "has kafkalog": importlib.util.find_spec("kafkalog_spark") is not None,
        "count": orders.count(),
        "schema": orders.schema.simpleString(),
        "filtered": [row.offset for row in orders.where("offset between 10 and 14").orderBy("offset").collect()],
        "arrow": orders.select("offset").toArrow().num_rows,
    }
    found["batches"] = spark.read.format("kafkalog").option("table", "batches").load(log_dir).count()
    found["refused"] = refused(
        lambda: spark.read.format("kafkalog").option("subscrib", "segments").load(log_dir).count()
    )
    found["commitGroup in a batch"] = refused(
        lambda: spark.read.format("kafkalog").options(subscribe="segments", commitGroup="g").load(log_dir).count()
    )

    spark.sql(f"CREATE OR REPLACE TEMP VIEW v USING kafkalog OPTIONS (path '{log_dir}', subscribe 'segments')")
    found["view"] = spark.sql("SELECT count(*) FROM v").first()[0]
    found["by path"] = refused(lambda: spark.sql(f"SELECT count(*) FROM kafkalog.`{log_dir}`").collect())

    written = str(Path(work, "written"))
    rows = orders.where("offset < 100").select(col("key"), col("value"))
    rows.write.format("kafkalog").mode("append").option("topic", "copied").save(written)
    found["written"] = spark.read.format("kafkalog").option("subscribe", "copied").load(written).count()

    stream = to_its_end(
        spark.readStream.format("kafkalog")
        .options(subscribe="segments", startingOffsets="earliest", maxOffsetsPerTrigger=2000)
        .load(log_dir)
        .select("offset", "value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(Path(work, "checkpoint")))
        .trigger(availableNow=True),
        str(Path(work, "streamed")),
    )
    found["stream"] = spark.read.parquet(str(Path(work, "streamed"))).count()
    found["stream's end"] = json.loads(stream.recentProgress[-1].sources[0].endOffset)
    if found["has kafkalog"]:  # registered by hand, with what the session says of S3
        import kafkalog_spark

        spark.conf.set("spark.hadoop.fs.s3a.endpoint.region", "eu-west-1")
        kafkalog_spark.register(spark)
        found["registered"] = spark.read.format("kafkalog").option("subscribe", "segments").load(log_dir).count()
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
