"""The JSON of topics and partitions in options and checkpoints: read strictly, written canonically (Spark's JsonUtils).

    offsets      {"topicA":{"0":23,"1":-1},"topicB":"earliest"}   -1 latest, -2 earliest; whole topics: SPARK-58774
    timestamps   {"topicA":{"0":1700000000000}}                   ms; -1 and -2 as in Kafka's ListOffsets
    partitions   {"topicA":[0,1]}

The connector (Jackson) reads 1.9, true and "23" as numbers and lets the last of two equal keys win. Those are errors
here: each would read something else than what is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.format.layout import MAX_INT32, MAX_INT64
from kafkalog_spark.source.offset_range_limit import EARLIEST, LATEST, SpecificOffsets, TopicPartition

_EXPECTED_PARTITIONS = '{"topicA":[0,1],"topicB":[0,1]}'
_EXPECTED_OFFSETS = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_EXPECTED_TIMESTAMPS = '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'

LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # Kafka's Topic.validate

_WHOLE_TOPIC = {"latest": LATEST, "earliest": EARLIEST}
PARTITION_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


class _Fault(Exception):
    """What is wrong with the text; becomes the hint of an OptionError."""


class _Members(list[tuple[str, Any]]):
    """A JSON object as its members in order, so that a key given twice is seen."""


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """`{"topicA":[0,1]}`: the partitions, sorted. Raises OptionError naming `option`."""
    try:
        found: list[TopicPartition] = []
        for topic, partitions in _topics(text):
            if type(partitions) is not list:
                raise _Fault(f"topic {topic!r} needs a list of partitions")
            for partition in partitions:
                if type(partition) is not int or not 0 <= partition <= MAX_INT32:
                    raise _Fault(f"{_short(partition)} is not a partition of topic {topic!r}")
                found.append((topic, partition))
        if len(set(found)) != len(found):
            raise _Fault("a partition is given twice")
        return tuple(sorted(found))
    except _Fault as fault:
        _refuse(option, text, _EXPECTED_PARTITIONS, fault)


def parse_offsets(option: str, text: str) -> SpecificOffsets:
    """`{"topicA":{"0":23,"1":-1},"topicB":"latest"}`. Raises OptionError naming `option`."""
    try:
        offsets: dict[TopicPartition, int] = {}
        topics: dict[str, int] = {}
        for topic, value in _topics(text):
            if type(value) is str:
                if value.lower() not in _WHOLE_TOPIC:
                    raise _Fault(f"topic {topic!r} needs offsets by partition, 'earliest' or 'latest'")
                topics[topic] = _WHOLE_TOPIC[value.lower()]
            else:
                offsets |= _numbers_by_partition(topic, value, "an offset")
        return SpecificOffsets(offsets, topics)
    except _Fault as fault:
        _refuse(option, text, _EXPECTED_OFFSETS, fault)


def parse_timestamps(option: str, text: str) -> dict[TopicPartition, int]:
    """`{"topicA":{"0":1700000000000}}`: ms by partition. Raises OptionError naming `option`."""
    try:
        timestamps: dict[TopicPartition, int] = {}
        for topic, value in _topics(text):
            timestamps |= _numbers_by_partition(topic, value, "a timestamp")
        return timestamps
    except _Fault as fault:
        _refuse(option, text, _EXPECTED_TIMESTAMPS, fault)


def offsets_by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """`{"topic": {"0": 23}}` in canonical order: topics sorted, partitions by number.

    Spark compares the offsets of a stream as text, so the same offsets must always be written alike.
    """
    result: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        result.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return result


def _load(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_Members, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise _Fault(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise _Fault("nested too deeply") from None
    except ValueError:  # an integer of more digits than Python converts
        raise _Fault("a number is too large") from None


def _no_constant(name: str) -> NoReturn:
    raise _Fault(f"{name} is not a whole number")


def _members(value: Any, what: str) -> _Members:
    if type(value) is not _Members:
        raise _Fault(f"{what} must be a JSON object")
    seen: dict[str, Any] = {}
    for key, member in value:
        if key in seen:
            if (type(seen[key]) is str) != (type(member) is str):
                raise _Fault(f"{key!r} has both a topic-level offset and offsets by partition")
            raise _Fault(f"{key!r} is given twice")
        seen[key] = member
    return value


def _topics(text: str) -> _Members:
    topics = _members(_load(text), "the topics")
    for topic, _ in topics:
        if not LEGAL_TOPIC.fullmatch(topic):
            raise _Fault(f"{topic!r} is not a legal topic name")
    return topics


def _numbers_by_partition(topic: str, value: Any, what: str) -> dict[TopicPartition, int]:
    numbers: dict[TopicPartition, int] = {}
    for partition, number in _members(value, f"the partitions of topic {topic!r}"):
        if not PARTITION_NUMBER.fullmatch(partition) or int(partition) > MAX_INT32:
            raise _Fault(f"{_short(partition)} is not a partition of topic {topic!r}")
        if type(number) is not int or not EARLIEST <= number <= MAX_INT64:
            raise _Fault(
                f"{_short(number)} is not {what} for {topic}-{partition}: "
                "a whole number from 0, or -1 latest, -2 earliest"
            )
        numbers[topic, int(partition)] = number
    return numbers


def _short(value: object) -> str:
    if isinstance(value, list):
        return "an object" if type(value) is _Members else "a list"
    text = json.dumps(value)  # ASCII: half a surrogate pair in a key cannot be printed
    return text if len(text) <= 40 else text[:37] + "..."


def _refuse(option: str, text: str, expected: str, fault: _Fault) -> NoReturn:
    one_line = " ".join(text.split())
    raise OptionError(f"Expected e.g. {expected}, got {one_line}", hint=f"option '{option}': {fault}") from None
