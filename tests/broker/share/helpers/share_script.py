"""A sequence of requests of share groups for any broker, and its responses without values that differ by chance.

Two members with a socket each use a topic with two partitions and a compacted topic; there is an administrator, too.
"""

from __future__ import annotations

import base64
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalog_broker.testing_support.client_requests import ask
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.log.helpers.batch_builder import V2Record, batch

LOCK_MS = 2000
"""If locks expire before the script waits for that, responses differ. `PATIENT` has longer locks for busy machines."""
PROPERTIES = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 2,
    "share.coordinator.snapshot.update.records.per.snapshot": 5,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.record.lock.duration.ms": LOCK_MS,
    "group.share.assignment.interval.ms": 0,
    "group.share.max.size": 2,
}
PATIENT_LOCK_MS = 20_000
PATIENT = {**PROPERTIES, "group.share.record.lock.duration.ms": PATIENT_LOCK_MS}
TOPIC, OTHER, GROUP = "orders", "others", "workers"
RECORDS = 40
"""Number of records in each partition, in batches of four."""
_SETTLED_S = 120.0
_UNTOUCHED = 12
"""Offsets before this one are accepted, or do not affect the tests."""
_WAIT_MS = 3000
_ACCEPT, _RELEASE, _REJECT, _RENEW = 1, 2, 3, 4


class Script:
    """One run of the script. `ids` are topic ids by name, `answers` responses by label. `locks_end` is called before
    the script waits until locks expire."""

    def __init__(self, bootstrap: str, ids: dict[str, uuid.UUID], locks_end: Callable[[], None]) -> None:
        self._locks_end = locks_end
        host, _, port = bootstrap.rpartition(":")
        self._address = host, int(port)
        self._ids = ids
        self._names = {str(value): f"<{name}>" for name, value in ids.items()}
        self.answers: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        with socket.create_connection(self._address) as one, socket.create_connection(self._address) as two:
            self._find_coordinators(one)
            for step in (self._joining, self._fetching, self._acknowledging, self._locks, self._sessions):
                step(one, two)
            self._state(one)
            self._leaving(one, two)
            self._administering(one)
        return self.answers

    def _find_coordinators(self, one: socket.socket) -> None:
        """Internal topics are made by that; meanwhile a broker says that it has no coordinator."""
        end = time.monotonic() + _SETTLED_S
        for kind, key in ((0, GROUP), (2, f"s:{_short(self._ids[OTHER])}:0")):
            while True:
                answer = self.quietly(one, 10, 6, key_type=kind, coordinator_keys=[key])
                if not answer.coordinators[0].error_code:
                    break
                assert time.monotonic() < end, answer
                time.sleep(0.05)
        while self.quietly(one, 16, 5, states_filter=[], types_filter=[]).error_code:
            assert time.monotonic() < end
            time.sleep(0.05)

    # asking

    def ask(self, connection: socket.socket, label: str, key: int, version: int, **values: Any) -> Any:
        assert label not in self.answers, label
        answer = self._plain(self.quietly(connection, key, version, **values))
        self.answers[label] = answer
        return answer

    def quietly(self, connection: socket.socket, key: int, version: int, **values: Any) -> Any:
        return ask(connection, request_entity(key, version, values, self._ids))

    def _plain(self, answer: Any) -> Any:
        return _steady(plain(answer), self._names)

    def _beat(self, connection: socket.socket, member: str, epoch: int, topics: list[str] | None = None) -> Any:
        return self.quietly(
            connection, 76, 1, group_id=GROUP, member_id=member, member_epoch=epoch, rack_id=None,
            subscribed_topic_names=topics,
        )  # fmt: skip

    def _beat_until(self, connection: socket.socket, label: str, member: str, epoch: int, partitions: int) -> int:
        """Heartbeats until the member has so many partitions; the epoch then."""
        end = time.monotonic() + _SETTLED_S
        while True:
            answer = self._beat(connection, member, epoch)
            epoch = answer.member_epoch
            given = answer.assignment
            if given is not None and sum(len(topic.partitions) for topic in given.topic_partitions) == partitions:
                self.answers[label] = self._plain(answer)
                return int(epoch)
            assert time.monotonic() < end, f"{label}: {answer}"
            time.sleep(0.05)

    # steps

    def _joining(self, one: socket.socket, two: socket.socket) -> None:
        def beat(label: str, **values: Any) -> Any:
            said = {"group_id": GROUP, "member_id": "a", "member_epoch": 0, "rack_id": None,
                    "subscribed_topic_names": [TOPIC]}  # fmt: skip
            return self.ask(one, label, 76, 1, **{**said, **values})

        beat("join: no member id", member_id="")
        beat("join: a long member id", member_id="m" * 37)
        beat("join: no group", group_id="")
        beat("join: no topics", subscribed_topic_names=[])
        beat("join: a negative epoch", member_epoch=-2)
        beat("stay: no such group", member_epoch=3)
        beat("leave: no such group", member_epoch=-1)
        beat("join")
        self.epoch_a = self._beat_until(one, "assigned", "a", 2, 2)
        beat("stay: no such member", member_id="x", member_epoch=3)
        beat("stay: an epoch of later", member_epoch=99)
        beat("stay: an old epoch", member_epoch=1)
        joined = self.ask(
            two, "the second joins", 76, 1, group_id=GROUP, member_id="b", member_epoch=0, rack_id="r1",
            subscribed_topic_names=[TOPIC],
        )  # fmt: skip
        self.epoch_b = joined["member_epoch"]
        self.epoch_a = self._beat_until(one, "the first has one left", "a", self.epoch_a, 1)
        beat("the third is one too many", member_id="c")
        self.ask(one, "describe", 77, 1, group_ids=[GROUP, "nobody"], include_authorized_operations=False)
        self.ask(one, "list", 16, 5, states_filter=[], types_filter=["share"])
        self.ask(one, "list stable ones", 16, 5, states_filter=["stable"], types_filter=[])
        self.ask(one, "list empty ones", 16, 5, states_filter=["Empty"], types_filter=["Share"])

    def fetch(self, connection: socket.socket, label: str, member: str, epoch: int, **values: Any) -> Any:
        said = {
            "group_id": GROUP, "member_id": member, "share_session_epoch": epoch, "max_wait": _WAIT_MS, "min_bytes": 1,
            "max_bytes": 1 << 20, "max_records": 10, "batch_size": 500, "share_acquire_mode": 0, "is_renew_ack": False,
            "topics": [], "forgotten_topics_data": [],
        }  # fmt: skip
        return self.ask(connection, label, 78, 2, **{**said, **values})

    def acks(self, connection: socket.socket, label: str, member: str, epoch: int, *batches: Any, **also: Any) -> Any:
        said = {"group_id": GROUP, "member_id": member, "share_session_epoch": epoch, "is_renew_ack": False,
                "topics": _acks(0, *batches)}  # fmt: skip
        return self.ask(connection, label, 79, 2, **{**said, **also})

    def _fetching(self, one: socket.socket, two: socket.socket) -> None:
        self.fetch(one, "fetch: no session", "a", 1)
        self.fetch(one, "fetch: no member", "", 0)
        self.fetch(one, "fetch: the end of no session", "a", -1)
        self.fetch(one, "fetch: acknowledges at once", "a", 0, topics=_acks(0, (0, 3, [1])))
        self.fetch(one, "fetch", "a", 0, topics=_partitions(0))
        self.fetch(one, "fetch: a wrong epoch", "a", 5)
        self.fetch(one, "fetch more", "a", 1, max_records=3)
        self.fetch(one, "fetch strictly", "a", 2, max_records=2, share_acquire_mode=1)
        self.fetch(one, "fetch nothing", "a", 3, max_records=0)
        self.fetch(two, "the second fetches the same partition", "b", 0, topics=_partitions(0), max_records=4)
        self.fetch(two, "and another", "b", 1, topics=_partitions(1), max_records=4)
        self.fetch(two, "a partition that is not there", "b", 2, topics=_partitions(7), max_records=0)
        forgotten = [{"topic_id": "$id:orders", "partitions": [7]}]
        self.fetch(two, "without it again", "b", 3, forgotten_topics_data=forgotten, max_records=0)

    def _acknowledging(self, one: socket.socket, two: socket.socket) -> None:
        self.acks(one, "acknowledge: the first request", "a", 0, (0, 3, [_ACCEPT]))
        self.acks(one, "acknowledge: no session", "x", 3, (0, 3, [_ACCEPT]))
        self.acks(one, "accept", "a", 4, (0, 3, [_ACCEPT]))
        self.acks(one, "accept again", "a", 5, (0, 3, [_ACCEPT]))
        self.acks(one, "release and reject", "a", 6, (4, 7, [_RELEASE, _REJECT, _ACCEPT, 0]))
        self.acks(one, "what the second has", "a", 7, (16, 19, [_ACCEPT]))
        self.acks(one, "past the end", "a", 8, (8, 99, [_ACCEPT]))
        self.acks(one, "from behind the end", "a", 9, (90, 99, [_ACCEPT]))
        self.acks(one, "backwards", "a", 10, (9, 8, [_ACCEPT]))
        self.acks(one, "no type", "a", 11, (8, 9, []))
        self.acks(one, "too few types", "a", 12, (8, 11, [1, 1]))
        self.acks(one, "an unknown type", "a", 13, (8, 11, [5]))
        self.acks(one, "renew without saying so", "a", 14, (8, 11, [_RENEW]))
        self.acks(one, "renew", "a", 15, (8, 11, [_RENEW]), is_renew_ack=True)
        self.acks(
            one, "an unknown topic", "a", 16, topics=[{**_acks(0, (0, 1, [1]))[0], "topic_id": str(uuid.UUID(int=9))}]
        )
        self.acks(one, "an unknown partition", "a", 17, topics=_acks(9, (0, 1, [1])))
        self.fetch(one, "fetch with acknowledgements", "a", 18, topics=_acks(0, (8, 11, [_ACCEPT])), max_records=1)
        self.fetch(one, "renewing and fetching", "a", 19, is_renew_ack=True)
        named = [{"topic_name": TOPIC, "partitions": [0]}, {"topic_name": "nothing", "partitions": [0]}]
        asked = [(GROUP, None), (GROUP, named), ("nobody", None)]
        groups = [{"group_id": group, "topics": topics} for group, topics in asked]
        self.ask(one, "offsets", 90, 1, groups=groups)

    def _locks(self, one: socket.socket, two: socket.socket) -> None:
        """The locks of both end: what was acquired is delivered again, and the rest for the first time."""
        self._locks_end()
        seen: dict[str, int] = {}
        end = time.monotonic() + _SETTLED_S
        epoch = 19
        while len(seen) < RECORDS - _UNTOUCHED:
            answer = self.quietly(
                one, 78, 2, group_id=GROUP, member_id="a", share_session_epoch=epoch, max_wait=500, min_bytes=1,
                max_bytes=1 << 20, max_records=100, batch_size=500, topics=[], forgotten_topics_data=[],
                share_acquire_mode=0, is_renew_ack=False,
            )  # fmt: skip
            epoch += 1
            for topic in self._plain(answer)["responses"]:
                for partition in topic["partitions"]:
                    for piece in partition["acquired_records"]:
                        for offset in range(max(_UNTOUCHED, piece["first_offset"]), piece["last_offset"] + 1):
                            seen.setdefault(str(offset), piece["delivery_count"])
            assert time.monotonic() < end, seen
        self.answers["delivered again"] = seen
        self.epoch = epoch

    def _sessions(self, one: socket.socket, two: socket.socket) -> None:
        self.fetch(one, "the last fetch", "a", -1, max_records=0)
        self.fetch(one, "after the last", "a", self.epoch)
        self.acks(two, "the last acknowledgement", "b", -1, (0, 0, [_ACCEPT]), topics=[])
        self.fetch(two, "a new session", "b", 0, topics=_partitions(1), max_records=4)
        self.fetch(two, "it ends", "b", -1, max_records=0)

    def _state(self, one: socket.socket) -> None:
        def of(index: int, **values: Any) -> list[Any]:
            return [{"topic_id": "$id:others", "partitions": [{"partition": index, **values}]}]

        def batch(first: int, last: int, state: int, count: int) -> dict[str, int]:
            return {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}

        ask_ = self.ask
        ask_(one, "read: nothing", 84, 0, group_id="s", topics=of(0, leader_epoch=0))
        ask_(one, "write: nothing", 85, 1, group_id="s", topics=of(0, state_epoch=0, leader_epoch=0, start_offset=0,
             delivery_complete_count=0, state_batches=[]))  # fmt: skip
        ask_(one, "initialize: no partition", 83, 0, group_id="s", topics=of(9, state_epoch=1, start_offset=-1))
        ask_(one, "initialize: below none", 83, 0, group_id="s", topics=of(-1, state_epoch=1, start_offset=-1))
        ask_(one, "initialize", 83, 0, group_id="s", topics=of(0, state_epoch=3, start_offset=-1))
        ask_(one, "initialize: an old epoch", 83, 0, group_id="s", topics=of(0, state_epoch=2, start_offset=5))
        ask_(one, "summary", 87, 1, group_id="s", topics=of(0, leader_epoch=0))
        for number in range(8):
            state_batches = [batch(number, number + 5, 2 * (number % 3), 1 + number % 2), batch(20, 30, 0, number)]
            ask_(one, f"write {number}", 85, 1, group_id="s", topics=of(
                0, state_epoch=3, leader_epoch=0, start_offset=number, delivery_complete_count=number,
                state_batches=state_batches))  # fmt: skip
            ask_(one, f"read {number}", 84, 0, group_id="s", topics=of(0, leader_epoch=0))
        ask_(one, "read: a later leader", 84, 0, group_id="s", topics=of(0, leader_epoch=4))
        ask_(one, "read: an old leader", 84, 0, group_id="s", topics=of(0, leader_epoch=3))
        for label, epochs in (("leader", (3, 3)), ("state", (2, 4))):
            ask_(one, f"write: an old {label}", 85, 1, group_id="s", topics=of(
                0, state_epoch=epochs[0], leader_epoch=epochs[1], start_offset=9, delivery_complete_count=0,
                state_batches=[]))  # fmt: skip
        ask_(one, "summary later", 87, 1, group_id="s", topics=of(0, leader_epoch=0))
        ask_(one, "delete", 86, 0, group_id="s", topics=of(0))
        ask_(one, "delete again", 86, 0, group_id="s", topics=of(0))
        ask_(one, "summary of nothing", 87, 1, group_id="s", topics=of(0, leader_epoch=0))
        ask_(one, "no group", 87, 1, group_id="", topics=of(0, leader_epoch=0))

    def _leaving(self, one: socket.socket, two: socket.socket) -> None:
        def alter(label: str, group: str, *topics: tuple[str, dict[int, int]]) -> None:
            self.ask(one, label, 91, 0, group_id=group, topics=[
                {"topic_name": name, "partitions": [{"partition_index": index, "start_offset": offset}
                 for index, offset in offsets.items()]} for name, offsets in topics])  # fmt: skip

        alter("alter: has members", GROUP, (TOPIC, {0: 3}))
        self.ask(one, "forget: has members", 92, 0, group_id=GROUP, topics=[{"topic_name": TOPIC}])
        self.ask(one, "delete: has members", 42, 2, groups_names=[GROUP])
        self.ask(two, "the second leaves", 76, 1, group_id=GROUP, member_id="b", member_epoch=-1, rack_id=None,
                 subscribed_topic_names=None)  # fmt: skip
        self.ask(one, "the first leaves", 76, 1, group_id=GROUP, member_id="a", member_epoch=-1, rack_id=None,
                 subscribed_topic_names=None)  # fmt: skip
        self.ask(one, "leaves again", 76, 1, group_id=GROUP, member_id="a", member_epoch=-1, rack_id=None,
                 subscribed_topic_names=None)  # fmt: skip
        self.ask(one, "describe an empty one", 77, 1, group_ids=[GROUP], include_authorized_operations=False)
        alter("alter", GROUP, (TOPIC, {0: 7, 9: 1}), ("nothing", {0: 1}))
        alter("alter another topic", GROUP, (OTHER, {0: 5}))

    def _administering(self, one: socket.socket) -> None:
        offsets = [{"group_id": GROUP, "topics": [{"topic_name": name, "partitions": [0]} for name in (TOPIC, OTHER)]}]
        self.ask(one, "offsets altered", 90, 1, groups=offsets)
        self.ask(
            one, "forget a topic", 92, 0, group_id=GROUP, topics=[{"topic_name": OTHER}, {"topic_name": "nothing"}]
        )
        self.ask(one, "forget it again", 92, 0, group_id=GROUP, topics=[{"topic_name": OTHER}])
        self.ask(one, "forget: no group", 92, 0, group_id="nobody", topics=[{"topic_name": OTHER}])
        self.ask(one, "offsets without it", 90, 1, groups=offsets)
        self.ask(one, "classic: join", 11, 9, group_id=GROUP, session_timeout=45000, rebalance_timeout=45000,
                 member_id="", group_instance_id=None, protocol_type="consumer",
                 protocols=[{"name": "range", "metadata": b""}], reason=None)  # fmt: skip
        self.ask(one, "classic: describe", 15, 6, groups=[GROUP], include_authorized_operations=False)
        self.ask(one, "classic: commit", 8, 9, group_id=GROUP, generation_id_or_member_epoch=-1, member_id="",
                 group_instance_id=None, topics=[{"name": TOPIC, "partitions": [{"partition_index": 0,
                 "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}]}])  # fmt: skip
        self.ask(one, "delete the group", 42, 2, groups_names=[GROUP, "nobody"])
        self.ask(one, "describe what is gone", 77, 1, group_ids=[GROUP], include_authorized_operations=False)


def _short(topic_id: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _partitions(*indexes: int) -> list[Any]:
    partitions = [{"partition_index": index, "acknowledgement_batches": []} for index in indexes]
    return [{"topic_id": "$id:orders", "partitions": partitions}]


def _acks(index: int, *batches: tuple[int, int, list[int]]) -> list[Any]:
    said = [{"first_offset": first, "last_offset": last, "acknowledge_types": types} for first, last, types in batches]
    return [{"topic_id": "$id:orders", "partitions": [{"partition_index": index, "acknowledgement_batches": said}]}]


def _steady(value: Any, names: dict[str, str]) -> Any:
    """Topic ids by name, records by their number of bytes, nothing of the machine."""
    if isinstance(value, dict):
        return {key: _steady(item, names) for key, item in value.items() if key not in _CHANCE}
    if isinstance(value, list):
        return sorted((_steady(item, names) for item in value), key=_order)
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value)
    return names.get(value, value) if isinstance(value, str) else value


_CHANCE = frozenset({"throttle_time", "client_host", "host", "port"})
_KEYS = ("group_id", "topic_name", "topic_id", "partition_index", "partition", "member_id", "first_offset")


def _order(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(str(value.get(key, "")).rjust(20) for key in _KEYS)
    return (str(value),)


def batches() -> Iterator[bytes]:
    """The batches of a partition. Made here: a producer library may send a batch before its last record came."""
    for first in range(0, RECORDS, 4):
        yield batch(0, [V2Record(at, 1, None, b"value %d" % (first + at)) for at in range(4)])


def prepared(bootstrap: str, locks_end: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """What a broker without topics answers. locks_end: lets so much time pass that all locks end."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(TOPIC, 2, 1), NewTopic(OTHER, 1, 1)]).values():
        made.result(120)
    described = admin.describe_topics(TopicCollection([TOPIC, OTHER]))
    ids = {name: _uuid(found.result(120).topic_id) for name, found in described.items()}
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        for partition in range(2):
            for records in batches():
                _produce(connection, partition, records)
        earliest(connection, GROUP)
    return Script(bootstrap, ids, locks_end).run()


def _produce(connection: socket.socket, partition: int, records: bytes) -> None:
    data = [{"name": TOPIC, "partition_data": [{"index": partition, "records": records}]}]
    values = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": data}
    end = time.monotonic() + 120
    while (
        code := ask(connection, request_entity(0, 9, values, {})).responses[0].partition_responses[0].error_code
    ) == 6:
        assert time.monotonic() < end, "a busy Kafka does not become leader of a partition that it has made"
        time.sleep(0.1)
    assert not code, code


def earliest(connection: socket.socket, group: str) -> None:
    """The group begins where the partitions do."""
    reset = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": group, "configs": [reset]}
    answer = ask(connection, request_entity(44, 1, {"resources": [resource], "validate_only": False}, {}))
    assert not answer.responses[0].error_code, answer


def _uuid(found: Any) -> uuid.UUID:
    high, low = found.get_most_significant_bits(), found.get_least_significant_bits()
    return uuid.UUID(int=(high & (2**64 - 1)) << 64 | low & (2**64 - 1))
