"""JSON of offsets, timestamps and partitions in options and checkpoints (Spark: `JsonUtils`), parsed strictly.

    offsets      {"topicA":{"0":23,"1":-1},"topicB":"earliest"}   -1 latest, -2 earliest; whole topics: SPARK-58774
    timestamps   {"topicA":{"0":1700000000000}}                   ms; -1 and -2 as in Kafka's ListOffsets
    partitions   {"topicA":[0,1]}

The connector (Jackson) accepts 1.9, true and "23" as numbers, and uses the last of several equal keys. Here these are
errors, because the user most likely means something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64
from kafkalog_spark.format.names import valid_topic_name
from kafkalog_spark.source.bounds import EARLIEST
from kafkalog_spark.source.topic_partitions import TopicPartition

_PARTITION_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


class JsonFault(Exception):
    """Invalid JSON. The text becomes the hint of an OptionError, or part of a MalformedOffsets."""


def load_json(text: str) -> Any:
    """Parse JSON whose numbers are whole and whose objects have distinct keys. Raises JsonFault."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise JsonFault(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise JsonFault("nested too deeply") from None
    except ValueError:  # an integer with more digits than Python converts
        raise JsonFault("a number is too large") from None


def topics_in(value: Any) -> Collection[tuple[str, Any]]:
    """Return the topics of parsed JSON, with their values. Raises JsonFault for an illegal topic name."""
    topics = _members(value, "the topics")
    for topic, _ in topics:
        if not valid_topic_name(topic):
            raise JsonFault(f"{topic!r} is not a legal topic name")
    return topics


def numbers_by_topic(value: Any, noun: str) -> dict[TopicPartition, int]:
    """Return the numbers in parsed JSON `{"topicA":{"0":23}}`.

    Args:
        value: The parsed JSON.
        noun: "an offset" or "a timestamp", for errors.

    Raises:
        JsonFault: If the value has another form.
    """
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in topics_in(value):
        numbers |= numbers_by_partition(topic, partitions, noun)
    return numbers


def numbers_by_partition(topic: str, value: Any, noun: str) -> dict[TopicPartition, int]:
    """Return the numbers in parsed JSON `{"0":23}` of a topic. Arguments and errors are those of `numbers_by_topic`."""
    numbers: dict[TopicPartition, int] = {}
    for partition, number in _members(value, f"the partitions of topic {topic!r}"):
        if not _PARTITION_NUMBER.fullmatch(partition) or int(partition) > MAX_INT32:
            raise JsonFault(f"{short_text(partition)} is not a partition of topic {topic!r}")
        if type(number) is not int or not EARLIEST <= number <= MAX_INT64:
            raise JsonFault(
                f"{short_text(number)} is not {noun} for {topic}-{partition}: "
                "a whole number from 0, or -1 latest, -2 earliest"
            )
        numbers[topic, int(partition)] = number
    return numbers


def short_text(value: object) -> str:
    """Return parsed JSON as text for an error, shortened if it is long."""
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)  # ASCII, because a lone surrogate in a key cannot be printed
    return text if len(text) <= 40 else text[:37] + "..."


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object. Raises JsonFault for a repeated key."""
    result: dict[str, Any] = {}
    for key, member in members:
        if key in result:
            if (type(result[key]) is str) != (type(member) is str):
                raise JsonFault(f"{key!r} has both a topic-level offset and offsets by partition")
            raise JsonFault(f"{key!r} is given twice")
        result[key] = member
    return result


def _no_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity."""
    raise JsonFault(f"{name} is not a whole number")


def _members(value: Any, noun: str) -> Collection[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise JsonFault(f"{noun} must be a JSON object")
    return value.items()
