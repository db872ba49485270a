"""The JSON of options and checkpoints. Accepted and refused texts are those of Spark's JsonUtilsSuite, and stricter."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.bounds import EARLIEST, LATEST, Bound
from kafkalog_spark.source.offsets import offsets_by_topic
from kafkalog_spark.source.partition_options import assigned, bound_by_offset, bound_by_timestamp

EXPECTED_OFFSETS = 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got '
EXPECTED_PARTITIONS = 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got '
EXPECTED_TIMESTAMPS = (
    'Expected e.g. {"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}, got '
)

topics = st.from_regex(r"\A[a-zA-Z0-9._-]{1,20}\Z").filter(lambda topic: topic.strip("."))
topic_partitions = st.tuples(topics, st.integers(0, 2**31 - 1))


def test_partitions_json_is_parsed() -> None:
    assert assigned("assign", '{"topicB":[6,4],"topicA":[0,1]}').partitions == (
        ("topicA", 0),
        ("topicA", 1),
        ("topicB", 4),
        ("topicB", 6),
    )
    assert assigned("assign", "{}").partitions == ()


def test_offsets_json_is_parsed() -> None:
    parsed = bound_by_offset("startingOffsets", ' {"topicA": {"0":23, "1":-1},"topicB":{"0":-2}} ')
    assert parsed == Bound(partitions={("topicA", 0): 23, ("topicA", 1): LATEST, ("topicB", 0): EARLIEST})


def test_whole_topics_may_be_earliest_or_latest() -> None:
    parsed = bound_by_offset("startingOffsets", '{"topicA":"earliest","topicB":{"0":23,"1":-1},"topicC":"LATEST"}')
    partitions = {("topicB", 0): 23, ("topicB", 1): LATEST}
    assert parsed == Bound(partitions=partitions, topics={"topicA": EARLIEST, "topicC": LATEST})


def test_timestamps_json_is_parsed() -> None:
    parsed = bound_by_timestamp("x", '{"t":{"10":1700000000000,"2":0}}')
    assert parsed == Bound(partitions={("t", 10): 1700000000000, ("t", 2): 0}, by_time=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not json", "not JSON: Expecting value at character 0"),
        ("", "not JSON"),
        ('"earliest"', "the topics must be a JSON object"),
        ("[1]", "the topics must be a JSON object"),
        ("null", "the topics must be a JSON object"),
        ('{"topicA":"first"}', "topic 'topicA' needs offsets by partition, 'earliest' or 'latest'"),
        ('{"topicA":[0,1]}', "the partitions of topic 'topicA' must be a JSON object"),
        ('{"topicA":5}', "the partitions of topic 'topicA' must be a JSON object"),
        ('{"topicA":{"0":"earliest"}}', '"earliest" is not an offset for topicA-0'),
        ('{"topicA":{"0":"23"}}', '"23" is not an offset for topicA-0'),
        ('{"topicA":{"0":1.0}}', "1.0 is not an offset for topicA-0"),
        ('{"topicA":{"0":true}}', "true is not an offset for topicA-0"),
        ('{"topicA":{"0":null}}', "null is not an offset for topicA-0"),
        ('{"topicA":{"0":[1]}}', "a list is not an offset for topicA-0"),
        ('{"topicA":{"0":{"1":2}}}', "an object is not an offset for topicA-0"),
        ('{"topicA":{"0":-3}}', "-3 is not an offset for topicA-0: a whole number from 0, or -1 latest, -2 earliest"),
        ('{"topicA":{"0":9223372036854775808}}', "9223372036854775808 is not an offset for topicA-0"),
        ('{"topicA":{"0":' + "9" * 5000 + "}}", "a number is too large"),
        ('{"topicA":{"0":NaN}}', "NaN is not a whole number"),
        ('{"topicA":{"-1":0}}', "\"-1\" is not a partition of topic 'topicA'"),
        ('{"topicA":{"00":0}}', '"00" is not a partition of topic'),
        ('{"topicA":{"2147483648":0}}', '"2147483648" is not a partition of topic'),
        ('{"topicA":{"٣":0}}', "is not a partition of topic"),
        ('{"topicA":{"0":1,"0":2}}', "'0' is given twice"),
        ('{"topicA":{"0":1},"topicA":{"1":2}}', "'topicA' is given twice"),
        ('{"topicA":"earliest","topicA":{"0":23}}', "'topicA' has both a topic-level offset and offsets by partition"),
        ('{"a b":{"0":1}}', "'a b' is not a legal topic name"),
        ('{"..":{"0":1}}', "'..' is not a legal topic name"),
        ('{"\\ud800":{"0":1}}', "is not a legal topic name"),
        ("[" * 100_000, "nested too deeply"),
        ('{"t":{"0":1}} x', "not JSON: Extra data"),
    ],
)
def test_invalid_offsets_name_the_expected_form_and_the_fault(text: str, reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        bound_by_offset("startingOffsets", text)
    assert str(caught.value).startswith(EXPECTED_OFFSETS + text)
    assert "; option 'startingOffsets': " in str(caught.value)
    assert reason in str(caught.value)
    str(caught.value).encode()


@pytest.mark.parametrize(
    "text", ['{"a":[0,0]}', '{"a":[-1]}', '{"a":[1.0]}', '{"a":[true]}', '{"a":["0"]}', '{"a":{"0":1}}', '{"a":0}', "{"]
)
def test_invalid_partitions_name_the_expected_form(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        assigned("assign", text)
    assert str(caught.value).startswith(EXPECTED_PARTITIONS + text + "; option 'assign': ")


@pytest.mark.parametrize("text", ['{"a":"latest"}', '{"a":{"0":-3}}', '{"a":{"0":1e3}}', "123"])
def test_invalid_timestamps_name_the_expected_form(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        bound_by_timestamp("endingOffsetsByTimestamp", text)
    assert str(caught.value).startswith(EXPECTED_TIMESTAMPS + text + "; option 'endingOffsetsByTimestamp': ")


def test_error_is_one_line_for_any_text() -> None:
    with pytest.raises(OptionError) as caught:
        bound_by_offset("startingOffsets", '{\n "topicA"\n}')
    assert "\n" not in str(caught.value)


def test_partitions_are_written_by_number_and_topics_by_name() -> None:
    offsets = {("b", 0): 1, ("a", 10): 2, ("a", 2): 3}
    assert json.dumps(offsets_by_topic(offsets)) == '{"a": {"2": 3, "10": 2}, "b": {"0": 1}}'


@given(st.dictionaries(topic_partitions, st.integers(-2, 2**63 - 1), max_size=20))
def test_offsets_round_trip(offsets: dict[tuple[str, int], int]) -> None:
    for separators in ((",", ":"), None):  # as the connector writes them, and as Python does in a checkpoint
        text = json.dumps(offsets_by_topic(offsets), separators=separators)
        assert bound_by_offset("x", text) == Bound(partitions=offsets)
        assert bound_by_timestamp("x", text) == Bound(partitions=offsets, by_time=True)


@given(st.dictionaries(topic_partitions, st.integers(0, 9), min_size=2, max_size=20), st.randoms())
def test_equal_offsets_have_equal_text(offsets: dict[tuple[str, int], int], random: object) -> None:
    shuffled = list(offsets.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert json.dumps(offsets_by_topic(dict(shuffled))) == json.dumps(offsets_by_topic(offsets))


@given(st.sets(topic_partitions, max_size=20))
def test_partitions_round_trip(partitions: set[tuple[str, int]]) -> None:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    assert assigned("assign", json.dumps(by_topic)).partitions == tuple(sorted(partitions))


@given(
    st.text(max_size=30)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["t", "0", "1", "-1"]), inner),
    ).map(json.dumps)
)
def test_any_text_is_parsed_or_refused_with_an_option_error(text: str) -> None:
    for parse in (bound_by_offset, bound_by_timestamp, assigned):
        with contextlib.suppress(OptionError):
            parse("x", text)  # any other exception fails the test
