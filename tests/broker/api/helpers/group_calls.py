"""Requests of group APIs, as bytes through decoder, handler and encoder of a broker without a network."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kafkalog_broker.api import load_all
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.storage.topic import Topic
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.broker.groups.helpers.virtual_time import RANGE, World
from tests.broker.protocol.helpers.kio_messages import encode_with_kio, kio_request_class, kios_of, read_response

JOIN, SYNC, HEARTBEAT, LEAVE = 11, 14, 12, 13
COMMIT, FETCH, OFFSET_DELETE = 8, 9, 47
FIND, LIST, DESCRIBE, DELETE = 10, 16, 15, 42
FLEXIBLE_FROM = {JOIN: 6, SYNC: 4, HEARTBEAT: 4, LEAVE: 4, COMMIT: 8, FETCH: 6, OFFSET_DELETE: 99}
FLEXIBLE_FROM |= {FIND: 3, LIST: 3, DESCRIBE: 5, DELETE: 2}


class Topics(dict[str, Topic]):
    def by_id(self, topic_id: UUID) -> Topic | None:
        return next((topic for topic in self.values() if topic.id == topic_id), None)


@dataclass
class FakeBroker:
    """Broker with a topic `orders` of two partitions, and with a group coordinator in virtual time."""

    world: World = field(default_factory=World)
    node_id: int = 7
    topics: Topics = field(default_factory=lambda: Topics(orders=Topic("orders", UUID(int=5), 2)))
    created: list[tuple[str, int, str]] = field(default_factory=list)
    refuses: ErrorCode | None = None

    @property
    def groups(self) -> Any:
        return self.world.coordinator

    advertised: tuple[Listener, ...] = (
        Listener("OTHER", "other.example", 1),
        Listener("PLAINTEXT", "broker.example", 9092),
    )
    config: Any = field(
        default_factory=lambda: SimpleNamespace(
            broker_rack=None,
            offsets_topic_num_partitions=50,
            offsets_topic_segment_bytes=104_857_600,
            transaction_state_log_num_partitions=50,
            transaction_state_log_segment_bytes=104_857_600,
            share_coordinator_state_topic_num_partitions=50,
            share_coordinator_state_topic_segment_bytes=104_857_600,
        )
    )

    async def ensure_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        if self.refuses is not None:
            raise BrokerError(self.refuses, "no room")
        if name not in self.topics:
            self.created.append((name, partitions, configs["cleanup.policy"]))
            self.topics[name] = Topic(name, UUID(int=9), partitions, configs)

    internal_partitions = Broker.internal_partitions
    ensure_internal_topic = Broker.ensure_internal_topic

    async def run_computing(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)


def versions(key: int) -> range:
    api = load_all()[key]
    return range(api.min_version, api.max_version + 1)


def decoded(key: int, version: int, values: dict[str, Any]) -> Request:
    """Return a request as the handler gets it: encoded and decoded."""
    load_all()
    head = struct.pack(">hhih", key, version, 1, 3) + b"app"
    tags = b"\0" if version >= FLEXIBLE_FROM[key] else b""
    body = encode_with_kio(kios_of(kio_request_class(key, version), request_entity(key, version, values, {})))
    return decode_request(head + tags + body, ConnectionInfo(host="10.0.0.9"))


def read(request: Request, response: Any) -> dict[str, Any]:
    """Return a response as a client reads it: encoded and decoded."""
    data = b"".join(map(bytes, encode_response(request, response)))
    found = plain(read_response(request.api_key, request.version, data[4:]))
    assert found.pop("throttle_time", 0) == 0
    return found  # type: ignore[no-any-return]


def call(broker: FakeBroker, api: int, version: int, /, advance_ms: int = 0, **values: Any) -> dict[str, Any]:
    """Return the response to a request. `advance_ms` is the time that passes while the request waits."""
    request = decoded(api, version, values)

    async def run() -> Any:
        task = asyncio.ensure_future(load_all()[api].respond(request, broker))
        await asyncio.sleep(0)
        broker.world.time.advance(advance_ms)
        return await asyncio.wait_for(task, 5)

    return read(request, asyncio.run(run()))


def error_answer(api: int, version: int, code: ErrorCode, /, **values: Any) -> dict[str, Any]:
    request = decoded(api, version, values)
    answer = load_all()[api].on_error
    assert answer is not None
    told = answer(request, code)
    return read(request, asyncio.run(told) if asyncio.iscoroutine(told) else told)


def join_values(member_id: str = "", **changes: Any) -> dict[str, Any]:
    """Return the fields of a consumer's JoinGroup request, for all versions."""
    ((name, metadata),) = RANGE
    return {
        "group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 60_000, "member_id": member_id,
        "group_instance_id": None, "protocol_type": "consumer", "reason": None,
        "protocols": [{"name": name, "metadata": metadata}],
    } | changes  # fmt: skip


def join(broker: FakeBroker, version: int, **changes: Any) -> dict[str, Any]:
    """Join, with a second request if the version requires a member ID."""
    answer = call(broker, JOIN, version, **join_values(**changes))
    if answer["error_code"] == "member_id_required":
        answer = call(broker, JOIN, version, **join_values(answer["member_id"], **changes))
    return answer


def sync(broker: FakeBroker, version: int, joined: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Send the SyncGroup request of a leader that assigns everything to itself."""
    values = {
        "group_id": "g", "generation_id": joined["generation_id"], "member_id": joined["member_id"],
        "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range",
        "assignments": [{"member_id": joined["member_id"], "assignment": b"all"}],
    }  # fmt: skip
    return call(broker, SYNC, version, **(values | changes))


def member(broker: FakeBroker, **changes: Any) -> dict[str, Any]:
    """Make a stable group with one member, and return its JoinGroup response."""
    joined = join(broker, 7, **changes)
    assert joined["error_code"] == "none"
    assert sync(broker, 5, joined, group_instance_id=changes.get("group_instance_id"))["error_code"] == "none"
    return joined


def commit_values(group_id: str = "g", **changes: Any) -> dict[str, Any]:
    """Return the fields of an OffsetCommit request: three partitions of `orders`, of which the last does
    not exist, and one of an unknown topic."""
    partitions = [
        {
            "partition_index": index,
            "committed_offset": 10 + index,
            "committed_leader_epoch": 3,
            "commit_timestamp": -1,
            "committed_metadata": text,
        }
        for index, text in ((0, "note"), (1, None), (2, ""))
    ]
    return {
        "group_id": group_id, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "retention_time": -1,
        "topics": [
            {"name": "orders", "topic_id": str(UUID(int=5)), "partitions": partitions},
            {"name": "nothing", "topic_id": str(UUID(int=6)), "partitions": partitions[:1]},
        ],
    } | changes  # fmt: skip
