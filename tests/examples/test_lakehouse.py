"""Topics become tables of Delta Lake and Iceberg, each record once, whatever is killed, while the schema changes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from examples import topic_to_delta, topic_to_iceberg
from kafkalog_broker.testing import RunningBroker, running_broker
from tests.interop.real_kafka import available, maven_jar
from tests.interop.record_schemas import FIRST, SECOND
from tests.typed.registry_server import RegistryServer
from tests.version_matrix import environment

pytestmark = [
    pytest.mark.spark,
    pytest.mark.end_to_end,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(available() is not None, reason=str(available())),  # Maven has the packages
]
EXAMPLES = Path(topic_to_delta.__file__).parent
CACHE = EXAMPLES.parent / ".tools" / "lakehouse"
TOPIC, PARTITIONS = "orders", 3
BATCH = 200
DELTA, ICEBERG = "4.2", "4.1"
JARS = {DELTA: (topic_to_delta.PACKAGES, "io.delta:delta-storage:4.4.0"), ICEBERG: (topic_to_iceberg.PACKAGES,)}
READ = """
import sys
from pyspark.sql import SparkSession
settings = dict(pair.split("=", 1) for pair in sys.argv[2:])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config(map=settings)
for row in builder.getOrCreate().sql(sys.argv[1]).toJSON().collect():
    print(row)
"""


def spark_environment(version: str) -> tuple[Path, dict[str, str]]:
    """The interpreter that has this pyspark, and the variables that put a table format's jars on its class path."""
    python = environment(Path(sys.executable), (f"{sys.version_info.major}.{sys.version_info.minor}", version))
    jars = [maven_jar(artifact, CACHE) for artifact in JARS[version]]
    submit = f"--jars {','.join(map(str, jars))} pyspark-shell"
    return python, {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": submit,
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class Orders:
    """Topic that is written with two schemas, the second from the middle on."""

    def __init__(self, broker: RunningBroker, registry: RegistryServer) -> None:
        from confluent_kafka import Producer

        self._producer, self._registry = Producer({"bootstrap.servers": broker.bootstrap}), registry
        self.rows: list[dict[str, Any]] = []

    def write(self, second: bool) -> None:
        schema = SECOND if second else FIRST
        number = self._registry.register(f"{TOPIC}-value", json.dumps(schema))
        for _ in range(BATCH):
            row: dict[str, Any] = {"id": len(self.rows)}
            if second:
                row |= {"user": f"user{row['id']}", "amount": row["id"] / 4}
            value = BytesIO(b"\0" + number.to_bytes(4, "big"))
            value.seek(0, 2)
            fastavro.schemaless_writer(value, schema, row)
            self._producer.produce(TOPIC, value.getvalue(), partition=row["id"] % PARTITIONS)
            self.rows.append(row)
        assert self._producer.flush(30) == 0


@contextmanager
def orders() -> Iterator[tuple[RunningBroker, RegistryServer, Orders]]:
    with running_broker(topics={TOPIC: PARTITIONS}) as broker, RegistryServer() as registry:
        yield broker, registry, Orders(broker, registry)


def started(python: Path, variables: dict[str, str], example: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, str(EXAMPLES / example), *map(str, arguments)],
        env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def kill(process: subprocess.Popen[str]) -> None:
    """The driver, its JVM and its workers, all at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def table(python: Path, variables: dict[str, str], query: str, settings: dict[str, str]) -> list[dict[str, Any]]:
    command = [str(python), "-c", READ, query, *(f"{key}={value}" for key, value in settings.items())]
    said = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[-3000:]
    return [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]


def check(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """The table has each record once, where the topic has it, with the fields of both schemas."""
    placed = sorted(rows, key=lambda row: row["id"])
    assert [row["id"] for row in placed] == [row["id"] for row in expected]
    for row, order in zip(placed, expected, strict=True):
        where = row.pop("kafka")
        assert (where["partition"], where["offset"]) == (order["id"] % PARTITIONS, order["id"] // PARTITIONS)
        assert row == ({"amount": 0.5} if "amount" in row and "amount" not in order else {}) | order


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_stream_into_delta_is_exact_after_kills(kills: int, tmp_path: Path) -> None:
    python, variables = spark_environment(DELTA)
    rng, out = random.Random(kills), tmp_path / "table"
    with orders() as (broker, registry, written):
        arguments = (broker.log_dir, TOPIC, out, "--registry", registry.url)
        written.write(False)
        for number in range(kills):
            process = started(python, variables, "topic_to_delta.py", *arguments)
            plans = out / "_checkpoint" / "offsets"
            before, end = planned(plans), time.monotonic() + 180
            while planned(plans) < before + rng.randint(1, 2):  # a batch is planned, and perhaps in the table
                assert process.poll() is None, process.communicate()[0][-3000:]
                assert time.monotonic() < end
                written.write(number >= kills // 2)
                time.sleep(rng.uniform(0, 0.5))
            kill(process)
        said = started(python, variables, "topic_to_delta.py", *arguments, "--once").communicate()[0]
        assert f"{len(written.rows)} rows in {out}" in said, said[-3000:]
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    check(table(python, variables, f"SELECT * FROM delta.`{out}`", settings), written.rows)


def planned(plans: Path) -> int:
    return len([path for path in plans.glob("*") if path.name.isdigit()])


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_runs_into_iceberg_are_exact_after_kills(kills: int, tmp_path: Path) -> None:
    python, variables = spark_environment(ICEBERG)
    rng, warehouse = random.Random(kills), tmp_path / "warehouse"
    with orders() as (broker, registry, written):
        arguments = (broker.log_dir, TOPIC, warehouse, "db.orders", "--registry", registry.url)

        def whole_run() -> float:
            begin = time.monotonic()
            said = started(python, variables, "topic_to_iceberg.py", *arguments).communicate()[0]
            assert f"{len(written.rows)} rows in db.orders" in said, said[-3000:]
            return time.monotonic() - begin

        written.write(False)
        seconds = whole_run()
        for number in range(kills):
            written.write(number >= kills // 2)
            process = started(python, variables, "topic_to_iceberg.py", *arguments)
            try:
                process.wait(rng.uniform(0.5, 1.1) * seconds)
            except subprocess.TimeoutExpired:
                pass
            kill(process)
        written.write(True)
        whole_run()
        whole_run()  # nothing is new
    settings = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
    }
    check(table(python, variables, "SELECT * FROM lake.db.orders", settings), written.rows)


@pytest.mark.slow
@pytest.mark.parametrize("spark", ["4.0", "4.1", "4.2", "4.3"])
def test_the_page_knows_which_spark_has_packages(spark: str) -> None:
    """Fails on the day that a release makes the page's table too cautious."""
    page = (EXAMPLES.parent / "docs" / "lakehouse.md").read_text()
    (header,) = [line for line in page.splitlines() if line.startswith("| | 4.0 ")]
    column = header.split("|").index(f" {spark} ")
    for package in (topic_to_delta.PACKAGES, topic_to_iceberg.PACKAGES):
        group, artifact, release = package.split(":")
        family = artifact.partition("_4.")[0].removesuffix("-4.1_2.13")
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{group}:{family}` {release} |")]
        said = line.split("|")[column].strip()
        name = artifact.replace("4.1_", f"{spark}_").replace("4.2_", f"{spark}_")
        if said != "not tried":
            with nullcontext() if said == "yes" else pytest.raises(RuntimeError, match="Maven could not"):
                maven_jar(f"{group}:{name}:{release}:pom", CACHE)
