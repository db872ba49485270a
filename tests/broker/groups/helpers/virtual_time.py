"""A group coordinator in virtual time, with a log in memory and clients that keep their last responses."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch, Record
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch, decode_batches, encode_batch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import ClassicGroup
from kafkalog_broker.groups.classic.classic_group_records import GroupKey, decode_group_value
from kafkalog_broker.groups.classic.classic_requests import (
    JoinRequest,
    JoinResponse,
    LeavingMember,
    Protocols,
    SyncRequest,
    SyncResponse,
)
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.offset_records import decode_key
from kafkalog_spark.format.names import OFFSETS_TOPIC
from kafkalog_spark.log.write.encoded_batch import EncodedRecords
from tests.broker.manual_clock import ManualClock


@dataclass(eq=False)
class Timer:
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualTime:
    """Clock and scheduler whose time passes only in `advance`, which fires timers in order."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._timers: list[tuple[int, int, Timer]] = []
        self._numbers = itertools.count()

    def __call__(self, delay_ms: int, call: Callable[[], None]) -> Timer:
        timer = Timer(call)
        heapq.heappush(self._timers, (self.clock.now_ms() + delay_ms, next(self._numbers), timer))
        return timer

    def advance(self, ms: int) -> None:
        end = self.clock.now_ms() + ms
        while self._timers and self._timers[0][0] <= end:
            at, _, timer = heapq.heappop(self._timers)
            self.clock.set(at)
            if not timer.cancelled:
                timer.call()
        self.clock.set(end)

    @property
    def waiting(self) -> int:
        return sum(not timer.cancelled for _, _, timer in self._timers)


class MemoryLog(CoordinatorLog):
    """__consumer_offsets in memory. `failure`: exception that later appends raise."""

    def __init__(self, clock: ManualClock, partitions: int = 1) -> None:
        self.name = OFFSETS_TOPIC
        self._clock = clock
        self._partitions = partitions
        self.batches: dict[int, list[bytes]] = {}
        self.failure: ErrorCode | None = None

    def append(
        self, partition: int, records: Sequence[Record] | EncodedRecords,
        transaction: ProducerIdAndEpoch | None = None, *, is_awaited: bool = True,
    ) -> int:  # fmt: skip
        if self.failure is not None:
            raise BrokerError(self.failure, "the log says no")
        batch = encode_batch(records, self._clock.now_ms(), transaction=transaction)
        self.batches.setdefault(partition, []).append(batch)
        return -1

    @property
    def partitions(self) -> int:
        return self._partitions

    def owned(self) -> range:
        return range(self._partitions)

    def scan(self, partition: int) -> Iterator[CoordinatorBatch]:
        position = 0
        for batch in decode_batches(self.batches.get(partition, [])):
            yield replace(batch, base_offset=position)
            position += len(batch.records)

    def records(self) -> list[Record]:
        return [record for partition in self.batches for batch in self.scan(partition) for record in batch.records]

    def last_group(self, group_id: str) -> Any:
        """The last record of a group; None when that is a tombstone or there is none."""
        values = [value for key, value in self.records() if decode_key(key) == GroupKey(group_id)]
        return decode_group_value(values[-1]) if values and values[-1] is not None else None


def subscription(*topics: str, version: int = 1, user_data: bytes = b"") -> bytes:
    """A consumer's metadata."""
    out = version.to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    for topic in topics:
        out += len(topic).to_bytes(2, "big") + topic.encode()
    return out + len(user_data).to_bytes(4, "big") + user_data


RANGE: Protocols = (("range", subscription("orders")),)


@dataclass
class Client:
    """A group member that performs the steps of a consumer one by one."""

    world: World
    group_id: str = "g"
    client_id: str = "client"
    protocols: Protocols = RANGE
    instance: str | None = None
    session_ms: int = 10_000
    rebalance_ms: int = 60_000
    version: int = 7
    member_id: str = ""
    generation: int = -1
    joins: list[JoinResponse] = field(default_factory=list)
    syncs: list[SyncResponse] = field(default_factory=list)
    sent: int = 0

    def join(self, **changes: Any) -> Client:
        """JoinGroup; follows MEMBER_ID_REQUIRED."""
        self._join(changes)
        if self.joins and self.joins[-1].error_code is ErrorCode.member_id_required and len(self.joins) == self.sent:
            self._join(changes)
        return self

    def _join(self, changes: dict[str, Any]) -> None:
        request = JoinRequest(
            self.group_id, self.member_id, self.client_id, "/127.0.0.1", "consumer", self.protocols,
            self.session_ms, self.rebalance_ms, self.instance,
            requires_known_member_id=self.version >= 4, supports_skipping_assignment=self.version >= 9,
        )  # fmt: skip
        self.sent += 1
        self.world.coordinator.join(replace(request, **changes), self._joined)

    def _joined(self, answer: JoinResponse) -> None:
        self.joins.append(answer)
        if answer.error_code in (ErrorCode.none, ErrorCode.member_id_required):
            self.member_id, self.generation = answer.member_id, answer.generation_id

    @property
    def joined(self) -> JoinResponse:
        """The answer to the last JoinGroup, which must be there."""
        assert len(self.joins) == self.sent, "JoinGroup waits"
        return self.joins[-1]

    @property
    def waits(self) -> bool:
        return len(self.joins) < self.sent

    @property
    def leads(self) -> bool:
        return self.joined.leader == self.member_id

    def sync(self, **changes: Any) -> Client:
        """SyncGroup; the leader gives every member its own id as assignment."""
        assignments = tuple((m.member_id, m.member_id.encode()) for m in self.joined.members) if self.leads else ()
        request = SyncRequest(
            self.group_id,
            self.member_id,
            self.generation,
            self.instance,
            "consumer",
            self.joined.protocol_name,
            assignments,
        )
        self.world.coordinator.sync(replace(request, **changes), self.syncs.append)
        return self

    def heartbeat(self) -> ErrorCode:
        return self.world.coordinator.heartbeat(self.group_id, self.member_id, self.generation, self.instance)

    def leave(self) -> ErrorCode:
        (code,) = self.world.leave(LeavingMember(self.member_id, self.instance), group_id=self.group_id)
        return code


def config_of(**properties: int) -> BrokerConfig:
    named = {"group_initial_rebalance_delay_ms": 0, **properties}
    return BrokerConfig.from_properties({name.replace("_", "."): value for name, value in named.items()})


class World:
    """A coordinator with its time and log. `config`: properties, with _ for the dots; without, the first join phase
    has no delay."""

    def __init__(self, partitions: int = 1, **config: int) -> None:
        self.time = VirtualTime()
        self.log = MemoryLog(self.time.clock, partitions)
        self.config = config_of(**config)
        self.partitions = partitions
        self._ids = itertools.count()
        self.coordinator = self.start()

    def start(self) -> GroupCoordinator:
        """Start a new coordinator on the same log, as after a restart."""
        context = GroupContext(self.config, self.time.clock, self.time, new_id=lambda: str(next(self._ids)))
        self.coordinator = GroupCoordinator(self.log, context)
        return self.coordinator

    def crash(self) -> None:
        """Restart without a shutdown: no timer of the old coordinator fires."""
        self.time._timers.clear()
        self.start()

    def client(self, **how: Any) -> Client:
        return Client(self, **how)

    def group(self, group_id: str = "g") -> ClassicGroup:
        """Return the group object, whose internal state clients cannot see."""
        return self.coordinator.shard(group_id).classic.groups[group_id]

    def leave(self, *members: LeavingMember, group_id: str = "g") -> list[ErrorCode]:
        return self.coordinator.named_shard(group_id).leave(group_id, members)

    def state(self, group_id: str = "g") -> str:
        groups = self.coordinator.shard(group_id).classic.groups
        return groups[group_id].state.value if group_id in groups else "Dead"

    def stable(self, count: int, **how: Any) -> list[Client]:
        """Create a stable group of `count` members; return them, the leader first."""
        clients = [self.client(**{"client_id": f"c{number}", **how}) for number in range(count)]
        if how.get("instance"):
            clients = [replace(client, instance=f"{how['instance']}{at}") for at, client in enumerate(clients)]
        for client in clients:
            client.join()
        self.time.advance(self.config.group_initial_rebalance_delay_ms * (count + 1))
        self.sync_all(clients)
        return sorted(clients, key=lambda client: not client.leads)

    def sync_all(self, clients: Sequence[Client]) -> None:
        for client in clients:
            client.sync()
        for client in clients:
            assert client.syncs[-1] == SyncResponse(ErrorCode.none, "consumer", "range", client.member_id.encode())
