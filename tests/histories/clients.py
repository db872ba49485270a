"""Clients of a run: each works until it is told to stop, and keeps its ledger or what it has read."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.broker.clients.helpers import bank
from tests.broker.clients.helpers.crash_load import Offsets
from tests.broker.clients.helpers.supervisor import Copier
from tests.histories import worker
from tests.histories.history import (
    Ending,
    Error,
    GroupPartition,
    Kind,
    Outcome,
    PositionRead,
    ProducerLedger,
    RecordId,
    Result,
    Seen,
    Send,
    Session,
    Transaction,
)
from tests.histories.worker import PARTITIONS, TOPIC

GROUP = "members"
DEADLINE_S = 120
"""For what takes a second on an idle machine."""
SHORT_DEADLINE_MS = 700
"""message.timeout.ms of a producer whose client gives up while the broker restarts."""
CLIENT = {
    **bank.CLIENT,
    # librdkafka 2.16 forgets the Metadata request that a member waits for before it joins when the broker dies at that
    # moment; only the next refresh ends that, after five minutes by default.
    "topic.metadata.refresh.interval.ms": 1_000,
}


def record_value(record: RecordId, size: int) -> bytes:
    return f"{record.producer} {record.number} ".encode().ljust(size, b".")


def parse_record(value: bytes | None) -> RecordId | None:
    """Return the record ID in a value, None for any other value."""
    fields = (value or b"").decode(errors="replace").split(" ")
    if len(fields) < 2 or not fields[1].isdecimal():
        return None
    return RecordId(sys.intern(fields[0]), int(fields[1]))


def error_of(client: str, error: KafkaError) -> Error:
    """librdkafka numbers errors of its own from -100 down; -1 is Kafka's UNKNOWN_SERVER_ERROR."""
    return Error(client, error.name(), error.code() > 0 or error.code() == KafkaError.UNKNOWN)


class Client(threading.Thread):
    """failed: what no client may meet. errors: what the client returned."""

    kind = ""

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.stop = threading.Event()
        self.failed: list[str] = []
        self.errors: Counter[Error] = Counter()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - reported by the run
            self.failed.append(f"{self.name}: {error!r}")

    def work(self) -> None:
        raise NotImplementedError

    def count(self, error: KafkaError) -> None:
        self.errors[error_of(self.kind, error)] += 1


class Sender(Client):
    """Producer without transactions. Its callbacks run in its own thread, so the ledger needs no lock."""

    def __init__(self, bootstrap: str, name: str, kind: Kind, seed: int, *, deadline_ms: int) -> None:
        super().__init__(name)
        self.kind = f"{kind.value} producer"
        self.ledger = ProducerLedger(name, kind)
        self._chance = random.Random(seed)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": kind is Kind.IDEMPOTENT,
                "linger.ms": 1, "message.timeout.ms": deadline_ms, **CLIENT,
            }
        )  # fmt: skip

    def work(self) -> None:
        while not self.stop.is_set():
            for _ in range(self._chance.randint(1, 20)):
                if not self.stop.is_set():
                    self._send()
            self._producer.poll(self._chance.uniform(0.02, 0.15))
        self._producer.flush(DEADLINE_S)

    def _send(self) -> None:
        ledger, number = self.ledger, len(self.ledger.sends)
        partition = self._chance.randrange(PARTITIONS)
        ledger.sends.append(Send(number, partition))
        value = record_value(RecordId(ledger.name, number), self._chance.randint(40, 200))
        try:
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=partial(self._delivered, number))
        except BufferError:
            ledger.results[number] = Result(Outcome.FAILED, None, len(ledger.sends))
        except KafkaException as error:  # the producer is over, as after a sequence number out of order
            ledger.results[number] = Result(Outcome.FAILED, None, len(ledger.sends))
            self.count(error.args[0])
            self.stop.set()

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        outcome, offset = Outcome.ACKNOWLEDGED, message.offset()
        if error is not None:
            self.count(error)
            outcome, offset = Outcome.UNKNOWN, None  # an earlier try may have been written
        self.ledger.results[number] = Result(outcome, offset, len(self.ledger.sends))


class Reader(Client):
    """Consumer of all partitions from the beginning, outside of a group."""

    def __init__(self, bootstrap: str, name: str, *, read_committed: bool) -> None:
        super().__init__(name)
        self.kind = "consumer"
        self.sessions = [Session(name, partition, read_committed) for partition in range(PARTITIONS)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False,
                "auto.offset.reset": "error", "fetch.wait.max.ms": 50,
                "isolation.level": "read_committed" if read_committed else "read_uncommitted", **CLIENT,
            }
        )  # fmt: skip

    def work(self) -> None:
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        while not self.stop.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is not None:
                    self.count(message.error())
                else:
                    self.sessions[message.partition()].seen.append(seen(message))
        self._consumer.close()

    def last_offset(self, partition: int) -> int:
        """Return the offset of the last returned record, -1 before the first."""
        found = self.sessions[partition].seen
        return found[-1].offset if found else -1


def seen(message: Message) -> Seen:
    record = parse_record(message.value())
    return Seen(message.offset(), record or RecordId(f"value {message.value()!r:.50}", -1))


class Member(Client):
    """Member of the group GROUP that commits what it has read. offsets: shared by all members."""

    def __init__(self, bootstrap: str, name: str, offsets: Offsets) -> None:
        super().__init__(name)
        self.kind = "group member"
        self.sessions: list[Session] = []
        self.failed_commits = 0
        self._offsets = offsets
        self._current: dict[int, Session] = {}
        self._floors: dict[int, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False,
                "auto.offset.reset": "earliest", "isolation.level": "read_committed", "fetch.wait.max.ms": 50,
                "session.timeout.ms": 10_000, "heartbeat.interval.ms": 200, **CLIENT,
            }
        )  # fmt: skip

    def work(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked)
        while not self.stop.is_set():
            messages = self._consumer.consume(200, 0.1)
            for message in messages:
                self._take(message)
            if self._current and any(message.error() is None for message in messages):
                self._commit()
        self._consumer.close()

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._current.pop(one.partition, None)
            self._floors[one.partition] = self._offsets.acknowledged[one.partition]

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._current.pop(one.partition, None)
            self._floors.pop(one.partition, None)

    def _take(self, message: Message) -> None:
        if message.error() is not None:
            self.count(message.error())
            return
        partition = message.partition()
        if partition not in self._floors:
            return  # of an assignment that has ended
        session = self._current.get(partition)
        if session is None:
            floor, ceiling = self._floors[partition], self._offsets.asked[partition]
            session = self._current[partition] = Session(self.name, partition, True, floor, ceiling)
            self.sessions.append(session)
        session.seen.append(seen(message))

    def _commit(self) -> None:
        offsets = [
            TopicPartition(TOPIC, partition, session.seen[-1].offset + 1)
            for partition, session in self._current.items()
        ]
        self._offsets.ask(offsets)
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as error:
            self.count(error.args[0])
            return  # the broker is away, or the group rebalances: nothing was promised
        self._offsets.acknowledge([one for one in done if one.error is None])


class LedgerWorker(Copier):
    """Transactional worker (worker.py) over all its processes. Each process is a producer of its own in the ledger."""

    def __init__(self, bootstrap: str, transactional_id: str, partition: int, seed: int, directory: Path) -> None:
        super().__init__("librdkafka", bootstrap, transactional_id, directory, script=Path(worker.__file__))
        self.key = GroupPartition(transactional_id, partition)
        self.ledgers: list[ProducerLedger] = []
        self.positions: list[PositionRead] = []
        self.errors: Counter[Error] = Counter()
        self._bootstrap, self._seed = bootstrap, seed
        self._last_begun: tuple[str, int] | None = None

    def start(self) -> None:
        name = f"{self.name}.{len(self.ledgers)}"
        self.ledgers.append(ProducerLedger(name, Kind.TRANSACTIONAL))
        arguments = (self._bootstrap, self.name, name, self.key.partition, self._seed + 1000 * len(self.ledgers))
        self.command = [sys.executable, "-P", worker.__file__, *map(str, arguments)]
        super().start()

    def take(self, line: bytes) -> bool:
        """Enter a line of the worker into the ledger. Return whether a transaction ended."""
        said, ledger = json.loads(line), self.ledgers[-1]
        match said:
            case {"position": offset}:
                self.positions.append(PositionRead(self.key, ledger.name, self._last_begun, offset))
            case {"begin": number}:
                ledger.transactions[number] = Transaction()
                self._last_begun = ledger.name, number
            case {"send": number, "partition": partition}:
                ledger.sends.append(Send(number, partition, next(reversed(ledger.transactions))))
            case {"acknowledged": number, "offset": offset}:
                ledger.results[number] = Result(Outcome.ACKNOWLEDGED, offset, len(ledger.sends))
            case {"offset": offset}:
                ledger.transactions[next(reversed(ledger.transactions))].offsets[self.key] = offset
            case {"commit": number}:
                ledger.transactions[number].ending = Ending.UNKNOWN
            case {"committed": number}:
                ledger.transactions[number].ending = Ending.COMMITTED
                return True
            case {"aborted": number}:
                ledger.transactions[number].ending = Ending.ABORTED
                return True
            case {"error": name, "is_broker": is_broker}:
                self.errors[Error("transactional producer", name, is_broker)] += 1
            case _:
                raise ValueError(f"unknown line of {ledger.name}: {line!r}")
        return False

    @property
    def last_begun(self) -> tuple[str, int] | None:
        """Producer and number of the transaction that began last."""
        return self._last_begun
