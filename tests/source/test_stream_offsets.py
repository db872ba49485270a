"""Offsets of a stream: the structure of the Kafka source's, one text for the same offsets, errors that say what."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import KafkalogError, MalformedOffsets
from kafkalog_spark.source.offsets import json_of, offsets_of, parse_offsets_text

PARTITIONS = st.tuples(st.sampled_from(["a", "b.c", "a-1", "Z_9"]), st.integers(0, 2**31 - 1))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=20)


@given(OFFSETS)
def test_offsets_come_back_from_their_json(offsets: dict[tuple[str, int], int]) -> None:
    assert offsets_of(json.loads(json.dumps(json_of(offsets)))) == offsets


@given(OFFSETS, st.randoms())
def test_the_same_offsets_have_one_text(offsets: dict[tuple[str, int], int], random: Any) -> None:
    items = list(offsets.items())
    random.shuffle(items)
    assert json.dumps(json_of(dict(items))) == json.dumps(json_of(offsets))


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    assert json.dumps(json_of({("t", 10): 1, ("t", 9): 2, ("s", 0): 3})) == '{"s": {"0": 3}, "t": {"9": 2, "10": 1}}'


def test_what_the_kafka_source_writes_is_read() -> None:
    assert parse_offsets_text('{"topic":{"8":1,"2":1,"5":0},"a":{}}') == {
        ("topic", 8): 1,
        ("topic", 2): 1,
        ("topic", 5): 0,
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("23", "not a JSON object of topics"),
        ("[1]", "not a JSON object of topics"),
        ('{"t":5}', "topic 't' needs offsets by partition"),
        ('{"t":[0]}', "topic 't' needs offsets by partition"),
        ('{"t":{"x":5}}', "'x' is not a partition of topic 't'"),
        ('{"t":{"-1":5}}', "'-1' is not a partition of topic 't'"),
        ('{"t":{"99999999999":5}}', "'99999999999' is not a partition of topic 't'"),
        ('{"t":{"0":"5"}}', "'5' is not an offset of t-0"),
        ('{"t":{"0":5.0}}', "5.0 is not an offset of t-0"),
        ('{"t":{"0":true}}', "True is not an offset of t-0"),
        ('{"t":{"0":null}}', "None is not an offset of t-0"),
        ('{"t":{"0":-3}}', "-3 is not an offset of t-0"),
        ('{"t":{"0":9223372036854775808}}', "9223372036854775808 is not an offset of t-0"),
        ('{"a/b":{"0":5}}', "'a/b' is not a legal topic name"),
        ('{"logOffset":3}', "topic 'logOffset' needs offsets by partition"),
        ('{"t":', "not JSON"),
        ("", "not JSON"),
    ],
)
def test_malformed_offsets(text: str, why: str) -> None:
    with pytest.raises(MalformedOffsets) as caught:
        parse_offsets_text(text)
    text = str(caught.value)
    assert text.startswith(f"the query's offsets cannot be used: {why}: expected e.g. ")
    assert '{"topicA":{"0":23,"1":345},"topicB":{"0":7}}, got ' in text
    assert "is it the checkpoint of this query?" in str(caught.value)
    assert isinstance(caught.value, KafkalogError)


def test_an_error_shows_the_beginning_of_long_offsets() -> None:
    with pytest.raises(MalformedOffsets) as caught:
        offsets_of({"t": {str(partition): "x" for partition in range(1000)}})
    assert len(str(caught.value)) < 700
