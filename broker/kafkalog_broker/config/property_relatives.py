"""Relatives: properties for one setting in several units, or with a fallback. The first one with a value counts."""

from __future__ import annotations

MS_PER_UNIT = {"minutes": 60_000, "hours": 3_600_000}

_RELATIVES = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.dirs", "log.dir"),
)
"""Groups of relatives in descending precedence."""

_NOT_LISTED = {"log.roll.jitter.ms", "log.roll.jitter.hours", "log.dirs", "log.dir"}
"""Relatives that Kafka does not list as synonyms (DynamicBrokerConfig.brokerConfigSynonyms)."""


def relatives(name: str) -> tuple[str, ...]:
    """Return `name` and the properties that determine its value if it is not set, in descending precedence."""
    return next((group for group in _RELATIVES if group[0] == name), (name,))


def listed_relatives(name: str) -> tuple[str, ...]:
    """Return `name` and its relatives as DescribeConfigs lists them, including those with higher precedence."""
    if name in _NOT_LISTED:
        return (name,)
    return next((group for group in _RELATIVES if name in group), (name,))
