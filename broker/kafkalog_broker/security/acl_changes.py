"""What CreateAcls, DescribeAcls and DeleteAcls ask for: numbers to values, and why not (AclApis, AclControlManager)."""

from __future__ import annotations

import enum
from typing import Any, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from kafkalog_broker.security.acl import Acl, AclFilter, Pattern

E = TypeVar("E", bound=enum.IntEnum)


def acl_of(asked: Any) -> Acl:
    """Of one creation in a request. Raises BrokerError (INVALID_REQUEST), and UNKNOWN_SERVER_ERROR for what only
    filters have: that refuses the request as a whole."""
    resource, pattern = _of(ResourceType, asked.resource_type), _of(PatternType, asked.resource_pattern_type)
    operation, permission = _of(Operation, asked.operation), _of(Permission, asked.permission_type)
    for value in (resource, pattern, operation, permission):
        if value.name in ("ANY", "MATCH"):
            raise BrokerError(ErrorCode.unknown_server_error, f"an ACL has no {type(value).__name__} {value.name}")
    name = asked.resource_name
    if resource is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise BrokerError(ErrorCode.invalid_request, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise BrokerError(ErrorCode.invalid_request, "Invalid empty resource name")
    for label, unknown in (
        ("resourceType", resource), ("patternType", pattern), ("operation", operation), ("permissionType", permission)
    ):  # fmt: skip
        if not unknown:
            raise BrokerError(ErrorCode.invalid_request, f"Invalid {label} UNKNOWN")
    return Acl(Pattern(resource, pattern, name), asked.principal, asked.host, operation, permission)


def filter_of(asked: Any) -> AclFilter:
    """Of a request to describe, or of one filter of a deletion."""
    return AclFilter(
        _of(ResourceType, asked.resource_type_filter),
        asked.resource_name_filter,
        _of(PatternType, getattr(asked, "pattern_type_filter", PatternType.LITERAL)),
        asked.principal_filter,
        asked.host_filter,
        _of(Operation, asked.operation),
        _of(Permission, asked.permission_type),
    )


def check_deletion(wanted: AclFilter) -> None:
    """Raises BrokerError (INVALID_REQUEST) for a filter with a number that nobody knows."""
    if not (wanted.resource and wanted.type):
        raise BrokerError(ErrorCode.invalid_request, "Unknown patternFilter.")
    if not (wanted.operation and wanted.permission):
        raise BrokerError(ErrorCode.invalid_request, "Unknown entryFilter.")


def has_zero(*numbers: int) -> bool:
    """Whether one says UNKNOWN in so many words: Kafka then closes the connection. (Larger ones than there are, it
    takes for UNKNOWN and answers.)"""
    return not all(numbers)


def _of(kind: type[E], number: int) -> E:
    return kind(number) if number in kind._value2member_map_ else kind(0)
