"""Offsets of a stream: the structure of the Kafka source's, one text for the same offsets, errors that say what."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import KafkalogError, MalformedOffsets
from kafkalog_spark.source.offsets import offsets_by_topic, offsets_of, topic_ids_of

PARTITIONS = st.tuples(st.sampled_from(["a", "b.c", "a-1", "Z_9"]), st.integers(0, 2**31 - 1))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=20)
TOPIC_IDS = st.dictionaries(st.sampled_from(["a", "b.c", "a-1", "Z_9"]), st.uuids())


@given(OFFSETS, TOPIC_IDS, st.randoms())
def test_offsets_with_topic_ids_round_trip_and_have_one_text(
    offsets: dict[tuple[str, int], int], topic_ids: dict[str, uuid.UUID], random: Any
) -> None:
    text = json.dumps(offsets_by_topic(offsets, topic_ids))
    assert offsets_of(text) == offsets
    assert topic_ids_of(json.loads(text)) == topic_ids
    items = list(topic_ids.items())
    random.shuffle(items)
    assert json.dumps(offsets_by_topic(offsets, dict(items))) == text


def test_topic_id_is_a_topic_without_partitions_to_the_kafka_source() -> None:
    topic_id = uuid.UUID("cd6c8080-cb99-4104-8f11-5a1011646681")
    assert offsets_by_topic({("t", 0): 5}, {"t": topic_id}) == {"t": {"0": 5}, "t@zWyAgMuZQQSPEVoQEWRmgQ": {}}


@given(OFFSETS)
def test_offsets_round_trip_through_json(offsets: dict[tuple[str, int], int]) -> None:
    assert offsets_of(json.loads(json.dumps(offsets_by_topic(offsets)))) == offsets


@given(OFFSETS, st.randoms())
def test_equal_offsets_have_equal_text(offsets: dict[tuple[str, int], int], random: Any) -> None:
    items = list(offsets.items())
    random.shuffle(items)
    assert json.dumps(offsets_by_topic(dict(items))) == json.dumps(offsets_by_topic(offsets))


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    assert (
        json.dumps(offsets_by_topic({("t", 10): 1, ("t", 9): 2, ("s", 0): 3}))
        == '{"s": {"0": 3}, "t": {"9": 2, "10": 1}}'
    )


def test_offsets_of_the_kafka_source_are_read() -> None:
    assert offsets_of('{"topic":{"8":1,"2":1,"5":0},"a":{}}') == {
        ("topic", 8): 1,
        ("topic", 2): 1,
        ("topic", 5): 0,
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("23", "the topics must be a JSON object"),
        ("[1]", "the topics must be a JSON object"),
        ('{"t":5}', "the partitions of topic 't' must be a JSON object"),
        ('{"t":[0]}', "the partitions of topic 't' must be a JSON object"),
        ('{"t":{"x":5}}', "\"x\" is not a partition of topic 't'"),
        ('{"t":{"-1":5}}', "\"-1\" is not a partition of topic 't'"),
        ('{"t":{"99999999999":5}}', "\"99999999999\" is not a partition of topic 't'"),
        ('{"t":{"0":"5"}}', '"5" is not an offset for t-0'),
        ('{"t":{"0":5.0}}', "5.0 is not an offset for t-0"),
        ('{"t":{"0":true}}', "true is not an offset for t-0"),
        ('{"t":{"0":null}}', "null is not an offset for t-0"),
        ('{"t":{"0":-3}}', "-3 is not an offset for t-0"),
        ('{"t":{"0":9223372036854775808}}', "9223372036854775808 is not an offset for t-0"),
        ('{"a/b":{"0":5}}', "'a/b' is not a legal topic name"),
        ('{"t@":{}}', "'t@' is not a legal topic name"),
        ('{"t@short":{}}', "'t@short' is not a legal topic name"),
        ('{"logOffset":3}', "the partitions of topic 'logOffset' must be a JSON object"),
        ('{"t":', "not JSON"),
        ("", "not JSON"),
    ],
)
def test_malformed_offsets_name_the_fault(text: str, why: str) -> None:
    with pytest.raises(MalformedOffsets) as caught:
        offsets_of(text)
    text = str(caught.value)
    fault = f"{why}: a whole number from 0, or -1 latest, -2 earliest" if "offset for" in why else why
    assert text.startswith(f"the query's offsets cannot be used: {fault}: expected e.g. ")
    assert '{"topicA":{"0":23,"1":345},"topicB":{"0":7}}, got ' in text
    assert "does the checkpoint belong to this query?" in str(caught.value)
    assert isinstance(caught.value, KafkalogError)


def test_error_shows_the_beginning_of_long_offsets() -> None:
    with pytest.raises(MalformedOffsets) as caught:
        offsets_of({"t": {str(partition): "x" for partition in range(1000)}})
    assert len(str(caught.value)) < 700
