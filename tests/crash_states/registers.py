"""How the value of each register of the ledger is read from a running broker. Registers are named by tuples."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from tests.crash_states.session import METADATA, OFFSET_FETCH

if TYPE_CHECKING:
    from tests.crash_states.state_check import StateCheck

DESCRIBE_CONFIGS = 32
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
_RESOURCES = {"topic": TOPIC_RESOURCE, "broker": BROKER_RESOURCE}
_SET_BY = {"topic": "TOPIC_CONFIG", "broker": "DYNAMIC_BROKER_CONFIG"}

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
        resources=[{"resource_type": _RESOURCES[kind], "resource_name": name, "configuration_keys": [config]}],
    )  # fmt: skip
    [result] = answer.body["results"]
    for one in result["configs"]:
        if one["name"] == config and one["config_source"] in (1, 2):  # of a topic, of one broker
            return str(one["value"])
    return None


def _offset(check: StateCheck, group: str, topic: str, partition: int) -> int | None:
    """The committed offset."""
    check.session.find_coordinator(group, of_group=True)
    answer = check.session._checked(
        f"OffsetFetch {group}", lambda body: [one["error_code"] for one in body["groups"]], OFFSET_FETCH, 8,
        groups=[{"group_id": group, "topics": [{"name": topic, "partition_indexes": [partition]}]}],
        require_stable=False,
    )  # fmt: skip
    [found] = answer.body["groups"][0]["topics"][0]["partitions"]
    return None if found["committed_offset"] == -1 else int(found["committed_offset"])


_OBSERVERS: dict[Any, Observe] = {"topic": _topic, "config": _config, "offset": _offset}
