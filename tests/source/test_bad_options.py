"""Options that are refused, and what is said of them: the messages of Spark's Kafka connector, and ours."""

from __future__ import annotations

import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.foreign_options import REFUSED
from kafkalog_spark.source.option_parsing import parse_read_options
from tests.source.helpers.given_options import refused

# Bad values: (options, message). `...` at the end: the message goes on.
BAD_BATCH: list[tuple[dict[str, str], str]] = [
    (
        {"subscribe": "a", "assign": '{"a":[0]}'},
        (
            "Only one of the following options can be specified for Kafka source: subscribe, subscribepattern, assign. "
            "See the docs for more details. Given: subscribe, assign"
        ),
    ),
    ({"assign": ""}, "No topicpartitions to assign as specified value for option 'assign' is ''"),
    ({"assign": "a"}, "No topicpartitions to assign as specified value for option 'assign' is 'a'"),
    ({"assign": '{"a":0}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"a":0}; option \'assign\': ...'),
    ({"subscribe": ""}, "No topics to subscribe to as specified value for option 'subscribe' is ''"),
    ({"subscribe": ","}, "No topics to subscribe to as specified value for option 'subscribe' is ','"),
    ({"subscribePattern": ""}, "Pattern to subscribe is empty as specified value for option 'subscribePattern' is ''"),
    (
        {"subscribePattern": "a("},
        "option 'subscribePattern' is not a regular expression that can be used here: 'a('...",
    ),
    ({"subscribePattern": r"\p{Alpha}"}, "option 'subscribePattern' is not a regular expression that can be used ..."),
    ({"subscribePattern": "[a-z&&[b]]"}, "option 'subscribePattern' is not a regular expression that can be used ..."),
    ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
    ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest for batch queries on Kafka"),
    ({"startingOffsets": '{"t":"latest"}'}, "startingOffsets for t can't be latest for batch queries on Kafka"),
    ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
    ({"endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest for batch queries on Kafka"),
    ({"endingOffsets": '{"t":"earliest"}'}, "ending offset for t can't be earliest for batch queries on Kafka"),
    (
        {"startingOffsets": "oldest"},
        'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got oldest; option \'startingOffsets\': ...',
    ),
    ({"startingTimestamp": "now"}, "Expected a single long value, got now; option 'startingTimestamp' is in milli..."),
    ({"endingTimestamp": "1.5"}, "Expected a single long value, got 1.5; ..."),
    ({"endingTimestamp": "9223372036854775808"}, "Expected a single long value, got 9223372036854775808; ..."),
    ({"startingTimestamp": "-3"}, "Expected a timestamp from 0, or -1 latest, -2 earliest, got -3; ..."),
    (
        {"startingOffsetsByTimestamp": "1"},
        (
            'Expected e.g. {"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}, '
            "got 1; ..."
        ),
    ),
    (
        {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"0":0}}'},
        "t-0: The specified start offset 1 is greater than the end offset 0 for topic t partition 0.",
    ),
    (
        {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"0":1,"1":1}}'},
        "The specified start offset and end offset should have the same topic-partitions. ...",
    ),
    (
        {"startingOffsetsByTimestampStrategy": "earliest"},
        "option 'startingOffsetsByTimestampStrategy' must be one of error, latest, got 'earliest'",
    ),
    ({"minPartitions": "0"}, "minPartitions must be positive; got 0"),
    ({"minPartitions": "-1"}, "minPartitions must be positive; got -1"),
    ({"minPartitions": "a"}, "For input string: \"a\"; option 'minPartitions' must be a whole number ..."),
    ({"minPartitions": "1.0"}, 'For input string: "1.0"; ...'),
    ({"minPartitions": "2147483648"}, 'For input string: "2147483648"; ...'),
    ({"minPartitions": "٣"}, 'For input string: "٣"; ...'),
    ({"minPartitions": ""}, 'For input string: ""; ...'),
    ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition must be positive; got 0"),
    ({"maxRecordsPerPartition": "9223372036854775808"}, 'For input string: "9223372036854775808"; ...'),
    ({"failOnDataLoss": "yes"}, "For input string: \"yes\"; option 'failOnDataLoss' must be true or false"),
    ({"includeHeaders": "1"}, "For input string: \"1\"; option 'includeHeaders' must be true or false"),
    (
        {"kafka.isolation.level": "intentionally_invalid"},
        "option 'kafka.isolation.level' must be one of read_uncommitted, read_committed, got 'intentionally_invalid'",
    ),
    ({"isolationLevel": ""}, "option 'isolationLevel' must be one of read_uncommitted, read_committed, got ''"),
    (
        {"isolationLevel": "read_uncommitted", "kafka.isolation.level": "read_committed"},
        "option 'isolationLevel' is read_uncommitted, but 'kafka.isolation.level' is read_committed",
    ),
    (
        {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"},
        "The value of minOffsetPerTrigger(20) is higher than the maxOffsetsPerTrigger(15).",
    ),
    ({"columns": "offset,ofset"}, "option 'columns': no column 'ofset'; the columns are key, value, topic, ..."),
    ({"columns": ""}, "option 'columns': no column ''; ..."),
    ({"columns": "offset,OFFSET"}, "option 'columns' names a column twice: 'offset,OFFSET'"),
    ({"maxPartitionBytes": "0"}, "maxPartitionBytes must be positive and at most 9223372036854775807 bytes; got 0"),
    ({"maxPartitionBytes": "9999999t"}, "maxPartitionBytes must be positive and at most ..."),
    ({"maxPartitionBytes": "1.5g"}, "option 'maxPartitionBytes' must be a size such as 134217728, 128m or 1g, ..."),
    ({"maxPartitionBytes": "-1"}, "option 'maxPartitionBytes' must be a size such as ..."),
    ({"maxPartitionBytes": "128x"}, "option 'maxPartitionBytes' must be a size such as ..."),
    ({"pushdown": "on"}, "option 'pushdown' must be one of auto, true, false, got 'on'"),
    ({"mode": "LENIENT"}, "option 'mode' must be one of FAILFAST, DROPMALFORMED, PERMISSIVE, got 'LENIENT'"),
    ({"path": ""}, "option 'path' names no path: ''"),
    ({"path": " , "}, "option 'path' names no path: ','"),
    (
        {"path": "[1]"},
        "option 'path' must be a path, several paths separated by commas, or a JSON list, got '[1]'; ...",
    ),
    (
        {"path": "[logs"},
        "option 'path' must be a path, several paths separated by commas, or a JSON list, got '[logs'; ...",
    ),
    ({"path": "s3a:///x"}, "s3a:///x names no bucket; write s3://bucket/path"),
    (
        {"path": "hdfs:/x"},
        "option 'path': it names neither a local directory nor one in an object store, got 'hdfs:/x'; ...",
    ),
    (
        {"path": "file://host/x"},
        "option 'path': it names neither a local directory nor one in an object store, got 'file://...",
    ),
    ({"fs.s3a.acess.key": "x"}, "there is no option fs.s3a.acess.key; did you mean fs.s3a.access.key?"),
    ({"storage.regionn": "x"}, "there is no option storage.regionn; did you mean storage.region?"),
    ({"path": "/a\0b"}, "option 'path': not a path: '/a\\x00b'"),
    ({"paths": '["/a"]'}, "options 'path' and 'paths' are both given; name all directories in .load(...)"),
]


@pytest.mark.parametrize(("options", "message"), BAD_BATCH, ids=str)
def test_batch_with_invalid_options_raises_the_connectors_message(options: dict[str, str], message: str) -> None:
    text = str(refused(options))
    if message.endswith("..."):
        assert text.startswith(message[:-3])
    else:
        assert text == message
    assert "\n" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":5}}'}, "ending timestamp not valid in streaming queries"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be positive; got 0"),
        (
            {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"},
            "The value of minOffsetPerTrigger(20) is higher than the maxOffsetsPerTrigger(15).",
        ),
        ({"maxTriggerDelay": "5 weeks"}, "option 'maxTriggerDelay' must be a time such as 15m, 30s or 500ms, got ..."),
    ],
)
def test_stream_with_invalid_options_raises_the_connectors_message(options: dict[str, str], message: str) -> None:
    text = str(refused(options, streaming=True))
    assert text == message or (message.endswith("...") and text.startswith(message[:-3]))


def test_read_without_a_path_is_refused() -> None:
    with pytest.raises(OptionError, match="no log directory is given"):
        parse_read_options({"subscribe": "a"})


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_kafka_config_is_refused_by_name(name: str) -> None:
    assert f"Kafka option '{name.removeprefix('kafka.')}' is not supported" in str(refused({name.upper(): "x"}))


@pytest.mark.parametrize(
    ("typo", "nearest"),
    [
        ("startingOffset", "startingOffsets"),
        ("startOffsets", "startingOffsets"),
        ("starting_offsets", "startingOffsets"),
        ("endingTimestmp", "endingTimestamp"),
        ("subscribed", "subscribe"),
        ("column", "columns"),
        ("push_down", "pushdown"),
        ("fail_on_data_loss", "failOnDataLoss"),
        ("isolation_level", "isolationLevel"),
        ("groupIdPrefx", "groupIdPrefix"),
        ("kafka.isolation_level", "kafka.isolation.level"),
        ("topic", "subscribe"),
        ("Topics", "subscribe"),
        ("partitions", "assign"),
        ("maxOffsets", "maxOffsetsPerTrigger"),
        ("maxFilePerTrigger", "maxOffsetsPerTrigger"),  # maxFilesPerTrigger has no effect
        ("replica", "replicas"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_unknown_option_names_the_similar_known_option(typo: str, nearest: str, streaming: bool) -> None:
    assert str(refused({typo: "x"}, streaming)) == f"unknown option '{typo}'; did you mean '{nearest}'?"


@pytest.mark.parametrize("name", ["pathGlobFilter", "x", "basePath", "mergeSchema"])
@pytest.mark.parametrize("streaming", [False, True])
def test_unknown_option_without_a_similar_one_is_refused_by_name(name: str, streaming: bool) -> None:
    assert str(refused({name: "x"}, streaming)).startswith(f"unknown option '{name}'; ")
