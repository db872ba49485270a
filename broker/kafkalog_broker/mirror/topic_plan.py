"""Which local topics are made, enlarged or made anew, from what a cluster has: decisions on plain data."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkalog_broker.protocol.source_calls import SourceTopic
from kafkalog_broker.storage.topics_file import Topic
from kafkalog_spark.log.format.names import (
    CLUSTER_METADATA_TOPIC,
    MAX_TOPIC_NAME_LENGTH,
    is_internal,
    valid_topic_name,
)

_NO_ID = uuid.UUID(int=0)


@dataclass(slots=True)
class TopicPlan:
    """create: not here yet. enlarge: with more partitions at the source. anew: deleted at the source and made again,
    what is here is of the old one. gone: here, and not at the source any more. odd: why a topic is left alone."""

    create: list[SourceTopic] = field(default_factory=list)
    enlarge: list[SourceTopic] = field(default_factory=list)
    anew: list[SourceTopic] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    odd: dict[str, str] = field(default_factory=dict)


def is_wanted(topic: SourceTopic, pattern: re.Pattern[str], *, internal: bool) -> bool:
    """Whether the topic is to be mirrored: its whole name matches; internal ones only when they are asked for. What is
    internal here the source need not call so. A name too long for any topic is not matched: `plan_topics` says it."""
    if topic.name == CLUSTER_METADATA_TOPIC or not (internal or not (topic.is_internal or is_internal(topic.name))):
        return False
    return len(topic.name) > MAX_TOPIC_NAME_LENGTH or pattern.fullmatch(topic.name) is not None


def is_same(topic: SourceTopic, mine: Topic) -> bool:
    """Whether the local topic is a copy of this one, as far as ids tell."""
    return topic.id in (_NO_ID, mine.id)


def plan_topics(local: Mapping[str, Topic], wanted: Mapping[str, SourceTopic]) -> TopicPlan:
    """wanted: the source's topics that are to be mirrored."""
    plan = TopicPlan()
    for name, topic in wanted.items():
        mine, count = local.get(name), len(topic.partitions)
        missing = next((index for index in range(count) if index not in topic.partitions), None)
        if not valid_topic_name(name):
            plan.odd[name] = "no topic can have this name"
        elif missing is not None or not count:
            plan.odd[name] = f"its metadata lists {count} partitions, and {missing or 0} is not one of them"
        elif mine is None:
            plan.create.append(topic)
        elif not is_same(topic, mine):
            plan.anew.append(topic)
        elif count > mine.partitions:
            plan.enlarge.append(topic)
        elif count < mine.partitions and topic.id == _NO_ID:
            plan.anew.append(topic)
        elif count < mine.partitions:  # no topic loses partitions: the node is behind
            plan.odd[name] = f"its metadata lists {count} partitions, it had {mine.partitions}"
    plan.gone = [name for name in local if name not in wanted]
    return plan
