"""README and docs: their Python and SQL listings run as they are printed, in the order of the page."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyarrow.fs import copy_files

import kafkalog_spark
from kafkalog_broker.testing import running_broker
from kafkalog_spark.datasource import KafkaLogDataSource
from tests.log.tiered.aiven_writer import KEYS, AivenMode
from tests.log.tiered.golden_tiered import CLEAN
from tests.log.tiered.reading import aiven_tree
from tests.pages import PAGES, QUICKSTARTS, listings, run_page
from tests.store.s3_server import S3Server

pytestmark = pytest.mark.end_to_end

RUN_ELSEWHERE = {"docs/forensics.md": "tests/spark/test_forensics_page.py"}
TO_RUN = [
    page
    for page in PAGES
    if page not in (*QUICKSTARTS, *RUN_ELSEWHERE)
    and any(listing.reason is None for listing in listings(page, "python", "sql"))
]
ARGUMENTS = {"docs/clusters.md": ["kafka-logs"], "docs/migration.md": ["kafka-logs", "out", "checkpoint"]}
"""What a page's program is given on its command line."""
BUCKETS = {"docs/object_storage.md": "backup", "docs/sink.md": "bucket", "docs/tiered_storage.md": "tier"}
"""The bucket of a page that has one."""
COPIES = {
    "README.md": [],  # its listing makes kafka-logs
    "docs/mirror.md": ["mirror"],
    "docs/reading.md": ["kafka-logs", "damaged"],
    "docs/spark.md": ["broker-1/logs", "broker-2/logs"],
    "docs/tiered_storage.md": [],  # logs that a Kafka with a tier wrote
}
"""Log directories that a page reads, if not kafka-logs alone."""
RECORDS = 1000
FIELDS = [{"name": "id", "type": "long"}, {"name": "ok", "type": "boolean"}]
SCHEMA = {"type": "record", "name": "Payment", "fields": FIELDS}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory that pages call kafka-logs: JSON in `orders`, Avro with a schema's id in `payments`, the
    schema in `_schemas`, and an offset that `billing` has committed."""
    root = tmp_path_factory.mktemp("pages") / "kafka-logs"
    with running_broker(topics={"orders": 4, "payments": 1, "_schemas": 1}, log_dir=root) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for number in range(RECORDS):
            value = {"id": number, "user": f"user {number % 7}", "amount": number, "nested": {"x": number}}
            producer.produce("orders", key=b"user-%d" % (number % 50), value=json.dumps(value))
        for number in range(50):
            producer.produce("payments", value=b"\0" + (1).to_bytes(4, "big") + bytes([2 * number, number % 2]))
        subject = {"subject": "payments-value", "version": 1}
        producer.produce(
            "_schemas",
            key=json.dumps({"keytype": "SCHEMA", **subject, "magic": 1}),
            value=json.dumps({**subject, "id": 1, "schema": json.dumps(SCHEMA), "deleted": False}),
        )
        assert producer.flush(120) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing", "log_level": 0})
        consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
        consumer.close()
        del producer, consumer
    return root


@pytest.fixture
def session(page: str, spark: Any, spark_cwd: Path, logs: Path, tmp_path: Path) -> Iterator[Any]:
    """What the page calls `spark`. Where it has a bucket, the settings of the application say where that is."""
    if page not in BUCKETS:
        yield spark
        return
    with S3Server(tmp_path / "buckets") as server:
        server.make_bucket(BUCKETS[page])
        if page == "docs/object_storage.md":
            copy_files(str(logs), "backup/kafka-logs", destination_filesystem=server.file_system())
        elif page == "docs/tiered_storage.md":
            tree = aiven_tree(CLEAN, tmp_path / "tree", AivenMode.ZSTD_ENCRYPTED, 3000)
            copy_files(str(tree), "tier/prefix", destination_filesystem=server.file_system())
            shutil.copytree(CLEAN.data, spark_cwd / "kafka-logs")
            shutil.copy(KEYS / "one.pem", spark_cwd / "tier-key.pem")
        session = spark.newSession()
        for name, value in server.options.items():
            session.conf.set(f"spark.hadoop.{name}", value)
        kafkalog_spark.register(session)
        yield session
        spark.dataSource.register(KafkaLogDataSource)


@contextlib.contextmanager
def streams_ended(spark: Any, names: dict[str, Any]) -> Iterator[None]:
    """Streams that a page began have read what is there, without an error, and are stopped."""
    from pyspark.sql.streaming import StreamingQueryListener

    try:
        yield
        for query in spark.streams.active:
            query.processAllAvailable()
    finally:
        for query in spark.streams.active:
            query.stop()
        for value in list(names.values()):
            if isinstance(value, StreamingQueryListener):
                spark.streams.removeListener(value)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.bucket] if page in BUCKETS else []) for page in TO_RUN]
)
def test_page_listings_run_as_printed(
    page: str,
    session: Any,
    spark_cwd: Path,
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from pyspark.sql import DataFrame

    for name in COPIES.get(page, ["kafka-logs"]):
        shutil.copytree(logs, spark_cwd / name)
    monkeypatch.setattr(sys, "argv", ["job.py", *ARGUMENTS.get(page, ())])
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # pages set it, too
    names: dict[str, Any] = {"__name__": "__main__", "spark": session}
    with streams_ended(session, names):
        for listing, values in run_page(page, names):
            for value in values:
                if isinstance(value, DataFrame) and not value.isStreaming:
                    assert value.collect() or "_error" in value.columns, listing
    if page in CHECKS:
        CHECKS[page](spark_cwd, capfd.readouterr().out, session)


def check_readme(folder: Path, told: str, spark: Any) -> None:
    sums = [int(amount) for amount in re.findall(r"\|\s+\d\|\s+(\d+)\|", told)]
    assert (len(sums), sum(sums)) == (4, sum(range(1000)))


def check_migration(folder: Path, told: str, spark: Any) -> None:
    rows = spark.read.parquet(str(folder / "out")).collect()
    assert sorted(row["amount"] for row in rows) == list(range(RECORDS))
    assert len({(row["partition"], row["offset"]) for row in rows}) == RECORDS


def check_sink(folder: Path, told: str, spark: Any) -> None:
    written = spark.read.format("kafkalog").option("subscribe", "orders").load("s3://bucket/logs")
    assert written.count() == RECORDS


def check_tables(folder: Path, told: str, spark: Any) -> None:
    assert re.search(r"billing\s*┆ \d+\b", told)


CHECKS: dict[str, Callable[[Path, str, Any], None]] = {
    "README.md": check_readme,
    "docs/migration.md": check_migration,
    "docs/sink.md": check_sink,
    "docs/tables.md": check_tables,
}
