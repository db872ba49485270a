"""The partitions that a read is subscribed to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kafkalog_spark.errors import UnknownPartition
from kafkalog_spark.format.names import is_internal, similar_topics
from kafkalog_spark.source.topic_partitions import TopicPartition, names_text, tp_text


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions that a read is subscribed to (Spark: `ConsumerStrategy`).

    The default is every partition of every topic that is not internal. The connector cannot express it.

    Attributes:
        topics: Names of topics.
        pattern: Regular expression. A topic is subscribed to if its name contains a match, as in the connector.
        partitions: Single partitions.
        is_given: False if no option names a subscription, as for the directory of a single partition.
    """

    topics: tuple[str, ...] | None = None
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] | None = None
    is_given: bool = True

    @property
    def regex(self) -> re.Pattern[str]:
        # Java's \\d and \\w match ASCII only, unless a flag says otherwise.
        return re.compile(self.pattern, re.ASCII)

    @property
    def named_topics(self) -> frozenset[str]:
        """Topics that the options name, existing or not; none for a pattern."""
        return frozenset(self.topics or ()).union(topic for topic, _ in self.partitions or ())

    def is_named(self, tp: TopicPartition) -> bool:
        """Return True if the options name the partition or its topic; False if only a pattern matches."""
        return tp in self.partitions if self.partitions is not None else tp[0] in (self.topics or ())


NO_SUBSCRIPTION = Subscription(is_given=False)


def assigned_partitions(
    subscription: Subscription, present: Iterable[TopicPartition], may_be_gone: Collection[str] = ()
) -> list[TopicPartition]:
    """Return the existing partitions that a read is subscribed to, sorted.

    As in the connector, `subscribe` and `subscribePattern` never read internal topics, and missing partitions of
    `assign` are left out. In contrast to the connector, `assign` reads internal topics.

    Args:
        subscription: The subscription.
        present: The existing partitions.
        may_be_gone: Topics that may have been deleted.

    Raises:
        UnknownPartition: For any other topic that the subscription names and that does not exist.
    """
    available = set(present)
    topics = {topic for topic, _ in available}
    if unknown := sorted(subscription.named_topics - topics.union(may_be_gone)):
        hint = f"it holds {names_text(sorted(topics.union(may_be_gone))) or 'no topic at all'}"
        if similar := list(dict.fromkeys(name for topic in unknown for name in similar_topics(topic, topics))):
            hint = f"did you mean {names_text(similar)}? {hint[0].upper()}{hint[1:]}"
        raise UnknownPartition(f"the log directory holds no topic {names_text(unknown)}", hint=hint)
    if subscription.partitions is not None:
        return sorted(available.intersection(subscription.partitions))
    named, regex = topics if subscription.topics is None else subscription.topics, subscription.regex
    wanted = {topic for topic in named if not is_internal(topic) and regex.search(topic)}
    return sorted(tp for tp in available if tp[0] in wanted)


def unmatched_warning(
    subscription: Subscription, present: Iterable[TopicPartition], paths: Sequence[str]
) -> str | None:
    """Return a warning about topics or partitions of a subscription that do not exist, or None.

    The warning also names the existing ones. It is not an error, because the connector then reads nothing and raises no
    error.

    Args:
        subscription: The subscription.
        present: The existing partitions.
        paths: The log directories, for the text.
    """
    available = set(present)
    topics = sorted({topic for topic, _ in available})
    where, holds = ", ".join(paths), f"it holds {names_text(topics) or 'no topic at all'}"
    if subscription.partitions is not None:
        if missing := [tp for tp in subscription.partitions if tp not in available]:
            their_topics = {topic for topic, _ in missing}
            existing = [tp_text(tp) for tp in sorted(available) if tp[0] in their_topics]
            return (
                f"option 'assign': {where} holds no {names_text([tp_text(tp) for tp in missing])}, which are left out; "
                f"it holds {names_text(existing) or 'no partition of ' + ', '.join(sorted(their_topics))}"
            )
        return None
    if subscription.topics is not None:
        if missing_topics := [topic for topic in subscription.topics if topic not in topics]:
            return f"option 'subscribe': {where} holds no topic {names_text(missing_topics)}; {holds}"
        if internal := [topic for topic in subscription.topics if is_internal(topic)]:
            return (
                f"option 'subscribe' never reads internal topics, as in Spark's Kafka source: {', '.join(internal)} is "
                "left out; assign reads it, and so do tables (docs/tables.md)"
            )
        return None
    if any(not is_internal(topic) and subscription.regex.search(topic) for topic in topics):
        return None
    if subscription.pattern:
        return f"option 'subscribePattern': '{subscription.pattern}' matches no topic in {where}; {holds}"
    return f"{where} holds no topic that is not internal" if topics else f"{where} holds no topic"
