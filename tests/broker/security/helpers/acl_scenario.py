"""The whole ACL scenario: every API, requested by principals with and without each right."""

from __future__ import annotations

from collections.abc import Iterator

from tests.broker.security.helpers.acl_admin_cases import admin_cases
from tests.broker.security.helpers.acl_case import GROUP, TOPICS, TXN, Case, Rights, Values, acl
from tests.broker.security.helpers.acl_data_cases import data_cases
from tests.broker.security.helpers.acl_group_cases import group_cases


def cases() -> Iterator[Case]:
    yield from data_cases()
    yield from group_cases()
    yield from admin_cases()


def users() -> dict[Rights, str]:
    """The name of each set of rights."""
    found = dict.fromkeys(rights for case in cases() for rights in case.askers())
    return {rights: f"u{number}" for number, rights in enumerate(found)}


def creations() -> list[Values]:
    return [acl(name, right) for rights, name in users().items() for right in rights]


def preparation() -> list[tuple[int, int, Values]]:
    """Requests that the admin sends first; their responses are ignored."""
    topics = [
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
        for name, count in TOPICS.items()
    ]
    return [
        (19, 7, {"topics": topics, "timeout": 30_000, "validate_only": False}),
        (30, 3, {"creations": creations()}),
    ]


def settled() -> list[tuple[int, int, Values]]:
    """Requests that the admin repeats until their responses have no error."""
    commit = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    return [
        (10, 4, {"key_type": 0, "coordinator_keys": [GROUP]}),
        (10, 4, {"key_type": 1, "coordinator_keys": [TXN]}),
        (22, 4, {"transactional_id": TXN, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}),
        (
            8,
            8,
            {
                "group_id": GROUP,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"name": name, "partitions": commit} for name in TOPICS],
            },
        ),
    ]
