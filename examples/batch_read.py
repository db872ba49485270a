"""Read a log directory with Spark. A broker may be writing to it, but is not required:

python examples/batch_read.py LOG_DIRECTORY [TOPIC]
"""

from __future__ import annotations

import sys

from demo import spark_session  # type: ignore[import-not-found]  # next to this file


def main(directory: str, topic: str) -> None:
    spark = spark_session()
    orders = (
        spark.read.format("kafkalog")
        .option("subscribe", topic)
        .load(directory)
        .selectExpr(
            "partition",
            "offset",
            "cast(key as string) as customer",
            "cast(get_json_object(cast(value as string), '$.amount') as int) as amount",
        )
    )
    orders.groupBy("partition").agg({"offset": "max", "amount": "sum"}).orderBy("partition").show()
    print(f"{orders.count()} records")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "orders")
