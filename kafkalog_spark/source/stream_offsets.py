"""The offsets of a stream: positions by partition, as Spark keeps them in a query's checkpoint.

    {"topicA": {"0": 23, "1": 345}}

The structure is that of the Kafka source, so a checkpoint can be handed from one source to the other. A number is the
next offset to be read. Spark compares offsets as text, so they are always written alike: topics sorted, partitions by
number. In the offsets that a query begins with, and nowhere else, -2 stands for earliest and -1 for latest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from kafkalog_spark.errors import MalformedOffsets
from kafkalog_spark.log.format.layout import MAX_INT32, MAX_INT64
from kafkalog_spark.source.offset_range_limit import EARLIEST, TopicPartition
from kafkalog_spark.source.offsets_json import LEGAL_TOPIC, PARTITION_NUMBER, offsets_by_topic

Offsets = dict[TopicPartition, int]
JsonOffsets = dict[str, dict[str, int]]

_EXPECTED = '{"topicA":{"0":23,"1":345},"topicB":{"0":7}}'
_SHOWN = 200  # characters of a checkpoint in an error


def offsets_of(value: Any) -> Offsets:
    """What Spark hands over, parsed from JSON. Raises MalformedOffsets."""
    if not isinstance(value, Mapping):
        _refuse(value, "not a JSON object of topics")
    offsets: Offsets = {}
    for topic, partitions in value.items():
        if not LEGAL_TOPIC.fullmatch(topic):
            _refuse(value, f"{topic!r} is not a legal topic name")
        if not isinstance(partitions, Mapping):
            _refuse(value, f"topic {topic!r} needs offsets by partition")
        for partition, offset in partitions.items():
            if not PARTITION_NUMBER.fullmatch(partition) or int(partition) > MAX_INT32:
                _refuse(value, f"{partition!r} is not a partition of topic {topic!r}")
            if type(offset) is not int or not EARLIEST <= offset <= MAX_INT64:
                _refuse(value, f"{offset!r} is not an offset of {topic}-{partition}")
            offsets[topic, int(partition)] = offset
    return offsets


def json_of(offsets: Mapping[TopicPartition, int]) -> JsonOffsets:
    """The offsets in their one order, for Spark's json.dumps."""
    return offsets_by_topic(offsets)


def parse_offsets_text(text: str) -> Offsets:
    """The JSON of a checkpoint or of a query's progress. Raises MalformedOffsets."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        _refuse(text, "not JSON")
    return offsets_of(value)


def _refuse(value: Any, why: str) -> NoReturn:
    text = value if isinstance(value, str) else json.dumps(value)
    raise MalformedOffsets(
        f"the query's offsets cannot be used: {why}: expected e.g. {_EXPECTED}, "
        f"got {text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...'}",
        hint="the files in the checkpoint's directory offsets/ hold them, a line for each source of the query; is it "
        "the checkpoint of this query?",
    )
