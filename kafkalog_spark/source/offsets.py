"""Offsets of a stream, and their JSON in checkpoints and in the progress of queries.

The JSON is that of Spark's Kafka source, so that each of the two sources can use a checkpoint of the other. A
checkpoint of kafkalog also has the IDs of the topics, `"topicA@<topic id>":{}`, for Kafka 2.8 and newer. The Kafka
source ignores such a member, as it ignores every topic without partitions.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kafkalog_spark.errors import MalformedOffsets
from kafkalog_spark.format.names import valid_topic_name
from kafkalog_spark.format.partition_metadata import uuid_from_text, uuid_to_text
from kafkalog_spark.source.partition_json import JsonFault, numbers_by_topic
from kafkalog_spark.source.topic_partitions import TopicPartition

Offsets = dict[TopicPartition, int]
"""Next offsets of a stream. Only the initial offsets of a query may be -2 (earliest) or -1 (latest)."""
JsonOffsets = dict[str, dict[str, int]]
"""Parsed JSON of offsets, as Spark exchanges it with a reader."""

_SHOWN = 200  # characters of a checkpoint in an error
_TOPIC_ID_SEPARATOR = "@"  # not allowed in topic names


def offsets_by_topic(
    offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, uuid.UUID] = MappingProxyType({})
) -> dict[str, dict[str, int]]:
    """Return `{"topic": {"0": 23}, "topic@<id>": {}}`, with topics sorted and partitions ordered by number.

    Spark compares the offsets of a stream as text, so equal offsets must have equal text.
    """
    result: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        result.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return result | {f"{topic}{_TOPIC_ID_SEPARATOR}{uuid_to_text(id_)}": {} for topic, id_ in sorted(topic_ids.items())}


def offsets_of(value: Any) -> Offsets:
    """Return the offsets of a checkpoint or of a query's progress, without topic IDs.

    Args:
        value: The JSON, as text or parsed.

    Raises:
        MalformedOffsets: If `value` is not what kafkalog or Spark's Kafka source writes.
    """
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        if isinstance(parsed, Mapping):
            parsed = {topic: partitions for topic, partitions in parsed.items() if _topic_id(topic) is None}
        return numbers_by_topic(parsed, "an offset")
    except (JsonFault, ValueError, RecursionError) as fault:
        reason = fault if isinstance(fault, JsonFault) else "not JSON"
        text = value if isinstance(value, str) else json.dumps(value)
        raise MalformedOffsets(
            f"the query's offsets cannot be used: {reason}: expected e.g. "
            '{"topicA":{"0":23,"1":345},"topicB":{"0":7}}, '
            f"got {text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...'}",
            hint="the offsets are in the files of the checkpoint's directory offsets/, a line for each source of the "
            "query; does the checkpoint belong to this query?",
        ) from None


def topic_ids_of(offsets: Mapping[str, Any]) -> dict[str, uuid.UUID]:
    """Return the topic IDs in the offsets of a checkpoint, by topic. The Kafka source and older Kafka have none."""
    return dict(topic_and_id for member in offsets if (topic_and_id := _topic_id(member)) is not None)


def _topic_id(member: str) -> tuple[str, uuid.UUID] | None:
    """Return (topic, topic id) if a member's name is `topic@id`."""
    topic, _, text = member.partition(_TOPIC_ID_SEPARATOR)
    try:
        return (topic, uuid_from_text(text)) if valid_topic_name(topic) else None
    except ValueError:
        return None
