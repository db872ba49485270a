"""A standalone cluster that has nothing but Spark: the environment comes packed with the job, as docs/clusters.md says,
and executors come and go (dynamic allocation)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import golden_data
from tests.version_matrix import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800)]

JOB = """
import sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
def alive():
    return spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
def count():
    records = spark.read.format("kafkalog").option("subscribe", sys.argv[2]).load(sys.argv[1])
    print("counted", sorted(map(tuple, records.groupBy("partition").count().collect())))
count()
before = alive()
end = time.monotonic() + 120
while alive() and time.monotonic() < end:
    time.sleep(0.2)
print("executors", before, alive())
count()
print("executors again", alive())
"""


def run(*command: object, cwd: Path, **variables: str) -> str:
    arguments = [str(part) for part in command]
    ran = subprocess.run(
        arguments, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-4000:]
    return ran.stdout


@contextmanager
def daemon(spark_home: Path, log: Path, says: str, *arguments: object) -> Iterator[str]:
    """The part of its log that `says` finds, of a master or worker that runs until the block ends."""
    variables = {**os.environ, "SPARK_HOME": str(spark_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as out:
        command = [str(spark_home / "bin" / "spark-class"), *map(str, arguments)]
        process = subprocess.Popen(command, env=variables, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 120
        while not (match := re.search(says, log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield match[0]
    finally:
        process.terminate()
        process.wait(60)


def test_packed_environment_works_with_dynamic_allocation(tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    run("env/bin/pip", "install", "-q", f"{ROOT}[spark]", "pyspark==4.2.*", "venv-pack", cwd=tmp_path)
    run("env/bin/python", "-m", "kafkalog_spark.warm", "--only", "read", cwd=tmp_path)
    run("env/bin/venv-pack", "-q", "-p", "env", "-o", "env.tar.gz", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    home = Path(run(python, "-c", "import pyspark; print(pyspark.__path__[0])", cwd=tmp_path).strip())
    (tmp_path / "job.py").write_text(JOB)
    deploy, at = "org.apache.spark.deploy", ("--host", "127.0.0.1", "--port", 0, "--webui-port", 0)
    with daemon(home, tmp_path / "master.log", r"spark://127\.0\.0\.1:\d+", f"{deploy}.master.Master", *at) as master:
        worker = (
            f"{deploy}.worker.Worker",
            *at,
            "--cores",
            2,
            "--memory",
            "1g",
            "--work-dir",
            tmp_path / "work",
            master,
        )
        with daemon(home, tmp_path / "worker.log", "Successfully registered with master", *worker):
            said = run(
                home / "bin" / "spark-submit", "--master", master, "--archives", "env.tar.gz#env",
                "--conf", "spark.dynamicAllocation.enabled=true", "--conf", "spark.dynamicAllocation.minExecutors=0",
                "--conf", "spark.dynamicAllocation.shuffleTracking.enabled=true", "--conf", "spark.executor.cores=1",
                "--conf", "spark.dynamicAllocation.shuffleTracking.timeout=2s", "--conf", "spark.executor.memory=512m",
                "--conf", "spark.dynamicAllocation.executorIdleTimeout=2s", "--conf", "spark.driver.host=127.0.0.1",
                "job.py", golden_data.data_dir(), "segments",
                cwd=tmp_path, SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH="",
                PYSPARK_PYTHON="./env/bin/python", PYSPARK_DRIVER_PYTHON="./env/bin/python",
            )  # fmt: skip
    counts = Counter(row["partition"] for row in golden_data.topic_records(golden_data.KAFKA_4_3, "segments"))
    expected = sorted(counts.items())
    assert said.count(f"counted {expected}") == 2, said
    assert re.search(r"executors [12] 0\n", said), said
    assert re.search(r"executors again [12]\n", said), said
