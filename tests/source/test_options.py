"""The options of a read: names, defaults, precedence and messages of Spark's Kafka connector, and ours."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, COLUMNS
from kafkalog_spark.log.decode.scan_request import EVERY_RECORD
from kafkalog_spark.log.tiered.tier_options import TierOptions
from kafkalog_spark.options import declared_options
from kafkalog_spark.source.bounds import AT_EARLIEST, AT_LATEST, EARLIEST, LATEST, Bound
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.options import READ_OPTIONS, RateLimits, ReadOptions, StreamOptions
from kafkalog_spark.source.subscription import NO_SUBSCRIPTION, Subscription
from kafkalog_spark.store.storage_options import StorageOptions
from tests.source.helpers.given_options import read, read_stream, refused

CONNECTOR_DEFAULTS = {
    "assign": None,
    "subscribe": None,
    "subscribePattern": None,
    "startingTimestamp": None,
    "startingOffsetsByTimestamp": None,
    "startingOffsets": "earliest",  # of a stream: latest
    "endingTimestamp": None,
    "endingOffsetsByTimestamp": None,
    "endingOffsets": "latest",
    "failOnDataLoss": "true",
    "maxOffsetsPerTrigger": None,
    "minOffsetsPerTrigger": None,
    "maxTriggerDelay": "15m",
    "minPartitions": None,
    "maxRecordsPerPartition": None,
    "includeHeaders": "false",
    "startingOffsetsByTimestampStrategy": "error",
    "kafka.isolation.level": "read_uncommitted",
}
"""Options of Spark's Kafka connector that have an effect here, with the defaults of its source (KafkaSourceProvider,
KafkaMicroBatchStream) and, for `kafka.*`, of Kafka's consumer."""


def test_connector_options_have_its_defaults_and_others_are_marked_as_ours() -> None:
    declared = {spec.name: spec for spec in READ_OPTIONS}
    # `kafka.isolation.level` is another name of `isolationLevel`, which has the default.
    defaults = {name: spec.default for name, spec in declared.items()}
    defaults["kafka.isolation.level"] = declared["isolationLevel"].default
    assert {name: defaults[name] for name in CONNECTOR_DEFAULTS} == CONNECTOR_DEFAULTS
    ours = {spec.name for spec in READ_OPTIONS if spec.meaning.endswith("Ours.")}
    assert ours == declared.keys() - CONNECTOR_DEFAULTS.keys() - {"paths"}


def test_batch_without_options_has_the_declared_defaults() -> None:
    options = read()
    made_of_several = {"columns": COLUMNS, "table": None}
    for name, spec in declared_options(ReadOptions).items():
        assert getattr(options, name) == made_of_several.get(name, spec.value(None)), name
    assert options == replace(
        options,
        paths=("/logs",),
        storage=StorageOptions(),
        tier=TierOptions(),
        subscription=NO_SUBSCRIPTION,
        start=AT_EARLIEST,
        end=AT_LATEST,
        wanted=EVERY_RECORD,
        formats={},
        stream=None,
        ignored=(),
    )


def test_stream_starts_at_latest_by_default_and_has_rate_options() -> None:
    options = read_stream()
    assert (options.start, options.end) == (AT_LATEST, AT_LATEST)
    assert options.stream == StreamOptions(RateLimits(), 900_000)
    options = read_stream(
        startingOffsets="earliest", maxOffsetsPerTrigger="15", minOffsetsPerTrigger="10", maxTriggerDelay="30s"
    )
    assert options.start == AT_EARLIEST
    assert options.stream == StreamOptions(RateLimits(15, 10), 30_000)
    assert read_stream(maxBytesPerTrigger="64m").stream == StreamOptions(RateLimits(max_bytes=64 << 20), 900_000)
    assert options.ignored == ()


def test_names_are_case_insensitive_and_values_trimmed() -> None:
    options = read(SUBSCRIBE=" a , b,,a ", STARTINGoffsets=" EARLIEST ", failondataloss=" False", IncludeHeaders="TRUE")
    assert options.subscription == Subscription(topics=("a", "b"))
    assert options.start == AT_EARLIEST
    assert not options.fail_on_data_loss
    assert options.columns[-1] == "headers"


def test_option_given_in_two_spellings_is_refused() -> None:
    assert str(refused({"subscribe": "a", "SUBSCRIBE": "b"})) == (
        "options 'subscribe' and 'SUBSCRIBE' are the same option, given twice"
    )


def test_topics_are_chosen_by_name_pattern_or_partition() -> None:
    assert read(subscribePattern=" order.* ").subscription == Subscription(pattern="order.*")
    assert read(assign='{"a":[1,0]}').subscription == Subscription(partitions=(("a", 0), ("a", 1)))


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"startingOffsets": "Earliest"}, AT_EARLIEST),
        ({"startingOffsets": '{"t":{"0":23,"1":-2}}'}, Bound(partitions={("t", 0): 23, ("t", 1): EARLIEST})),
        ({"startingOffsets": '{"t":"earliest"}'}, Bound(topics={"t": EARLIEST})),
        ({"startingTimestamp": " 1700000000000 "}, Bound(1700000000000, by_time=True)),
        ({"startingOffsetsByTimestamp": '{"t":{"0":5}}'}, Bound(partitions={("t", 0): 5}, by_time=True)),
    ],
)
def test_starting_options_are_parsed(options: dict[str, str], start: Bound) -> None:
    assert read(**options).start == start


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({"endingOffsets": "LATEST"}, AT_LATEST),
        ({"endingOffsets": '{"t":{"0":23,"1":-1}}'}, Bound(partitions={("t", 0): 23, ("t", 1): LATEST})),
        ({"endingOffsets": '{"t":"latest"}'}, Bound(topics={"t": LATEST})),
        ({"endingTimestamp": "0"}, Bound(0, by_time=True)),
        ({"endingOffsetsByTimestamp": '{"t":{"0":5}}'}, Bound(partitions={("t", 0): 5}, by_time=True)),
    ],
)
def test_ending_options_are_parsed(options: dict[str, str], end: Bound) -> None:
    assert read(**options).end == end


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_offset_options_have_the_connectors_precedence(side: str) -> None:
    # As in KafkaRelationSuite: what does not decide is not even parsed.
    by_time = f"{side}Timestamp"
    by_partition_time = f"{side}OffsetsByTimestamp"
    by_offset = f"{side}Offsets"
    field = "start" if side == "starting" else "end"
    everything = {by_offset: "nonsense", by_partition_time: '{"t":{"0":5}}', by_time: "7"}
    assert getattr(read(**everything), field) == Bound(7, by_time=True)
    del everything[by_time]
    assert getattr(read(**everything), field) == Bound(partitions={("t", 0): 5}, by_time=True)
    del everything[by_partition_time]
    assert "Expected e.g." in str(refused(everything))


def test_strategy_for_timestamps_without_a_match_is_parsed() -> None:
    assert read(startingOffsetsByTimestampStrategy="LATEST").on_no_match == "latest"


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("128m", 2**27), ("128MB", 2**27), ("1 g", 2**30), ("64k", 65536), ("7b", 7)]
)
def test_sizes_have_binary_units(text: str, size: int) -> None:
    assert read(maxPartitionBytes=text).max_partition_bytes == size


def test_columns_keep_their_order() -> None:
    assert read(columns="timestamp, OFFSET,timestamptype").columns == ("timestamp", "offset", "timestampType")
    assert read(columns="headers,key").columns == ("headers", "key")
    assert read(columns="headers,key", includeHeaders="true").columns == ("headers", "key")
    assert read(columns="key", includeHeaders="true").columns == ("key", "headers")
    assert read(includeHeaders="true").columns == tuple(COLUMN_TYPES)


def test_isolation_level_is_accepted_under_both_names() -> None:
    assert read(isolationLevel="READ_COMMITTED").read_committed
    assert read(**{"kafka.isolation.level": "read_committed"}).isolation_level == "read_committed"
    assert read(**{"kafka.isolation.level": "read_committed", "isolationLevel": "read_committed"}).read_committed
    assert not read().read_committed


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ({"path": "/a"}, ("/a",)),
        ({"path": " /a , b/c,,"}, ("/a", "b/c")),
        ({"path": '["/a,b", "[c]"]'}, ("/a,b", "[c]")),
        ({"paths": '["/a","/b"]'}, ("/a", "/b")),
        ({"path": "/a,/b,/a"}, ("/a", "/b")),
        ({"path": "file:/a"}, ("/a",)),
        ({"path": "file:///a%20b/c#d?e,FILE://localhost/f"}, ("/a b/c#d?e", "/f")),
        ({"path": Path("/data/ä #1").as_uri()}, ("/data/ä #1",)),
        ({"path": "a:b,x=1:2/c"}, ("a:b", "x=1:2/c")),
    ],
)
def test_path_options_are_parsed(options: dict[str, str], paths: tuple[str, ...]) -> None:
    assert parse_read_options(options).paths == paths


def test_timestamp_in_seconds_is_detected(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="kafkalog_spark"):
        read(startingTimestamp="1700000000")
        read(startingTimestamp="1700000000000")
        read(startingTimestamp="0")
        read(endingTimestamp="1700000001")
        read(endingTimestamp="1700000000000")
    assert caplog.messages == [
        "startingTimestamp=1700000000 is in 1970-01-20, so everything is read: the unit is milliseconds, not seconds",
        "endingTimestamp=1700000001 is in 1970-01-20, so nothing is read: the unit is milliseconds, not seconds",
    ]


def test_options_only_of_the_connector_are_ignored_with_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "kafka.bootstrap.servers": "h:9092",
        "kafka.group.id": "g",
        "groupIdPrefix": "p",
        "kafkaConsumer.pollTimeoutMs": "1",
        "fetchOffset.numRetries": "1",
        "fetchoffset.retryintervalms": "1",
        "kafka.ssl.truststore.location": "/x",
        "maxOffsetsPerTrigger": "not even a number",
        "minOffsetsPerTrigger": "1",
        "maxTriggerDelay": "1",
        "maxFilesPerTrigger": "1",
    } | {"maxOffsetsPerTrigger": "5"}
    with caplog.at_level(logging.INFO, logger="kafkalog_spark"):
        options = read(**given)
    assert options.ignored == tuple(given)
    assert caplog.messages == [f"options without effect on kafkalog: {', '.join(given)}"]


def test_batch_does_not_read_the_rate_options_it_ignores() -> None:
    assert read(maxOffsetsPerTrigger="a", maxTriggerDelay="b").stream is None


def test_without_ignored_options_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="kafkalog_spark"):
        read(subscribe="a", mode="dropmalformed")
    assert caplog.messages == []


def test_stream_ignores_the_ending_timestamp_as_the_connector_does() -> None:
    assert read_stream(endingTimestamp="5").ignored == ("endingTimestamp",)


@pytest.mark.parametrize("name", ["maxFilesPerTrigger", "kafka.client.id", "kafka.max.poll.records"])
def test_harmless_options_of_other_sources_are_ignored(name: str) -> None:
    assert read(**{name: "x"}).ignored == (name,)


def test_table_properties_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """What Spark 4.3 asks for the schema with at CREATE TABLE ... OPTIONS (path, subscribe) TBLPROPERTIES (k)."""
    table = {"location": "file:/p", "subscribe": "x", "option.subscribe": "x", "owner": "me", "k": "v", "provider": "k"}
    assert parse_read_options({**table, "path": "file:/p"}).subscription == Subscription(topics=("x",))
    assert caplog.messages == []
    assert "unknown option 'topics'" in str(refused({**table, "topics": "x", "option.topics": "x"}))


def test_all_topics_option_chooses_every_topic_and_excludes_other_subscriptions() -> None:
    assert read().subscription == read(allTopics="false").subscription == NO_SUBSCRIPTION
    assert read(allTopics="TRUE").subscription == Subscription()
    assert read(allTopics="false", subscribe="a").subscription == Subscription(topics=("a",))
    assert str(refused({"allTopics": "true", "subscribe": "a"})) == (
        "Only one of the following options can be specified for Kafka source: subscribe, subscribepattern, assign. "
        "See the docs for more details. Given: subscribe, allTopics"
    )


def test_read_without_options_names_the_sql_syntax() -> None:
    with pytest.raises(OptionError) as caught:
        parse_read_options({})
    assert "CREATE TEMPORARY VIEW ... USING kafkalog OPTIONS (path '...', subscribe '...')" in str(caught.value)
    assert "SELECT ... FROM table WITH ('path' = '...', 'subscribe' = '...')" in str(caught.value)
    with pytest.raises(OptionError) as caught:
        parse_read_options({"subscribe": "a"})
    assert str(caught.value) == 'no log directory is given; name it in .load("/data/kafka-logs")'


def test_every_default_is_accepted_by_its_option() -> None:
    for option in READ_OPTIONS:
        if option.default is not None:
            option.parse(option.name, option.default)


def test_each_option_is_declared_once() -> None:
    names = [option.name for option in READ_OPTIONS]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("options", [{}, {"subscribePattern": "a", "startingOffsets": '{"t":{"0":1}}'}])
def test_options_survive_pickling(options: dict[str, str]) -> None:
    parsed: Any = read(**options)
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_parsing_and_splitting_need_neither_numba_nor_pyspark() -> None:
    program = (
        "import sys, kafkalog_spark.source.options, kafkalog_spark.source.partition_ranges, "
        "kafkalog_spark.source.range_calculator, "
        "kafkalog_spark.source.filters\n"
        "print([name for name in ('numba', 'pyspark') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
