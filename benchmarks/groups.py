"""Rebalances of consumer groups (KIP-848) and streams groups (KIP-1071) with 100 members, compared with Apache Kafka.

The members are simulated on the level of the protocol. Each sends its next heartbeat directly after the last response,
and releases revoked partitions immediately, so that only the coordinator is measured. The assignment interval is 0.

| measurement | from | to |
|---|---|---|
| join | the first of 100 members joins | all have their partitions |
| one more | another member joins | all 101 have their partitions |
| one leaves | that member leaves | all 100 have their partitions |
| heartbeats | a stable group | the end of 20 rounds of heartbeats |
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.broker_sides import Side
from benchmarks.report import Report, ratio
from kafkalog_broker.protocol.client_messages import decode_response
from kafkalog_broker.testing import RunningBroker
from kafkalog_broker.testing_support.client_requests import exchange, frame_of
from tests.broker.api.helpers.plain_entities import request_entity
from tests.interop.real_kafka import RealKafka

MEMBERS, CONNECTIONS, QUIET_ROUNDS = 100, 10, 20
PROPERTIES = {
    "group.streams.assignment.interval.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.session.timeout.ms": 60_000,
    "offsets.topic.num.partitions": 1,
}
_TIMEOUT_S = 120


class Member:
    """Member of a consumer group with its assignment. `API`: key and version of its heartbeat requests."""

    API = 68, 1
    PARTITIONS = 1_000
    WHAT = "partitions"

    def __init__(self, connection: socket.socket, group: str, topic: str) -> None:
        self.connection = connection
        self.member_id, self.epoch = uuid.uuid4().hex, 0
        self.owned: dict[Any, tuple[int, ...]] = {}
        self._group, self._topic, self._reports_assignment = group, topic, True

    @property
    def partitions(self) -> int:
        return sum(map(len, self.owned.values()))

    def send(self) -> None:
        frame = frame_of(request_entity(*self.API, self._values(joins=self.epoch == 0), {}))
        self.connection.sendall(len(frame).to_bytes(4, "big") + frame)

    def _values(self, *, joins: bool) -> dict[str, Any]:
        return {
            "group_id": self._group, "member_id": self.member_id, "member_epoch": self.epoch, "instance_id": None,
            "rack_id": None, "rebalance_timeout": 60_000 if joins else -1,
            "subscribed_topic_names": [self._topic] if joins else None, "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [
                {"topic_id": str(topic), "partitions": list(parts)} for topic, parts in self.owned.items()
            ] if self._reports_assignment else None,
        }  # fmt: skip

    def receive(self) -> None:
        frame = _frame(self.connection)
        response: Any = decode_response(*self.API, frame)
        if response.error_code.value:
            raise RuntimeError(f"member {self.member_id}: {response.error_code.name} {response.error_message}")
        owned = self._assigned(response)
        self.epoch, self._reports_assignment = response.member_epoch, owned is not None
        if owned is not None:
            self.owned = owned

    def _assigned(self, response: Any) -> dict[Any, tuple[int, ...]] | None:
        """Return the assignment in a response, or None if it is unchanged."""
        if response.assignment is None:
            return None
        return {part.topic_id: part.partitions for part in response.assignment.topic_partitions}


class StreamsMember(Member):
    """Member of a streams group with a process ID of its own. Its topology has one subtopology."""

    API = 88, 0
    PARTITIONS = 500
    WHAT = "tasks"

    def _values(self, *, joins: bool) -> dict[str, Any]:
        subtopology = {
            "subtopology_id": "0", "source_topics": [self._topic], "source_topic_regex": [],
            "state_changelog_topics": [], "repartition_sink_topics": [], "repartition_source_topics": [],
            "copartition_groups": [],
        }  # fmt: skip
        active = [{"subtopology_id": name, "partitions": list(parts)} for name, parts in self.owned.items()]
        return {
            "group_id": self._group, "member_id": self.member_id, "member_epoch": self.epoch,
            "endpoint_information_epoch": 0, "instance_id": None, "rack_id": None,
            "rebalance_timeout": 60_000 if joins else -1,
            "topology": {"epoch": 0, "subtopologies": [subtopology]} if joins else None,
            "active_tasks": active if self._reports_assignment else None,
            "standby_tasks": [] if self._reports_assignment else None,
            "warmup_tasks": [] if self._reports_assignment else None, "process_id": self.member_id if joins else None,
            "user_endpoint": None, "client_tags": [] if joins else None, "task_offsets": None,
            "task_end_offsets": None, "shutdown_application": False,
        }  # fmt: skip

    def _assigned(self, response: Any) -> dict[Any, tuple[int, ...]] | None:
        if response.active_tasks is None:
            return None
        return {tasks.subtopology_id: tasks.partitions for tasks in response.active_tasks}


def _frame(connection: socket.socket) -> bytes:
    size = int.from_bytes(_exactly(connection, 4), "big")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise RuntimeError("the broker has closed the connection")
        data += piece
    return bytes(data)


def _round(members: Iterable[Member]) -> None:
    """Send one heartbeat of each member, on all connections at the same time."""
    waiting = list(members)
    while waiting:
        busy: dict[int, Member] = {}
        for member in waiting:
            busy.setdefault(member.connection.fileno(), member)
        for member in busy.values():
            member.send()
        for member in busy.values():
            member.receive()
        waiting = [member for member in waiting if member not in busy.values()]


def _settle(members: list[Member]) -> float:
    """Send heartbeats until all partitions are assigned evenly. Return the seconds."""
    began = time.perf_counter()
    partitions = members[0].PARTITIONS
    while True:
        _round(members)
        total = sum(member.partitions for member in members)
        fewest = min(member.partitions for member in members)
        if total == partitions and fewest >= partitions // len(members) and len({m.epoch for m in members}) == 1:
            return time.perf_counter() - began
        if time.perf_counter() - began > _TIMEOUT_S:
            raise RuntimeError(f"{total} of {partitions} partitions are assigned after {_TIMEOUT_S} s")


def measure(side: Side, kind: type[Member]) -> dict[str, float]:
    """Run all measurements in a new group. Return the seconds by name."""
    host, _, port = side.bootstrap.rpartition(":")
    group, topic = f"bench-{uuid.uuid4().hex}", kind.WHAT
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=_TIMEOUT_S))
            for _ in range(CONNECTIONS)
        ]
        _find_coordinator(connections[0], group)
        members = [kind(connections[number % CONNECTIONS], group, topic) for number in range(MEMBERS)]
        seconds = {"join": _settle(members)}
        members.append(kind(connections[0], group, topic))
        seconds["one more"] = _settle(members)
        leaving = members.pop()
        leaving.epoch, leaving.owned = -1, {}
        began = time.perf_counter()
        _round([leaving])
        seconds["one leaves"] = time.perf_counter() - began + _settle(members)
        began = time.perf_counter()
        for _ in range(QUIET_ROUNDS):
            _round(members)
        seconds["heartbeats"] = time.perf_counter() - began
        for member in members:
            member.epoch, member.owned = -1, {}
        _round(members)
    return seconds


def _find_coordinator(connection: socket.socket, group: str) -> None:
    """Wait until the group has a coordinator, which also creates __consumer_offsets."""
    end = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < end:
        frame = exchange(connection, request_entity(10, 4, {"key_type": 0, "coordinator_keys": [group]}, {}))
        response: Any = decode_response(10, 4, frame)
        if not response.coordinators[0].error_code.value:
            time.sleep(1)  # Kafka's coordinator loads the partition in the background
            return
        time.sleep(0.1)
    raise RuntimeError(f"group {group} has no coordinator after {_TIMEOUT_S} s")


def main(report: Report, rounds: int = 5) -> None:
    """Measure both brokers in turn, `rounds` times, and report medians."""
    with TemporaryDirectory(prefix="kafkalog-bench-") as home, ExitStack() as stack:
        both: dict[str, Any] = {
            "kafkalog": RunningBroker(Path(home) / "kafkalog", PROPERTIES),
            "kafka": RealKafka(Path(home) / "kafka", PROPERTIES),
        }
        seconds: dict[tuple[type[Member], str], dict[str, list[float]]] = {}
        kinds = (Member, StreamsMember)
        for side in both.values():
            stack.enter_context(side)
            for kind in kinds:
                side.create_topic(kind.WHAT, kind.PARTITIONS)
                measure(side, kind)  # warm-up for the JVM
        for _ in range(rounds):
            for kind in kinds:
                for name, side in both.items():
                    for what, took in measure(side, kind).items():
                        seconds.setdefault((kind, what), {}).setdefault(name, []).append(took)
    for (kind, what), by_side in seconds.items():
        report.add(
            "groups",
            f"{MEMBERS} members, {kind.PARTITIONS} {kind.WHAT}: {what}",
            **{f"{name}_ms": round(1000 * sorted(took)[len(took) // 2]) for name, took in by_side.items()},
            x_kafka=round(ratio(by_side["kafka"], by_side["kafkalog"]), 2),
        )


if __name__ == "__main__":
    main(Report())
