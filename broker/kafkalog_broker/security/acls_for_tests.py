"""ACLs as tests write them: `allow("alice", "READ", topic="orders")`."""

from __future__ import annotations

from kafkalog_broker.protocol.acls import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType
from kafkalog_broker.security.acl import Acl, Pattern

_RESOURCES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


def allow(
    user: str, *operations: str, topic: str | None = None, group: str | None = None,
    transactional_id: str | None = None, cluster: bool = False, host: str = WILDCARD,
) -> list[Acl]:  # fmt: skip
    """ACLs for `running_broker(acls=[...])`: the user may do these operations (READ, WRITE, ALL ...) with what is
    named.
    A name that ends with `*` is the beginning of one. user: also a principal, `User:*`. Raises ValueError."""
    return _made(Permission.ALLOW, user, operations, _patterns(topic, group, transactional_id, cluster), host)


def deny(
    user: str, *operations: str, topic: str | None = None, group: str | None = None,
    transactional_id: str | None = None, cluster: bool = False, host: str = WILDCARD,
) -> list[Acl]:  # fmt: skip
    """As `allow`: what takes precedence over everything that is allowed."""
    return _made(Permission.DENY, user, operations, _patterns(topic, group, transactional_id, cluster), host)


def _made(
    permission: Permission, user: str, operations: tuple[str, ...], patterns: list[Pattern], host: str
) -> list[Acl]:
    unknown = [name for name in operations if name.upper() not in Operation.__members__]
    if unknown or not operations:
        raise ValueError(f"operations are READ, WRITE, ALL and so on, not {', '.join(unknown) or 'none at all'}")
    if not patterns:
        raise ValueError("one of topic, group, transactional_id and cluster=True is needed")
    principal = user if ":" in user else f"User:{user}"
    return [Acl(one, principal, host, Operation[name.upper()], permission) for one in patterns for name in operations]


def _patterns(topic: str | None, group: str | None, transactional_id: str | None, cluster: bool) -> list[Pattern]:
    named = zip(_RESOURCES, (topic, group, transactional_id), strict=True)
    found = [_pattern(resource, name) for resource, name in named if name is not None]
    return [*found, Pattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME)] if cluster else found


def _pattern(resource: ResourceType, name: str) -> Pattern:
    if name != WILDCARD and name.endswith(WILDCARD):
        return Pattern(resource, PatternType.PREFIXED, name.removesuffix(WILDCARD))
    return Pattern(resource, PatternType.LITERAL, name)
