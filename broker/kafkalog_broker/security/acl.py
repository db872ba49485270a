"""ACLs and filters of ACLs as values (Kafka: StandardAcl, AclBindingFilter)."""

from __future__ import annotations

import enum
import ipaddress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType

EVERYBODY = "User:*"  # principal in an ACL for all clients

Enum = TypeVar("Enum", bound=enum.IntEnum)

_IMPLYING = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""Operation -> operations whose permission implies it. A denial implies nothing."""


class Pattern(NamedTuple):
    """Resource pattern of an ACL: the resources to which it applies (Kafka: ResourcePattern)."""

    resource: ResourceType
    type: PatternType
    name: str


class Acl(NamedTuple):
    """One permission or denial.

    Attributes:
        principal: `User:alice`, or EVERYBODY.
        host: An address, or `*`.
    """

    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def covers(self, host: str, operation: Operation) -> bool:
        """Return True if this ACL applies to an operation from a host. Its principal and pattern are not checked."""
        if self.host not in (WILDCARD, host) and normal_host(self.host) != normal_host(host):
            return False
        if self.operation in (Operation.ALL, operation):
            return True
        return self.permission is Permission.ALLOW and self.operation in _IMPLYING.get(operation, ())


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Filter of ACLs. None and ANY match every value; the pattern type MATCH matches patterns that cover `name`."""

    resource: ResourceType = ResourceType.ANY
    name: str | None = None
    type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return True if the filter selects an ACL."""
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
    """Return an address in Python's form: Java writes `0:0:0:0:0:0:0:1` for `::1`. Other texts stay as they are."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def acl_of(creation: Any) -> Acl:
    """Return the ACL of a creation in a CreateAcls request.

    Raises:
        BrokerError: INVALID_REQUEST, or UNKNOWN_SERVER_ERROR for values that only filters may have, which fails the
            whole request.
    """
    resource = _member_or_unknown(ResourceType, creation.resource_type)
    pattern = _member_or_unknown(PatternType, creation.resource_pattern_type)
    operation = _member_or_unknown(Operation, creation.operation)
    permission = _member_or_unknown(Permission, creation.permission_type)
    for value in (resource, pattern, operation, permission):
        if value.name in ("ANY", "MATCH"):
            raise BrokerError(ErrorCode.unknown_server_error, f"an ACL has no {type(value).__name__} {value.name}")
    name = creation.resource_name
    if resource is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise BrokerError(ErrorCode.invalid_request, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise BrokerError(ErrorCode.invalid_request, "Invalid empty resource name")
    for label, unknown in (
        ("resourceType", resource), ("patternType", pattern), ("operation", operation), ("permissionType", permission)
    ):  # fmt: skip
        if not unknown:
            raise BrokerError(ErrorCode.invalid_request, f"Invalid {label} UNKNOWN")
    return Acl(Pattern(resource, pattern, name), creation.principal, creation.host, operation, permission)


def filter_of(filter_struct: Any) -> AclFilter:
    """Return the filter of a DescribeAcls request, or of a deletion in a DeleteAcls request."""
    return AclFilter(
        _member_or_unknown(ResourceType, filter_struct.resource_type_filter),
        filter_struct.resource_name_filter,
        _member_or_unknown(PatternType, filter_struct.pattern_type_filter),
        filter_struct.principal_filter,
        filter_struct.host_filter,
        _member_or_unknown(Operation, filter_struct.operation),
        _member_or_unknown(Permission, filter_struct.permission_type),
    )


def check_deletion(acl_filter: AclFilter) -> None:
    """Raise BrokerError (INVALID_REQUEST) for a filter with an unknown enum value."""
    if not (acl_filter.resource and acl_filter.type):
        raise BrokerError(ErrorCode.invalid_request, "Unknown patternFilter.")
    if not (acl_filter.operation and acl_filter.permission):
        raise BrokerError(ErrorCode.invalid_request, "Unknown entryFilter.")


def _member_or_unknown(kind: type[Enum], number: int) -> Enum:
    """Return the enum member with a number, or UNKNOWN."""
    return kind(number) if number in kind._value2member_map_ else kind(0)
