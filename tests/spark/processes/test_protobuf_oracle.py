"""Protobuf: random messages read as Spark's own from_protobuf reads them, in both of its modes, and written as by
to_protobuf."""

from __future__ import annotations

import pytest

from benchmarks.typed_formats import spark_protobuf
from tests.interop.real_kafka import cache_dir
from tests.spark.processes.oracle_runs import compared

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def jars() -> str:
    """The class path with from_protobuf."""
    try:
        return spark_protobuf(cache_dir() / "spark-protobuf")
    except RuntimeError as error:
        pytest.skip(f"from_protobuf is a jar of its own: {str(error)[:200]}")


def test_sample_of_messages_equals_from_protobuf(jars: str) -> None:
    found = compared("protobuf_oracle", jars, 11, 10, 100)
    assert found["different"] == []
    assert found["values"] == 1000
    assert found["bad"] > 50


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_thousand_messages_equal_from_protobuf(jars: str, seed: int) -> None:
    found = compared("protobuf_oracle", jars, seed, 100, 200)
    assert found["different"] == []
    assert found["values"] == 20_000
    assert found["failfast"] > 50
    assert found["written"] > 500
