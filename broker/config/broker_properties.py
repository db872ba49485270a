"""Every broker property that Kafka 4.3 knows, which of them have no effect here, and which must not be overlooked."""

from __future__ import annotations

from broker.config.cluster_properties import CLUSTER_PROPERTIES
from broker.config.definition import table
from broker.config.group_properties import GROUP_PROPERTIES
from broker.config.internal_properties import INTERNAL_PROPERTIES
from broker.config.log_properties import LOG_PROPERTIES
from broker.config.network_properties import NETWORK_PROPERTIES
from broker.config.security_properties import SECURITY_PROPERTIES
from broker.config.share_properties import SHARE_PROPERTIES
from broker.config.tiered_properties import TIERED_PROPERTIES

BROKER_PROPERTIES = table(
    LOG_PROPERTIES
    + NETWORK_PROPERTIES
    + GROUP_PROPERTIES
    + CLUSTER_PROPERTIES
    + SECURITY_PROPERTIES
    + TIERED_PROPERTIES
    + SHARE_PROPERTIES
    + INTERNAL_PROPERTIES
)

# Accepted, described, and without effect: one log line at start says so where they are set.
_WITHOUT_EFFECT_ALTHOUGH_OF_USE_ELSEWHERE = {
    "process.roles",
    "controller.listener.names",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "early.start.listeners",
    "num.network.threads",
    "num.io.threads",
    "background.threads",
    "queued.max.requests",
    "queued.max.request.bytes",
    "request.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "connection.failed.authentication.delay.ms",
    "connections.max.reauth.ms",
    "log.dir.failure.timeout.ms",
    "delete.records.purgatory.purge.interval.requests",
    "producer.purgatory.purge.interval.requests",
    "fetch.purgatory.purge.interval.requests",
}
# Parts of a section without effect that this broker does act on.
_USED = {"log.initial.task.delay.ms", "producer.id.expiration.check.interval.ms"}
WITHOUT_EFFECT = frozenset(
    {
        entry.name
        for section in (
            CLUSTER_PROPERTIES,
            SECURITY_PROPERTIES,
            TIERED_PROPERTIES,
            SHARE_PROPERTIES,
            INTERNAL_PROPERTIES,
        )
        for entry in section
    }
    - _USED
    | _WITHOUT_EFFECT_ALTHOUGH_OF_USE_ELSEWHERE
)

# Who sets these relies on them: running without would be worse than not starting. Name to what is missing.
REFUSED = {
    "authorizer.class.name": "access control is not implemented, and without it everybody may do everything",
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


def relatives(name: str) -> tuple[str, ...]:
    """`name` and the properties that stand in for it where it is not set, in the order in which they are asked."""
    return next((group for group in _RELATIVES if group[0] == name), (name,))


def listed_relatives(name: str) -> tuple[str, ...]:
    """`name` and its relatives as DescribeConfigs lists them: also those that win over it."""
    if name in _NOT_LISTED:
        return (name,)
    return next((group for group in _RELATIVES if name in group), (name,))
