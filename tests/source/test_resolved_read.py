"""A load asks for the schemas of its values once, whatever is made of it: a table, a count, a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from kafkalog_spark.source import resolved_read
from tests.golden_data import GOLDEN
from tests.interop.record_schemas import FIRST, ORDERS, SECOND
from tests.source.helpers.driver import Load
from tests.source.helpers.stream_driver import Query
from tests.typed.registry_server import RegistryServer

DATA = GOLDEN / "kafka-4.3.0-schemas" / "data"
GIVEN: dict[str, Any] = {"subscribe": "orders", "value.format": "confluent-avro"}
OF_IDS = StructType([StructField("id", LongType())])


@pytest.fixture
def topics_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics whose records were read for schemas."""
    found: list[str] = []
    read = resolved_read._records

    def counted(options: Any, topic: str) -> Iterator[Any]:
        found.append(topic)
        return read(options, topic)

    monkeypatch.setattr(resolved_read, "_records", counted)
    return found


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    """With the schemas of the topic under the ids that its values name."""
    with RegistryServer() as server:
        for one in (FIRST, SECOND):
            server.register("orders-value", json.dumps(one))
        yield server


@pytest.mark.parametrize("own_schema", [None, OF_IDS])
def test_schema_topic_is_read_once_per_query(own_schema: StructType | None, topics_read: list[str]) -> None:
    load = Load(DATA, schema=own_schema, **GIVEN)
    scan = load.scan()
    assert scan.read().num_rows == len(ORDERS)
    assert scan.read().num_rows == len(ORDERS)  # a second action has the same plan
    assert topics_read == ["_schemas"]


def test_every_scan_reuses_the_schemas_that_its_load_looked_up(topics_read: list[str]) -> None:
    load = Load(DATA, **GIVEN)
    for _ in range(2):
        assert load.scan().read().num_rows == len(ORDERS)
    assert topics_read == ["_schemas"]


def test_stream_reads_the_schema_topic_once(topics_read: list[str]) -> None:
    query = Query(DATA, startingOffsets="earliest", **GIVEN)  # a reader that plans, and one for tasks
    batch = query.batch()
    assert batch is not None
    assert [row["id"] for row in batch["value"].to_pylist()] == [value["id"] for _, value in ORDERS]
    assert topics_read == ["_schemas"]


def test_registry_is_queried_for_the_latest_version_once(registry: RegistryServer) -> None:
    given = {**GIVEN, "schema.registry.url": registry.url}

    def asked() -> int:
        return sum("/versions/latest" in request for request in registry.requests)

    scan = Load(DATA, **given).scan()
    assert scan.read().num_rows == scan.read().num_rows == len(ORDERS)
    assert asked() == 1
    assert Query(DATA, startingOffsets="earliest", **given).batch() is not None
    assert asked() == 2
