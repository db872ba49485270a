"""Which local topics are made, enlarged or made anew, from what a cluster has: decisions on plain data."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkalog_broker.protocol.source_calls import SourceTopic
from kafkalog_broker.storage.topics_file import Topic

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
    """Whether the topic is to be mirrored: its whole name matches; internal ones only when they are asked for."""
    return pattern.fullmatch(topic.name) is not None and (internal or not topic.is_internal)


def plan_topics(local: Mapping[str, Topic], wanted: Mapping[str, SourceTopic]) -> TopicPlan:
    """wanted: the source's topics that are to be mirrored."""
    plan = TopicPlan()
    for name, topic in wanted.items():
        mine, count = local.get(name), len(topic.partitions)
        if sorted(topic.partitions) != list(range(count)) or not count:
            plan.odd[name] = f"its metadata lists the partitions {sorted(topic.partitions)}"
        elif mine is None:
            plan.create.append(topic)
        elif topic.id not in (_NO_ID, mine.id):
            plan.anew.append(topic)
        elif count > mine.partitions:
            plan.enlarge.append(topic)
        elif count < mine.partitions:  # a cluster without topic ids
            plan.anew.append(topic)
    plan.gone = [name for name in local if name not in wanted]
    return plan
