"""Avro: random schemas and values read as Spark's own from_avro reads them, in both of its modes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.typed_formats import SPARK_AVRO
from tests.interop.real_kafka import cache_dir

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def spark_avro() -> Path:
    """The jar with from_avro, from Maven, once."""
    _, artifact, version = SPARK_AVRO.split(":")
    path = cache_dir() / "spark-avro" / f"{artifact}-{version}.jar"
    if not path.exists():
        if shutil.which("mvn") is None:
            pytest.skip("from_avro is a jar of its own, which needs Maven")
        run = ("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={SPARK_AVRO}", f"-DoutputDirectory={path.parent}")
        subprocess.run(run, check=True, capture_output=True)
    return path


def compared(jar: Path, seed: int, schemas: int, values: int) -> Any:
    run = (sys.executable, "-m", "tests.spark.processes.avro_oracle", str(jar), *map(str, (seed, schemas, values)))
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_sample_is_read_as_from_avro_reads_it(spark_avro: Path) -> None:
    found = compared(spark_avro, 11, 10, 100)
    assert found["different"] == []
    assert found["values"] == 1000
    assert found["bad"] > 50


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_thousand_values_are_read_as_from_avro_reads_them(spark_avro: Path, seed: int) -> None:
    found = compared(spark_avro, seed, 100, 200)
    assert found["different"] == []
    assert found["values"] == 20_000
    assert found["failfast"] > 50
