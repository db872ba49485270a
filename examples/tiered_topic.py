"""Write a topic that keeps one minute on disk and one day in remote storage, and read it with Spark without a broker:

python examples/tiered_topic.py DIRECTORY [s3://BUCKET]

The log directory is created in DIRECTORY; so are the remote segments, if no bucket is given. Credentials and endpoint
of the bucket come from the usual sources of S3 clients (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,
AWS_ENDPOINT_URL).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, window

from kafkalog_broker.testing import RunningBroker, running_broker

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
ORDERS = {
    "remote.storage.enable": "true",
    "local.retention.ms": str(MINUTE),
    "retention.ms": str(DAY + HOUR),
    "segment.bytes": str(1 << 20),
}
S3 = "io.aiven.kafka.tieredstorage.storage.s3.S3Storage"


def remote_storage(directory: Path, bucket: str | None) -> dict[str, str]:
    """Return the properties of a broker that copies closed segments to remote storage every second."""
    if bucket is None:
        (directory / "remote").mkdir(parents=True, exist_ok=True)
        location = {"rsm.config.storage.root": str(directory / "remote")}
    else:
        location = {"rsm.config.storage.backend.class": S3, "rsm.config.storage.s3.bucket.name": bucket}
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.manager.task.interval.ms": "1000",
        "log.retention.check.interval.ms": "1000",
        "rsm.config.compression.enabled": "true",
        **location,
    }


def send_a_day(broker: RunningBroker, records: int) -> None:
    """Send orders with timestamps of the last 24 hours."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50})
    start = int(time.time() * 1000) - DAY
    for number in range(records):
        order = json.dumps({"order": number, "customer": number % 100, "note": "n" * 200}).encode()
        producer.produce("orders", order, timestamp=start + number * DAY // records)
        producer.poll(0)
    producer.flush()


def wait_until_moved(partition: Path, seconds: float = 60) -> None:
    """Wait until only the active segment is on disk, at most `seconds`."""
    end = time.monotonic() + seconds
    while len(list(partition.glob("*.log"))) > 1 and time.monotonic() < end:
        time.sleep(0.2)


def main(directory: Path, bucket: str | None) -> None:
    properties = remote_storage(directory, bucket)
    with running_broker(properties, topics={"orders": ORDERS}, log_dir=directory / "data") as broker:
        send_a_day(broker, 40_000)
        wait_until_moved(broker.log_dir / "orders-0")
    on_disk = sum(path.stat().st_size for path in (directory / "data" / "orders-0").glob("*.log"))
    print(f"{on_disk / 1e6:.1f} MB of records on disk, the others in {bucket or directory / 'remote'}")

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # default: python3 on PATH, which may not have kafkalog
    spark = (
        SparkSession.builder.master("local[*]")
        .appName("kafkalog: a tiered topic")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    reader = spark.read.format("kafkalog").option("subscribe", "orders")
    if bucket is not None:  # a folder beside the log directory needs no option
        reader = reader.option("tiered.root", f"s3://{bucket}")
    orders = reader.load(str(directory / "data"))
    orders.groupBy(window(col("timestamp"), "6 hours").start.alias("from")).count().orderBy("from").show()
    print(f"{orders.count()} records of a day")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2].removeprefix("s3://").rstrip("/") if len(sys.argv) > 2 else None)
