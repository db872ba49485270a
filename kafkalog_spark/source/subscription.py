"""Which partitions a read is about: Spark's ConsumerStrategy on a list of partitions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError, UnknownPartition
from kafkalog_spark.format.names import is_internal
from kafkalog_spark.source.offsets import TopicPartition, cut_text


@dataclass(frozen=True, slots=True)
class AllTopics:
    """Option `allTopics=true`: every topic that is not internal. The connector has no such thing."""


@dataclass(frozen=True, slots=True)
class NotSaid:
    """None of these options: the load is of single partitions' directories, and reads these."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Option `subscribe`: topics by name."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Option `subscribePattern`: topics in whose name the pattern is found (a search, as in the connector)."""

    pattern: str

    def regex(self) -> re.Pattern[str]:
        # Java's \\d and \\w are ASCII unless a flag says otherwise.
        return re.compile(self.pattern, re.ASCII)


@dataclass(frozen=True, slots=True)
class Assign:
    """Option `assign`: partitions by name."""

    partitions: tuple[TopicPartition, ...]


Subscription = NotSaid | AllTopics | Subscribe | SubscribePattern | Assign


def assigned_partitions(
    subscription: Subscription, present: Iterable[TopicPartition], may_be_gone: Collection[str] = ()
) -> list[TopicPartition]:
    """Those of the partitions `present` that the read is about, sorted.

    As in the connector: an internal topic is never read through `subscribe` or `subscribePattern`, and a partition
    named by `assign` that its topic does not have is left out. Unlike there, `assign` reads internal topics.

    Raises UnknownPartition for a topic that `subscribe` or `assign` names and that is not there, unless it is one of
    `may_be_gone`.
    """
    available = set(present)
    topics = {topic for topic, _ in available}
    match subscription:
        case NotSaid() | AllTopics():
            chosen = {tp for tp in available if not is_internal(tp[0])}
        case Subscribe(names):
            _check_topics(names, topics.union(may_be_gone))
            wanted = {topic for topic in names if not is_internal(topic)}
            chosen = {tp for tp in available if tp[0] in wanted}
        case SubscribePattern():
            regex = subscription.regex()
            found = {topic for topic in topics if not is_internal(topic) and regex.search(topic)}
            chosen = {tp for tp in available if tp[0] in found}
        case Assign(partitions):
            _check_topics([topic for topic, _ in partitions], topics.union(may_be_gone))
            chosen = available.intersection(partitions)
    return sorted(chosen)


def check_said(subscription: Subscription, partitions_only: bool, present: Iterable[TopicPartition]) -> None:
    """Raise OptionError, with the connector's sentence, for a load that does not say what it reads of its log
    directories. `partitions_only`: whether its paths are the directories of single partitions, which say it."""
    if isinstance(subscription, NotSaid) and not partitions_only:
        topics = sorted({topic for topic, _ in present if not is_internal(topic)})
        raise OptionError(
            "One of the following options must be specified for Kafka source: subscribe, subscribepattern, assign. "
            "See the docs for more details.",
            hint=f"allTopics=true reads every topic that is there: {cut_text(topics) or 'none yet'}",
        )


def named_topics(subscription: Subscription) -> frozenset[str]:
    """The topics that a subscription names, whether they are there or not; none for a pattern."""
    match subscription:
        case Subscribe(names):
            return frozenset(names)
        case Assign(partitions):
            return frozenset(topic for topic, _ in partitions)
    return frozenset()


def _check_topics(named: Iterable[str], present: set[str]) -> None:
    unknown = sorted(set(named) - present)
    if unknown:
        raise UnknownPartition(
            f"the log directory holds no topic {cut_text(unknown)}",
            hint=f"it holds {cut_text(sorted(present)) or 'no topic at all'}",
        )
