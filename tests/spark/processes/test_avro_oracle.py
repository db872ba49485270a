"""Avro: random schemas and values read as Spark's own from_avro reads them, in both of its modes, and rows written as
by to_avro."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.typed_formats import SPARK_AVRO
from tests.interop.real_kafka import cache_dir, maven_jar
from tests.spark.processes.oracle_runs import compared

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def spark_avro() -> str:
    """The jar with from_avro, from Maven, once."""
    try:
        return str(maven_jar(SPARK_AVRO, cache_dir() / "spark-avro"))
    except RuntimeError:
        if shutil.which("mvn") is None:
            pytest.skip("from_avro is a jar of its own, which needs Maven")
        raise


def test_sample_of_values_equals_from_avro(spark_avro: str) -> None:
    found = compared("avro_oracle", spark_avro, 11, 10, 100)
    assert found["different"] == []
    assert found["values"] == 1000
    assert found["bad"] > 50
    assert found["written"] > 500


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_thousand_values_equal_from_avro(spark_avro: str, seed: int) -> None:
    found = compared("avro_oracle", spark_avro, seed, 100, 200)
    assert found["different"] == []
    assert found["values"] == 20_000
    assert found["failfast"] > 50
    assert found["written"] > 20_000
