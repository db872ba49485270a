"""Compares a mirror's topics with the source's, and decides which to create, enlarge or recreate."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kafkalog_broker.protocol.mirror_messages import NO_ID, SourceTopic
from kafkalog_broker.storage.topic import Topic
from kafkalog_spark.format.names import CLUSTER_METADATA_TOPIC, MAX_TOPIC_NAME_LENGTH, is_internal, valid_topic_name


@dataclass(slots=True)
class TopicPlan:
    """Changes to local topics.

    Attributes:
        create: Topics that do not exist here.
        enlarge: Topics with more partitions at the source.
        recreate: Topics that were deleted at the source and created again.
        gone: Local topics that are no longer mirrored.
        refused: Topics that cannot be mirrored, with the reason.
    """

    create: list[SourceTopic] = field(default_factory=list)
    enlarge: list[SourceTopic] = field(default_factory=list)
    recreate: list[SourceTopic] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def is_wanted(topic: SourceTopic, pattern: re.Pattern[str], *, internal: bool) -> bool:
    """Return whether a topic is to be mirrored: its whole name matches, and it is not internal unless `internal`.

    The source need not flag topics as internal that are internal here. A name that is too long counts as a match, so
    that `plan_topics` reports it.
    """
    if topic.name == CLUSTER_METADATA_TOPIC or not (internal or not (topic.is_internal or is_internal(topic.name))):
        return False
    return len(topic.name) > MAX_TOPIC_NAME_LENGTH or pattern.fullmatch(topic.name) is not None


def unmatched_names(pattern: re.Pattern[str], wanted: Collection[str]) -> list[str]:
    """Return the alternatives of a pattern such as `orders|clicks` that are plain names, and match none of `wanted`."""
    names = [part for part in pattern.pattern.split("|") if re.fullmatch(r"[a-zA-Z0-9._-]+", part)]
    return [name for name in names if not any(re.fullmatch(name, topic) for topic in wanted)]


def is_same(topic: SourceTopic, local_topic: Topic) -> bool:
    """Return whether the local topic is a copy of this one, as far as IDs tell."""
    return topic.id in (NO_ID, local_topic.id)


def plan_topics(local: Mapping[str, Topic], wanted: Mapping[str, SourceTopic]) -> TopicPlan:
    """Compare local topics with the source's topics that are to be mirrored."""
    plan = TopicPlan()
    for name, topic in wanted.items():
        local_topic = local.get(name)
        count = len(topic.partitions)
        missing = next((index for index in range(count) if index not in topic.partitions), None)
        if not valid_topic_name(name):
            plan.refused[name] = "the name is not a valid topic name"
        elif missing is not None or not count:
            plan.refused[name] = f"its metadata lists {count} partitions, and {missing or 0} is not one of them"
        elif local_topic is None:
            plan.create.append(topic)
        elif not is_same(topic, local_topic):
            plan.recreate.append(topic)
        elif count > local_topic.partitions:
            plan.enlarge.append(topic)
        elif count < local_topic.partitions and topic.id == NO_ID:
            plan.recreate.append(topic)
        elif count < local_topic.partitions:  # a topic never loses partitions, so the node's metadata is outdated
            plan.refused[name] = f"its metadata lists {count} partitions, but it had {local_topic.partitions}"
    plan.gone = [name for name in local if name not in wanted]
    return plan
