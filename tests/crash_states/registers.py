"""How the value of each register of the ledger is read from a running broker. Registers are named by tuples."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from tests.crash_states.administrator import (
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    DESCRIBE_QUOTAS,
    DESCRIBE_SCRAM,
    RESOURCES,
    acl_filter,
)
from tests.crash_states.session import METADATA, OFFSET_FETCH

if TYPE_CHECKING:
    from tests.crash_states.state_check import StateCheck

READ_SHARE_STATE = 84
ACCEPTED = 2
"""State of delivery of records in a share group's state."""
_SOURCES = {"topic": 1, "broker": 2, "group": 8}
_OF_ALL_BROKERS = 3
"""Sources of a configuration, by what it was set for."""

Observe = Callable[..., Any]


def observe(check: StateCheck, key: Hashable) -> Any:
    """Return the value of the register `key` as clients see it; None if it is not set."""
    assert isinstance(key, tuple)
    return _OBSERVERS[key[0]](check, *key[1:])


def _topic(check: StateCheck, name: str) -> int | None:
    """Number of partitions."""
    answer = check.session.ask(
        METADATA, 12, topics=[{"name": name, "topic_id": "00000000-0000-0000-0000-000000000000"}],
        allow_auto_topic_creation=False, include_topic_authorized_operations=False,
    )  # fmt: skip
    [topic] = answer.body["topics"]
    return None if topic["error_code"] == "unknown_topic_or_partition" else len(topic["partitions"])


def _config(check: StateCheck, kind: str, name: str, config: str) -> str | None:
    """The value that was set, None for a default or where there is no such topic."""
    answer = check.session.ask(
        DESCRIBE_CONFIGS, 4, include_synonyms=False, include_documentation=False,
        resources=[{"resource_type": RESOURCES[kind], "resource_name": name, "configuration_keys": [config]}],
    )  # fmt: skip
    [result] = answer.body["results"]
    for one in result["configs"]:
        source = _SOURCES[kind] if name else _OF_ALL_BROKERS
        if one["name"] == config and one["config_source"] == source:
            return str(one["value"])
    return None


def _offset(check: StateCheck, group: str, topic: str, partition: int) -> int | None:
    """The committed offset."""
    check.session.find_coordinator(group, of_group=True)
    answer = check.session.checked(
        f"OffsetFetch {group}", lambda body: [one["error_code"] for one in body["groups"]], OFFSET_FETCH, 8,
        groups=[{"group_id": group, "topics": [{"name": topic, "partition_indexes": [partition]}]}],
        require_stable=False,
    )  # fmt: skip
    [found] = answer.body["groups"][0]["topics"][0]["partitions"]
    return None if found["committed_offset"] == -1 else int(found["committed_offset"])


def _acl(check: StateCheck, principal: str, topic: str) -> bool | None:
    """True if the principal may read the topic."""
    answer = check.session.checked(
        "DescribeAcls", lambda body: [body["error_code"]], DESCRIBE_ACLS, 3, **acl_filter(principal, topic)
    )
    return True if answer.body["resources"] else None


def _scram(check: StateCheck, user: str) -> int | None:
    """Number of iterations."""
    answer = check.session.ask(DESCRIBE_SCRAM, 0, users=[{"name": user}])
    [result] = answer.body["results"]
    return next((int(one["iterations"]) for one in result["credential_infos"]), None)


def _quota(check: StateCheck, user: str) -> float | None:
    """producer_byte_rate."""
    wanted = {"entity_type": "user", "match_type": 0, "match": user}
    answer = check.session.checked(
        "DescribeClientQuotas", lambda body: [body["error_code"]], DESCRIBE_QUOTAS, 1, components=[wanted], strict=True
    )
    values = [one["value"] for entry in answer.body["entries"] for one in entry["values"]]
    return float(values[0]) if values else None


def _share(check: StateCheck, group: str, topic_id: str, partition: int) -> int | None:
    """The offset before which the share group has accepted all records; None for the first."""
    check.session.find_coordinator(group, of_group=True)
    wanted = {"topic_id": topic_id, "partitions": [{"partition": partition, "leader_epoch": 0}]}
    answer = check.session.ask(READ_SHARE_STATE, 0, group_id=group, topics=[wanted])
    [found] = answer.body["results"][0]["partitions"]
    offset = int(found["start_offset"])
    for batch in sorted(found["state_batches"], key=lambda one: one["first_offset"]):
        if batch["delivery_state"] == ACCEPTED and batch["first_offset"] <= offset:
            offset = max(offset, batch["last_offset"] + 1)
    return offset if offset > 0 else None


_OBSERVERS: dict[Any, Observe] = {
    "topic": _topic, "config": _config, "offset": _offset, "acl": _acl, "scram": _scram, "quota": _quota,
    "share": _share,
}  # fmt: skip
