"""Resource types, pattern types, operations and permissions of ACLs, with their numbers in the protocol (KIP-11)."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from kafkalog_broker.errors import ErrorCode

CLUSTER_NAME = "kafka-cluster"  # name of the only resource of type CLUSTER
WILDCARD = "*"  # resource name in an ACL for all resources of a type


class ResourceType(enum.IntEnum):
    """org.apache.kafka.common.resource.ResourceType."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """org.apache.kafka.common.resource.PatternType. ANY and MATCH occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """org.apache.kafka.common.acl.AclOperation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(enum.IntEnum):
    """org.apache.kafka.common.acl.AclPermissionType."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
}  # fmt: skip
"""Operations that responses may list as authorized, by resource type (Kafka: `AclEntry.supportedOperations`)."""

DENIALS: Mapping[ResourceType, tuple[ErrorCode, str]] = {
    ResourceType.TOPIC: (ErrorCode.topic_authorization_failed, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.group_authorization_failed, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.cluster_authorization_failed, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.transactional_id_authorization_failed, "Transactional Id authorization failed."
    ),
}  # fmt: skip
"""Error code of a denied operation and Kafka's message for it, by resource type."""

DENIAL_MESSAGES: Mapping[ErrorCode, str] = dict(DENIALS.values())
"""Kafka's message for a denied operation, by error code."""


def operation_bits(operations: tuple[Operation, ...]) -> int:
    """Return operations as a bit field for a response: bit n stands for operation n (KIP-430)."""
    return sum(1 << operation for operation in operations)
