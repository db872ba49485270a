"""What pages of the documentation say is run: the quickstart on one's machine, and the migrated job."""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from kafkalog_broker.testing import running_broker
from tests.spark_session import JVM_FOR_TESTS

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parent.parent.parent
LISTING = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def listings(page: str, mark: str = "") -> list[str]:
    """The Python listings of a page; with `mark`, those after that comment."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert mark in text
    return LISTING.findall(text.partition(mark)[2] if mark else text)


def run(program: str, folder: Path, *arguments: object) -> str:
    environment = {**os.environ, **JVM_FOR_TESTS, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "broker")])
    ran = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], cwd=folder, env={**environment, "PYTHONPATH": paths},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_quickstart_works_as_printed(tmp_path: Path) -> None:
    program = "\n".join(listings("start/local.md"))
    told = run(program + "\nprint('rows', rows)", tmp_path)
    assert re.search(r"\|customer 9\|\s+50400\|", told), told  # 9 + 19 + ... + 999
    assert "{'orders': (0, 1)}" in told
    assert "rows 1000" in told


def test_the_readmes_listing_works_as_printed(tmp_path: Path) -> None:
    (program,) = LISTING.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    sums = [int(amount) for amount in re.findall(r"\|\s+\d\|\s+(\d+)\|", run(program, tmp_path))]
    assert (len(sums), sum(sums)) == (4, sum(range(1000)))


def test_three_lines_of_a_job_change() -> None:
    (before,), after = listings("migration.md", "<!-- before:")[:1], listings("migration.md", "<!-- after:")[0]
    changes = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    assert [line[2:].strip() for line in changes if line[0] == "-"] == [
        'spark.readStream.format("kafka")', '.option("kafka.bootstrap.servers", source)', ".load()"
    ]  # fmt: skip
    assert [line[2:].strip() for line in changes if line[0] == "+"] == [
        'spark.readStream.format("kafkalog")', ".load(source)"
    ]  # fmt: skip


def test_the_migrated_job_reads_what_was_sent(tmp_path: Path) -> None:
    with running_broker(topics={"orders": 2}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(700):
            value = json.dumps({"amount": number})
            producer.produce("orders", key=b"c%d" % (number % 3), value=value, partition=number % 2)
        assert producer.flush(120) == 0
        run(listings("migration.md", "<!-- after:")[0], tmp_path, broker.log_dir, tmp_path / "out", tmp_path / "cp")
    rows = [row for path in (tmp_path / "out").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted(row["amount"] for row in rows) == list(range(700))
    assert {(row["partition"], row["offset"]) for row in rows} == {(n % 2, n // 2) for n in range(700)}
