"""Requests of administrators, noted in a session's ledger: configurations, ACLs, SCRAM users, quotas, groups."""

from __future__ import annotations

from typing import Any

from tests.crash_states.ledger import Ledger
from tests.crash_states.session import Session

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_CONFIGS, DELETE_GROUPS = 29, 30, 31, 32, 42
INCREMENTAL_ALTER_CONFIGS, DESCRIBE_QUOTAS, ALTER_QUOTAS, DESCRIBE_SCRAM, ALTER_SCRAM = 44, 48, 49, 50, 51
RESOURCES = {"topic": 2, "broker": 4, "group": 32}
SET, DELETE = 0, 1
TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3
"""Numbers of the protocol: a resource, a pattern, an operation and a permission."""
SCRAM_SHA_256 = 1


def set_config(session: Session, kind: str, name: str, config: str, value: str | None) -> None:
    """Set a configuration of a resource, or delete it with None."""
    change = {"name": config, "config_operation": DELETE if value is None else SET, "value": value}
    answer = session.checked(
        f"IncrementalAlterConfigs {kind} {name}", lambda body: [one["error_code"] for one in body["responses"]],
        INCREMENTAL_ALTER_CONFIGS, 1, validate_only=False,
        resources=[{"resource_type": RESOURCES[kind], "resource_name": name, "configs": [change]}],
    )  # fmt: skip
    session.ledger.set(("config", kind, name, config), value, answer.sent_at, answer.acked_at)


def create_acl(session: Session, principal: str, topic: str) -> None:
    """Allow a principal to read a topic."""
    acl = {"resource_type": TOPIC, "resource_name": topic, "resource_pattern_type": LITERAL, "principal": principal,
           "host": "*", "operation": READ, "permission_type": ALLOW}  # fmt: skip
    answer = session.checked(
        f"CreateAcls {principal}", lambda body: [one["error_code"] for one in body["results"]], CREATE_ACLS, 3,
        creations=[acl],
    )  # fmt: skip
    session.ledger.set(("acl", principal, topic), True, answer.sent_at, answer.acked_at)


def acl_filter(principal: str, topic: str) -> dict[str, Any]:
    """Return the filter that one ACL of `create_acl` passes."""
    return {"resource_type_filter": TOPIC, "resource_name_filter": topic, "pattern_type_filter": LITERAL,
            "principal_filter": principal, "host_filter": "*", "operation": READ, "permission_type": ALLOW}  # fmt: skip


def delete_acl(session: Session, principal: str, topic: str) -> None:
    """Delete an ACL of `create_acl`."""
    answer = session.checked(
        f"DeleteAcls {principal}", lambda body: [one["error_code"] for one in body["filter_results"]], DELETE_ACLS, 3,
        filters=[acl_filter(principal, topic)],
    )  # fmt: skip
    session.ledger.set(("acl", principal, topic), None, answer.sent_at, answer.acked_at)


def set_scram(session: Session, user: str, iterations: int | None) -> None:
    """Create or change a SCRAM user, or delete it with None."""
    named = {"name": user, "mechanism": SCRAM_SHA_256}
    credential = {**named, "iterations": iterations, "salt": b"salt", "salted_password": bytes(32)}
    answer = session.checked(
        f"AlterUserScramCredentials {user}", lambda body: [one["error_code"] for one in body["results"]], ALTER_SCRAM,
        0, deletions=[named] if iterations is None else [], upsertions=[] if iterations is None else [credential],
    )  # fmt: skip
    session.ledger.set(("scram", user), iterations, answer.sent_at, answer.acked_at)


def set_quota(session: Session, user: str, rate: float | None) -> None:
    """Set `producer_byte_rate` of a user, or remove it with None."""
    entry = {
        "entity": [{"entity_type": "user", "entity_name": user}],
        "ops": [{"key": "producer_byte_rate", "value": rate or 0.0, "remove": rate is None}],
    }
    answer = session.checked(
        f"AlterClientQuotas {user}", lambda body: [one["error_code"] for one in body["entries"]], ALTER_QUOTAS, 1,
        entries=[entry], validate_only=False,
    )  # fmt: skip
    session.ledger.set(("quota", user), rate, answer.sent_at, answer.acked_at)


def delete_group(session: Session, group: str) -> None:
    """Delete a group, and with it its committed offsets."""
    answer = session.checked(
        f"DeleteGroups {group}", lambda body: [one["error_code"] for one in body["results"]], DELETE_GROUPS, 2,
        groups_names=[group],
    )  # fmt: skip
    for key in _offsets_of(session.ledger, group):
        session.ledger.set(key, None, answer.sent_at, answer.acked_at)


def _offsets_of(ledger: Ledger, group: str) -> list[tuple[Any, ...]]:
    return [key for key in list(ledger.registers) if isinstance(key, tuple) and key[:2] == ("offset", group)]
