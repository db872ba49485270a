"""What is refused by load(), and what by the query: Spark does not say at load() whether it is a batch or a stream."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyspark import cloudpickle

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec
from kafkalog_spark.source.resolved_read import LoadOptions


def parsed(**options: str) -> LoadOptions:
    return LoadOptions({"path": "/logs", **options})


def test_options_invalid_only_for_batches_are_refused_by_the_batch() -> None:
    options = parsed(startingOffsets="latest")
    assert options.parse_any().paths == ("/logs",)
    assert options.parse(streaming=True).paths == ("/logs",)
    with pytest.raises(OptionError, match="starting offset can't be latest for batch queries on Kafka"):
        options.parse(streaming=False)


def test_options_invalid_only_for_streams_are_refused_by_the_stream() -> None:
    options = parsed(endingOffsets="latest")
    assert options.parse_any().paths == options.parse(streaming=False).paths == ("/logs",)
    with pytest.raises(OptionError, match="ending offset not valid in streaming queries"):
        options.parse(streaming=True)


def test_options_invalid_for_batch_and_stream_are_refused_at_load() -> None:
    for given in ({"minPartitions": "0"}, {"endingOffsets": "earliest"}, {"maxPartitionByte": "1m"}):
        with pytest.raises(OptionError):
            parsed(**given).parse_any()


def test_each_option_without_effect_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "maxOffsetsPerTrigger": "5", "endingTimestamp": "1700000000000"}

    def told() -> list[str]:
        texts = [record.getMessage().partition(": ")[2] for record in caplog.records]
        caplog.clear()
        return texts

    with caplog.at_level(logging.WARNING, "kafkalog_spark"):
        options = parsed(**given)
        assert told() == []
        options.parse_any()
        assert told() == ["kafka.bootstrap.servers"]
        options = cloudpickle.loads(cloudpickle.dumps(options))  # as Spark keeps the data source
        options.parse(streaming=False)
        assert told() == ["maxOffsetsPerTrigger"]
        options.parse(streaming=False)
        assert told() == []
        options.parse(streaming=True)
        assert told() == ["endingTimestamp"]
        with_schema = parsed(**given)  # Spark does not ask for ours
        with_schema.parse(streaming=True)
        assert told() == ["kafka.bootstrap.servers, endingTimestamp"]


def test_timestamp_in_seconds_is_logged_once_per_load(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kafkalog_spark"):
        options = parsed(startingTimestamp="1700000000")
        options.parse_any()
        options.parse(streaming=False)
        options.parse(streaming=True)
        assert [message.partition(",")[0] for message in caplog.messages] == [
            "startingTimestamp=1700000000 is in 1970-01-20"
        ]
        parsed(startingTimestamp="1700000000").parse(streaming=True)  # with a schema of the user's own
    assert len(caplog.messages) == 2


def test_option_errors_survive_pickling() -> None:
    options = cloudpickle.loads(cloudpickle.dumps(parsed(startingOffsets="latest")))
    with pytest.raises(OptionError, match="starting offset can't be latest"):
        options.parse(streaming=False)


def test_options_common_to_batch_and_stream_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    value = OptionSpec.value

    def counted(spec: OptionSpec, text: str | None) -> Any:
        found.append(spec.name)
        return value(spec, text)

    monkeypatch.setattr(OptionSpec, "value", counted)
    options = parsed(subscribe="a", startingOffsets='{"a":{"0":5}}', maxPartitionBytes="1m", layout="aiven")
    assert options.parse(streaming=False).start == options.parse(streaming=True).start
    assert {name: found.count(name) for name in ("subscribe", "startingOffsets", "maxPartitionBytes")} == {
        "subscribe": 1,
        "startingOffsets": 1,
        "maxPartitionBytes": 1,
    }
