"""What `.load()` itself finds wrong, from a listing of the log directories: not the first query."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafkalog_spark.datasource import KafkaLogDataSource
from kafkalog_spark.errors import KafkalogError, NotALogDirectory, OptionError, UnknownPartition
from tests.source.helpers.driver import Load
from tests.source.helpers.made_logs import append, numbers


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    append(tmp_path / "logs", "orders", 0, numbers(0, 3))
    append(tmp_path / "logs", "__consumer_offsets", 0, numbers(0, 3))
    return tmp_path / "logs"


def _schema(**options: str) -> None:
    KafkaLogDataSource(options).schema()


@pytest.mark.parametrize(
    ("path", "options", "error", "text"),
    [
        (
            "empty",
            {"allTopics": "true"},
            NotALogDirectory,
            "empty: is not a Kafka log directory: no <topic>",
        ),
        ("file", {"subscribe": "orders"}, NotALogDirectory, "file: is a file; give the log directory"),
        ("missing", {"subscribe": "orders"}, NotALogDirectory, "missing: does not exist"),
        ("mis*", {"subscribe": "orders"}, NotALogDirectory, r"mis\*: no directory matches the pattern"),
        (
            "logs",
            {"subscribe": "order"},
            UnknownPartition,
            r"the log directory holds no topic order; did you mean orders\? It holds __con",
        ),
        ("logs", {"assign": '{"order":[0]}'}, UnknownPartition, "the log directory holds no topic order"),
    ],
)
def test_load_with_invalid_path_or_topic_is_refused(
    tmp_path: Path, logs: Path, path: str, options: dict[str, str], error: type[KafkalogError], text: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(error, match=text):
        _schema(path=str(tmp_path / path), **options)


def test_load_logs_what_it_reads(logs: Path) -> None:
    with pytest.raises(OptionError) as caught:
        _schema(path=str(logs))
    assert str(caught.value) == (
        "One of the following options must be specified for Kafka source: subscribe, subscribepattern, assign. "
        "See the docs for more details. allTopics=true reads every topic of the log directory: orders"
    )
    _schema(path=str(logs), allTopics="true")
    _schema(path=str(logs / "orders-0"))  # the directory of one partition says it
    _schema(path=str(logs / "orders-*"))
    with pytest.raises(OptionError, match="One of the following options must be specified"):
        _schema(path=f"{logs / 'orders-0'},{logs}")


def test_query_with_a_user_schema_logs_what_it_reads(logs: Path) -> None:
    """Spark then does not ask for ours."""
    load = Load(logs, subscribe="orders")
    source = KafkaLogDataSource({"path": str(logs)})
    with pytest.raises(OptionError, match="One of the following options must be specified"):
        source.reader(load.schema).partitions()


def test_stream_load_accepts_a_topic_that_no_longer_exists(logs: Path) -> None:
    _schema(path=str(logs), subscribe="orders,deleted", failOnDataLoss="false")
    with pytest.raises(UnknownPartition, match="deleted"):
        _schema(path=str(logs), subscribe="orders,deleted")


def test_stream_on_a_spark_without_rate_limits_is_refused(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ReadLimit is new in 4.2, so there the module of the reader cannot be imported."""
    monkeypatch.delitem(sys.modules, "kafkalog_spark.source.stream_reader", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.delattr("pyspark.sql.streaming.datasource", raising=False)
    source = KafkaLogDataSource({"path": str(logs), "subscribe": "orders"})
    reader = source.streamReader(source.schema())
    with pytest.raises(OptionError, match=r"reading streams needs Spark 4\.2 or newer, this is "):
        reader.initialOffset()
