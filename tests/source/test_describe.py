"""describe: partitions, offsets and directories that a read would use."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog_spark
from kafkalog_spark.errors import OptionError, UnknownPartition
from tests.source.helpers.made_logs import append, numbers


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    append(tmp_path, "orders", 0, numbers(0, 1000))
    append(tmp_path, "orders", 1, numbers(0, 20))
    append(tmp_path, "other", 0, numbers(0, 1))
    return tmp_path


@pytest.mark.local_only("messages and plans name local paths")
def test_describe_lists_partitions_offsets_and_directories(logs: Path) -> None:
    found = kafkalog_spark.describe(logs, subscribe="orders", startingOffsets='{"orders":{"0":10,"1":-2}}')
    assert str(found).splitlines() == [
        "2 partitions of 1 topic, at most 1,010 records",
        f"orders-0  offsets 10 to 1000  {logs}/orders-0",
        f"orders-1  offsets 0 to 20     {logs}/orders-1",
    ]
    assert str(kafkalog_spark.describe(logs, subscribePattern="nothing")) == (
        "0 partitions of 0 topics, at most 0 records"
    )


def test_describe_refuses_the_options_that_a_query_refuses(logs: Path) -> None:
    with pytest.raises(OptionError, match="One of the following options must be specified"):
        kafkalog_spark.describe(logs)
    with pytest.raises(UnknownPartition, match=r"holds no topic order; did you mean orders\? It holds orders, other"):
        kafkalog_spark.describe(logs, subscribe="order")
    assert len(kafkalog_spark.describe(logs, allTopics=True).partitions) == 3
