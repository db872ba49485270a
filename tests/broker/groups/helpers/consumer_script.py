"""The same requests about consumer groups (KIP-848) to a real Kafka and to this broker, and their answers in order.

Member ids, topics and requests are fixed, so epochs, assignments and errors have to be the same. Where Kafka does
something in the background, the script asks until it is done, and only the last answer counts.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

Answer = dict[str, Any]
Ask = Callable[[int, int, dict[str, Any]], Answer]
"""ask(key, version, values): the answer, plain."""

TOPICS = {"orders": 6, "clicks": 4, "logs": 3, "audit-1": 2}
PROPERTIES = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
HEARTBEAT, DESCRIBE, LIST = 68, 69, 16
JOIN, SYNC, CLASSIC_HEARTBEAT, LEAVE = 11, 14, 12, 13
WAIT_S = 120
_UNORDERED = {"topic_partitions", "members", "groups", "topics", "results", "configs", "subscribed_topic_names"}


class Script:
    """Asks, and keeps what was answered under a label."""

    describing = DESCRIBE, 1
    """API that describes groups, and its newest version."""

    def __init__(self, ask: Ask, ids: dict[str, str]) -> None:
        """ids: of the topics, by name."""
        self._ask = ask
        self._ids = ids
        self._names = {topic_id: name for name, topic_id in ids.items()}
        self.answers: dict[str, Answer] = {}

    def ask(self, label: str, key: int, version: int, **values: Any) -> Answer:
        assert label not in self.answers, label
        answer = self._ask(key, version, values)
        self.answers[label] = self.shown(answer)
        return answer

    def until(self, label: str, done: Callable[[Answer], bool], key: int, version: int, **values: Any) -> Answer:
        """Ask again and again; the answer that is the right one counts."""
        answer = self.wait(done, key, version, **values)
        self.answers[label] = self.shown(answer)
        return answer

    def wait(self, done: Callable[[Answer], bool], key: int, version: int, **values: Any) -> Answer:
        """The same without keeping the answer."""
        end = time.monotonic() + WAIT_S
        while not done(answer := self._ask(key, version, values)):
            assert time.monotonic() < end, f"{key}: {answer}"
            time.sleep(0.05)
        return answer

    def shown(self, answer: Any) -> Any:
        """Names of topics in the place of ids; lists sorted where nothing promises an order."""
        if isinstance(answer, dict):
            found = {name: self.shown(value) for name, value in answer.items()}
            for name in _UNORDERED & found.keys():
                if isinstance(found[name], list):
                    found[name] = sorted(found[name], key=repr)
            if isinstance(found.get("partitions"), list) and all(isinstance(p, int) for p in found["partitions"]):
                found["partitions"] = sorted(found["partitions"])
            return found
        if isinstance(answer, list | tuple):
            return [self.shown(item) for item in answer]
        if isinstance(answer, bytes):
            return answer.hex()
        return self._names.get(answer, answer) if isinstance(answer, str) else answer

    def beat(self, label: str, group: str, member: str, epoch: int, version: int = 1, **changes: Any) -> Answer:
        return self.ask(label, HEARTBEAT, version, **self.heartbeat(group, member, epoch, **changes))

    def heartbeat(self, group: str, member: str, epoch: int, **changes: Any) -> dict[str, Any]:
        values: dict[str, Any] = {
            "group_id": group, "member_id": member, "member_epoch": epoch, "instance_id": None, "rack_id": None,
            "rebalance_timeout": -1, "subscribed_topic_names": None, "subscribed_topic_regex": None,
            "server_assignor": None, "topic_partitions": None,
        }  # fmt: skip
        owned = changes.pop("owned", None)
        if owned is not None:
            values["topic_partitions"] = [
                {"topic_id": self._ids[topic], "partitions": partitions} for topic, partitions in owned.items()
            ]
        return values | changes

    def join(self, label: str, group: str, member: str, *topics: str, **changes: Any) -> Answer:
        values: dict[str, Any] = {"rebalance_timeout": 60_000, "subscribed_topic_names": [*topics], "owned": {}}
        return self.beat(label, group, member, 0, **(values | changes))

    def settle(self, label: str, group: str, members: dict[str, Any], epoch: int) -> None:
        """Heartbeats of members, which give up at once what they are told to, until all are at the epoch. members:
        what they have, as `owned`; changed here."""
        epochs: dict[str, int] = {}
        for turn in range(20):
            for member in members:
                if epochs.get(member) == epoch and turn > 2:
                    continue
                answer = self.beat(
                    f"{label} {turn} {member}", group, member, epochs.get(member, self._epoch_of(group, member)),
                    owned=members[member],
                )  # fmt: skip
                epochs[member] = answer["member_epoch"]
                if (assigned := self._assigned(answer)) is not None:
                    members[member] = assigned
            if turn > 1 and set(epochs.values()) == {epoch}:
                return
        raise AssertionError(f"{label}: {epochs}, expected {epoch}")

    def _assigned(self, answer: Answer) -> Any:
        """What an answer to a heartbeat tells its member to have, as `owned`; None: what it has."""
        if answer["assignment"] is None:
            return None
        parts = answer["assignment"]["topic_partitions"]
        return {self._names[part["topic_id"]]: list(part["partitions"]) for part in parts}

    def _epoch_of(self, group: str, member: str) -> int:
        asked = {"group_ids": [group], "include_authorized_operations": False}
        (described,) = self._ask(*self.describing, asked)["groups"]
        return next(int(one["member_epoch"]) for one in described["members"] if one["member_id"] == member)

    def describe(self, label: str, *groups: str, version: int | None = None) -> Answer:
        key, newest = self.describing
        asked_version = newest if version is None else version
        return self.ask(label, key, asked_version, group_ids=list(groups), include_authorized_operations=False)

    def list(self, label: str, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Answer:
        return self.ask(label, LIST, 5, states_filter=list(states), types_filter=list(types))


ANY_MEMBER = {"many: described", "expressions: two", "expressions: mixed"}
"""Answers in which equal members have a claim to a partition: Kafka's choice is the order of its hash maps."""


def comparable(label: str, answer: Answer) -> Answer:
    """An answer without what nothing promises: the order of names, and in ANY_MEMBER which partitions are a member's
    target; how many they are stays, and that each has one owner."""
    answer = Script(lambda *_: {}, {}).shown(answer)
    if label not in ANY_MEMBER:
        return answer
    (group,) = answer["groups"]
    owned, counts = [], {}
    for member in group["members"]:
        target = member.pop("target_assignment")["topic_partitions"]
        counts[member["member_id"]] = sum(len(topic["partitions"]) for topic in target)
        owned += [(topic["topic_name"], index) for topic in target for index in topic["partitions"]]
    group["members"].sort(key=lambda member: str(member["member_id"]))
    return answer | {"owned": sorted(owned), "counts": counts}


def subscription(*topics: str, owned: dict[str, list[int]] | None = None, generation: int = -1) -> bytes:
    """ConsumerProtocolSubscription 3."""
    out = struct.pack(">hi", 3, len(topics)) + b"".join(map(_text, topics)) + struct.pack(">i", -1)
    out += struct.pack(">i", len(owned or {}))
    for topic, partitions in (owned or {}).items():
        out += _text(topic) + struct.pack(f">{1 + len(partitions)}i", len(partitions), *partitions)
    return out + struct.pack(">ih", generation, -1)


def assignment(partitions: dict[str, list[int]]) -> bytes:
    """ConsumerProtocolAssignment 3."""
    out = struct.pack(">hi", 3, len(partitions))
    for topic, numbers in partitions.items():
        out += _text(topic) + struct.pack(f">{1 + len(numbers)}i", len(numbers), *numbers)
    return out + struct.pack(">i", -1)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def create_topics(ask: Ask, topics: dict[str, int] = TOPICS) -> dict[str, str]:
    """Their ids, once the broker knows them."""
    wanted = [
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
        for name, count in topics.items()
    ]
    ask(19, 7, {"topics": wanted, "timeout": 30_000, "validate_only": False})
    end = time.monotonic() + WAIT_S
    while True:
        request = {
            "topics": [{"topic_id": None, "name": name} for name in topics], "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }  # fmt: skip
        found = ask(3, 12, request)["topics"]
        if all(topic["error_code"] == "none" and len(topic["partitions"]) == topics[topic["name"]] for topic in found):
            break
        assert time.monotonic() < end
        time.sleep(0.05)
    while ask(10, 4, {"key_type": 0, "coordinator_keys": ["g"]})["coordinators"][0]["error_code"] != "none":
        assert time.monotonic() < end
        time.sleep(0.05)
    while ask(HEARTBEAT, 1, _probe())["error_code"] in ("not_coordinator", "coordinator_load_in_progress"):
        assert time.monotonic() < end
        time.sleep(0.05)
    return {topic["name"]: topic["topic_id"] for topic in found}


def _probe() -> dict[str, Any]:
    return Script(lambda *_: {}, {}).heartbeat("probe", "nobody", 5)


def run(ask: Ask, ids: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """All parts, in order."""
    from tests.broker.groups.helpers.consumer_script_parts import PARTS

    script = Script(ask, ids)
    for part in PARTS:
        part(script)
    yield from script.answers.items()
