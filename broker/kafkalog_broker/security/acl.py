"""One ACL, and filters that choose some of them. Values and decisions only (StandardAcl, AclBindingFilter)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from kafkalog_broker.protocol.acls import WILDCARD, Operation, PatternType, Permission, ResourceType

EVERYBODY = "User:*"

_IMPLYING = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""Whoever is allowed one of these is allowed the first too. A denial implies nothing."""


class Pattern(NamedTuple):
    """What an ACL is about."""

    resource: ResourceType
    type: PatternType
    name: str


class Acl(NamedTuple):
    """principal: `User:alice`, or EVERYBODY. host: an address, or `*`."""

    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def speaks_of(self, host: str, operation: Operation) -> bool:
        """Whether it decides about that operation from there, for its principal and its pattern."""
        if self.host not in (WILDCARD, host) and normal_host(self.host) != normal_host(host):
            return False
        if self.operation in (Operation.ALL, operation):
            return True
        return self.permission is Permission.ALLOW and self.operation in _IMPLYING.get(operation, ())


@dataclass(frozen=True, slots=True)
class AclFilter:
    """None, and ANY: whatever it is. The pattern type MATCH: what applies to a resource of that name."""

    resource: ResourceType = ResourceType.ANY
    name: str | None = None
    type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        pattern = acl.pattern
        return (
            self.resource in (ResourceType.ANY, pattern.resource)
            and self._matches_name(pattern)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, pattern: Pattern) -> bool:
        if self.type not in (PatternType.ANY, PatternType.MATCH, pattern.type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.type is not PatternType.MATCH:
            return False
        if pattern.type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name == WILDCARD


@lru_cache(4096)
def normal_host(text: str) -> str:
    """An address in one form: Java writes `0:0:0:0:0:0:0:1` where Python has `::1`. What is none stays."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
