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

from kafkalog_broker.testing import running_broker
from tests.pages import PAGES, QUICKSTARTS, listings, run_page

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
COPIES = {
    "README.md": [],  # its listing makes kafka-logs
    "docs/mirror.md": ["mirror"],
    "docs/reading.md": ["kafka-logs", "damaged"],
    "docs/spark.md": ["broker-1/logs", "broker-2/logs"],
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


@pytest.mark.parametrize("page", TO_RUN)
def test_the_listings_run_as_printed(
    page: str,
    spark: Any,
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
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark}
    with streams_ended(spark, names):
        for listing, values in run_page(page, names):
            for value in values:
                if isinstance(value, DataFrame) and not value.isStreaming:
                    assert value.collect() or "_error" in value.columns, listing
    if page in CHECKS:
        CHECKS[page](spark_cwd, capfd.readouterr().out, spark)


def check_readme(folder: Path, told: str, spark: Any) -> None:
    sums = [int(amount) for amount in re.findall(r"\|\s+\d\|\s+(\d+)\|", told)]
    assert (len(sums), sum(sums)) == (4, sum(range(1000)))


def check_migration(folder: Path, told: str, spark: Any) -> None:
    rows = spark.read.parquet(str(folder / "out")).collect()
    assert sorted(row["amount"] for row in rows) == list(range(RECORDS))
    assert len({(row["partition"], row["offset"]) for row in rows}) == RECORDS


def check_tables(folder: Path, told: str, spark: Any) -> None:
    assert re.search(r"billing\s*┆ \d+\b", told)


CHECKS: dict[str, Callable[[Path, str, Any], None]] = {
    "README.md": check_readme,
    "docs/migration.md": check_migration,
    "docs/tables.md": check_tables,
}
