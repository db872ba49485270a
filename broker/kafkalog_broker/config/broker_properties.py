"""Broker properties that stand in for one another, and those that are refused (definitions: kafka_properties)."""

from __future__ import annotations

from collections.abc import Iterable, Set

# Who sets these relies on them: running without would be worse than not starting. Name to what is missing.
REFUSED = {
    "create.topic.policy.class.name": "classes of Java cannot be loaded, so no topic would be refused",
    "alter.config.policy.class.name": "classes of Java cannot be loaded, so no change would be refused",
    "client.quota.callback.class": "classes of Java cannot be loaded, so no client would be held to a quota",
    "config.providers": "values of the form ${provider:path:key} cannot be filled in",
    "remote.log.storage.system.enable": "tiered storage is not implemented",
}

# Relatives in other units and fallbacks, the one that wins first.
_RELATIVES = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.dirs", "log.dir"),
)
MS_PER_UNIT = {"minutes": 60_000, "hours": 3_600_000}
# Kafka resolves these but does not list them as synonyms (DynamicBrokerConfig.brokerConfigSynonyms).
_NOT_LISTED = {"log.roll.jitter.ms", "log.roll.jitter.hours", "log.dirs", "log.dir"}


def note_of_unserved(names: Iterable[str], served: Set[str]) -> str:
    """What a log line about a change adds where properties in it have no effect."""
    unserved = sorted(set(names) - served)
    return f"; without effect in this broker: {', '.join(unserved)}" if unserved else ""


def relatives(name: str) -> tuple[str, ...]:
    """`name` and the properties that stand in for it where it is not set, in the order in which they are asked."""
    return next((group for group in _RELATIVES if group[0] == name), (name,))


def listed_relatives(name: str) -> tuple[str, ...]:
    """`name` and its relatives as DescribeConfigs lists them: also those that win over it."""
    if name in _NOT_LISTED:
        return (name,)
    return next((group for group in _RELATIVES if name in group), (name,))
