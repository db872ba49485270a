"""The same requests about streams groups (KIP-1071) to a real Kafka and to this broker, and their answers in order.

Member ids are single small letters and process ids single capitals, in whose order Java's hash maps have them: where
equal members have a claim to a task, Kafka's choice is that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.broker.groups.helpers import consumer_script
from tests.broker.groups.helpers.consumer_script import Answer, Ask

TOPICS = {"orders": 6, "clicks": 4, "logs": 3, "views": 4, "small-rep": 2}
PROPERTIES = {
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.session.timeout.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.max.size": "12",
    "group.coordinator.rebalance.protocols": "classic,consumer,streams,share",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
HEARTBEAT, DESCRIBE, LIST, ALTER_CONFIGS = 88, 89, 16, 44
MISSING_INTERNAL_TOPICS, ASSIGNMENT_DELAYED = 3, 5
_ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")
_UNORDERED = {*_ROLES, "active_partitions", "standby_partitions", "partitions_by_user_endpoint", "topic_configs"}
Tasks = Mapping[str, Sequence[int]]


def topic_info(name: str, partitions: int = 0, **configs: str) -> dict[str, Any]:
    pairs = [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": pairs}


def subtopology(
    name: str, *sources: str, stores: Sequence[Any] = (), sinks: Sequence[str] = (), repartitions: Sequence[Any] = (),
    together: Sequence[Any] = (), regexes: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """stores, repartitions: names, or topic_info. together: (places of sources, places of repartitions)."""

    def infos(topics: Sequence[Any]) -> list[Any]:
        return [topic_info(one) if isinstance(one, str) else one for one in topics]

    return {
        "subtopology_id": name, "source_topics": [*sources], "source_topic_regex": [*regexes],
        "state_changelog_topics": infos(stores), "repartition_sink_topics": [*sinks],
        "repartition_source_topics": infos(repartitions),
        "copartition_groups": [
            {"source_topics": [*of_sources], "source_topic_regex": [], "repartition_source_topics": [*of_repartitions]}
            for of_sources, of_repartitions in together
        ],
    }  # fmt: skip


def topology(*subtopologies: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": [*subtopologies]}


def tasks(of_subtopologies: Tasks) -> list[dict[str, Any]]:
    return [{"subtopology_id": name, "partitions": [*parts]} for name, parts in of_subtopologies.items()]


class Script(consumer_script.Script):
    """With members of streams groups."""

    describing = DESCRIBE, 0

    def shown(self, answer: Any) -> Any:
        shown = super().shown(answer)
        if isinstance(shown, dict):
            for name in _UNORDERED & shown.keys():
                if isinstance(shown[name], list):
                    shown[name] = sorted(shown[name], key=repr)
        return shown

    def beat(self, label: str, group: str, member: str, epoch: int, version: int = 0, **changes: Any) -> Answer:
        return self.ask(label, HEARTBEAT, version, **self.heartbeat(group, member, epoch, **changes))

    def heartbeat(self, group: str, member: str, epoch: int, **changes: Any) -> dict[str, Any]:
        """owned: tasks by role in their order, each by subtopology."""
        values: dict[str, Any] = {
            "group_id": group, "member_id": member, "member_epoch": epoch, "endpoint_information_epoch": 0,
            "instance_id": None, "rack_id": None, "rebalance_timeout": -1, "topology": None, "process_id": None,
            "user_endpoint": None, "client_tags": None, "task_offsets": None, "task_end_offsets": None,
            "shutdown_application": False, **dict.fromkeys(_ROLES),
        }  # fmt: skip
        if (owned := changes.pop("owned", None)) is not None:
            values |= {role: tasks(owned[at] if at < len(owned) else {}) for at, role in enumerate(_ROLES)}
        return values | changes

    def joining(self, group: str, member: str, process: str, *subtopologies: Any, **changes: Any) -> dict[str, Any]:
        values: dict[str, Any] = {
            "rebalance_timeout": 60_000, "process_id": process, "owned": (), "client_tags": [],
            "topology": topology(*subtopologies),
        }  # fmt: skip
        return self.heartbeat(group, member, 0, **(values | changes))

    def join(self, label: str, group: str, member: str, process: str, *subtopologies: Any, **changes: Any) -> Answer:  # type: ignore[override]
        return self.ask(label, HEARTBEAT, 0, **self.joining(group, member, process, *subtopologies, **changes))

    def until_ready(self, label: str, group: str, member: str, epoch: int) -> Answer:
        """Heartbeats until the internal topics are there."""
        return self.until(label, has_topics, HEARTBEAT, 0, **self.heartbeat(group, member, epoch))

    def _assigned(self, answer: Answer) -> Any:
        if answer["active_tasks"] is None:
            return None
        return [{one["subtopology_id"]: list(one["partitions"]) for one in answer[role]} for role in _ROLES]

    def alter(self, label: str, group: str, *changes: tuple[str, str | None]) -> Answer:
        """Properties of the group; None removes one."""
        configs = [
            {"name": name, "config_operation": 1 if value is None else 0, "value": value} for name, value in changes
        ]
        resources = [{"resource_type": 32, "resource_name": group, "configs": configs}]
        return self.ask(label, ALTER_CONFIGS, 1, resources=resources, validate_only=False)

    def set(self, group: str, name: str, value: str) -> None:
        """The same, and wait until the broker acts on it."""
        configs = [{"name": name, "config_operation": 0, "value": value}]
        resources = [{"resource_type": 32, "resource_name": group, "configs": configs}]
        self._ask(ALTER_CONFIGS, 1, {"resources": resources, "validate_only": False})
        described = {"resource_type": 32, "resource_name": group, "configuration_keys": [name]}
        values = {"resources": [described], "include_synonyms": False, "include_documentation": False}
        self.wait(lambda answer: answer["results"][0]["configs"][0]["value"] == value, 32, 4, **values)


def has_topics(answer: Answer) -> bool:
    return all(status["status_code"] != MISSING_INTERNAL_TOPICS for status in answer["status"] or ())


def run(ask: Ask, ids: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """All parts, in order."""
    from tests.broker.groups.helpers.streams_script_parts import PARTS

    script = Script(ask, ids)
    for part in PARTS:
        part(script)
    yield from script.answers.items()


def comparable(label: str, answer: Answer) -> Answer:
    """An answer without what nothing promises: the order of names."""
    answer = Script(lambda *_: {}, {}).shown(answer)
    for status in answer.get("status") or ():
        what, colon, names = status["status_detail"].partition("Internal topics are missing: ")
        if colon and ";" not in names:
            status["status_detail"] = what + colon + ", ".join(sorted(names.split(", ")))
    return answer
