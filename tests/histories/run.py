"""Run of the clients against a broker that is killed and restarted; the result is its History."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_scan import scan_partition
from tests.broker.clients.helpers.crash_load import BROKER_PROPERTIES, TOPIC_CONFIG, Offsets
from tests.broker.clients.helpers.supervisor import Supervisor
from tests.histories.clients import (
    CLIENT,
    DEADLINE_S,
    GROUP,
    SHORT_DEADLINE_MS,
    Client,
    LedgerWorker,
    Member,
    Reader,
    Sender,
    parse_record,
    seen,
)
from tests.histories.history import (
    Entry,
    Error,
    GroupPartition,
    History,
    Kind,
    OffsetRead,
    PositionRead,
    RecordId,
    Seen,
)
from tests.histories.worker import PARTITIONS, TOPIC

WORKERS = MEMBERS = 3
PROPERTIES = {
    **BROKER_PROPERTIES,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "transaction.state.log.num.partitions": 3,
}
FIRST_KILL_S = 1.0
WORKER_KILLS = 0.3  # share of the kills of the broker with which a worker is killed, too


@dataclass(frozen=True)
class Plan:
    """seconds: how long the clients work. kills: of the broker, at random moments."""

    seconds: float
    kills: int
    seed: int

    def moments(self, chance: random.Random) -> list[float]:
        """Seconds since the start of the clients. Two of them may be close together: a kill right after a start."""
        return sorted(chance.uniform(min(FIRST_KILL_S, self.seconds), self.seconds) for _ in range(self.kills))


@dataclass
class _Clients:
    senders: list[Sender]
    readers: list[Reader]
    members: list[Member]
    workers: list[LedgerWorker]
    offsets: Offsets

    @classmethod
    def of(cls, broker: RunningBroker, plan: Plan, directory: Path) -> _Clients:
        bootstrap, offsets = broker.bootstrap, Offsets()
        seeds = itertools.count(plan.seed * 1_000_000, 10_000)
        patient = DEADLINE_S * 1000
        kinds = [
            ("plain-0", Kind.PLAIN, patient),
            ("plain-1", Kind.PLAIN, SHORT_DEADLINE_MS),
            ("idempotent-0", Kind.IDEMPOTENT, patient),
            ("idempotent-1", Kind.IDEMPOTENT, patient),
        ]
        return cls(
            [Sender(bootstrap, name, kind, next(seeds), deadline_ms=limit) for name, kind, limit in kinds],
            [Reader(bootstrap, f"read_{level}", read_committed=level == "committed")
             for level in ("committed", "uncommitted")],
            [Member(bootstrap, f"member-{number}", offsets) for number in range(MEMBERS)],
            [LedgerWorker(bootstrap, f"worker-{number}", number % PARTITIONS, next(seeds), directory)
             for number in range(WORKERS)],
            offsets,
        )  # fmt: skip

    @property
    def threads(self) -> list[Client]:
        return [*self.senders, *self.readers, *self.members]

    def failures(self) -> list[str]:
        clients: list[Client | LedgerWorker] = [*self.threads, *self.workers]
        return [text for client in clients for text in client.failed]


def run(
    plan: Plan,
    directory: Path,
    told: Callable[[str], object] = lambda _: None,
    while_down: Callable[[int, Path], object] = lambda number, log_dir: None,
) -> History:
    """Run the plan in `directory` and return its history.

    Args:
        told: Gets lines about the progress.
        while_down: Called after each kill, with its number from 1 on and the broker's log directory.

    Raises:
        RuntimeError: If a client failed in a way that is neither an error of Kafka nor a time-out.
        BrokerDied: If the broker does not start after a kill.
    """
    broker = RunningBroker(directory / "data", PROPERTIES)
    broker.start()
    broker.create_topic(TOPIC, PARTITIONS, TOPIC_CONFIG)
    history, clients = History(), _Clients.of(broker, plan, directory)
    with ExitStack() as stack:
        stack.callback(broker.kill)
        stack.enter_context(_working(clients.threads))
        with Supervisor(clients.workers) as supervisor:
            _kill_again_and_again(broker, supervisor, plan, clients, history, told, while_down)
            for sender in clients.senders:
                sender.stop.set()
            for sender in clients.senders:
                sender.join(2 * DEADLINE_S)
        told("the producers have ended")
        history.open_transactions = _open_transactions(broker.bootstrap)
        _read_positions(broker.bootstrap, clients, history)
        history.log = _read_log(broker.bootstrap)
        history.stalled = _stalled(clients, history)
        history.offset_reads += _committed_offsets(broker.bootstrap, clients.offsets)
        for thread in clients.threads:
            thread.stop.set()
        for thread in clients.threads:
            thread.join(DEADLINE_S)
        broker.kill()
        history.disagreements = [*_differences(history.log, _read_files(broker.log_dir)), *_check(broker.log_dir)]
    if clients.failures():
        raise RuntimeError("; ".join(clients.failures()))
    _collect(clients, history)
    history.broker_errors = [line for line in broker.log().splitlines() if " ERROR " in line or "Traceback" in line]
    return history


@contextmanager
def _working(threads: list[Client]) -> Iterator[None]:
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.stop.set()


def _kill_again_and_again(
    broker: RunningBroker, supervisor: Supervisor, plan: Plan, clients: _Clients, history: History,
    told: Callable[[str], object], while_down: Callable[[int, Path], object],
) -> None:  # fmt: skip
    chance = random.Random(plan.seed)
    began = time.monotonic()
    supervisor.broker_serves(True)
    for number, moment in enumerate(plan.moments(chance), 1):
        _wait_until(began + moment, clients)
        supervisor.broker_serves(False)
        broker.kill()
        if chance.random() < WORKER_KILLS:
            supervisor.kill_one(chance)
        while_down(number, broker.log_dir)
        broker.start()
        supervisor.broker_serves(True)
        history.offset_reads += _committed_offsets(broker.bootstrap, clients.offsets)
        told(f"kill {number} of {plan.kills}, {time.monotonic() - began:.0f} s")
    _wait_until(began + plan.seconds, clients)


def _wait_until(end: float, clients: _Clients) -> None:
    while (left := end - time.monotonic()) > 0 and not clients.failures():
        time.sleep(min(left, 0.1))


# What is read at the end.


def _consumer(bootstrap: str, group: str, *, read_committed: bool = True) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False,
            "enable.partition.eof": True, "auto.offset.reset": "error",
            "isolation.level": "read_committed" if read_committed else "read_uncommitted", **CLIENT,
        }
    )  # fmt: skip


def _open_transactions(bootstrap: str) -> list[str]:
    """Partitions that still have an open transaction after all have been aborted by their time-outs."""
    levels = [_consumer(bootstrap, "ends", read_committed=committed) for committed in (True, False)]
    found, end = [], time.monotonic() + DEADLINE_S
    for partition in range(PARTITIONS):
        while True:
            stable, last = (
                level.get_watermark_offsets(TopicPartition(TOPIC, partition), DEADLINE_S)[1] for level in levels
            )
            if stable == last:
                break
            if time.monotonic() > end:
                found.append(f"partition {partition}: the last stable offset is {stable}, the end {last}")
                break
            time.sleep(0.1)
    for level in levels:
        level.close()
    return found


def _read_positions(bootstrap: str, clients: _Clients, history: History) -> None:
    """The committed offsets that the transactions of each worker left."""
    for worker in clients.workers:
        consumer = _consumer(bootstrap, worker.key.group)
        (found,) = consumer.committed([TopicPartition(TOPIC, worker.key.partition)], DEADLINE_S)
        consumer.close()
        offset = found.offset if found.offset >= 0 else None
        history.position_reads += [
            *worker.positions,
            PositionRead(worker.key, worker.ledgers[-1].name, worker.last_begun, offset),
        ]


def _read_log(bootstrap: str) -> dict[int, list[Entry]]:
    """All records, as consumers of both isolation levels return them."""
    every, committed = (_read_with_consumer(bootstrap, read_committed=level) for level in (False, True))
    log = {}
    for partition, found in every.items():
        visible = set(committed[partition])
        log[partition] = [Entry(one.offset, _known(one), one in visible) for one in found]
        unknown = visible - set(found)
        log[partition] += [Entry(one.offset, _known(one), True) for one in unknown]  # PHANTOM, or DISAGREEMENT
        log[partition].sort(key=lambda entry: entry.offset)
    return log


def _known(found: Seen) -> RecordId | None:
    return found.record if found.record.number >= 0 else None


def _read_with_consumer(bootstrap: str, *, read_committed: bool) -> dict[int, list[Seen]]:
    consumer = _consumer(bootstrap, "auditor", read_committed=read_committed)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[Seen]] = {partition: [] for partition in range(PARTITIONS)}
    ended: set[int] = set()
    last = time.monotonic()
    while len(ended) < PARTITIONS:
        messages = consumer.consume(2000, 0.1)
        if messages:
            last = time.monotonic()
        elif time.monotonic() > last + DEADLINE_S:
            raise RuntimeError(f"the consumer of the final log gets no more records: {found.keys() - ended} are left")
        for message in messages:
            if message.error() is None:
                found[message.partition()].append(seen(message))
            else:
                ended.add(message.partition())
    consumer.close()
    return found


def _read_files(log_dir: Path) -> dict[int, list[Entry]]:
    """All records, as the files hold them."""
    dirs, log = LogDirs.open(log_dir), {}
    for partition in range(PARTITIONS):
        found = dirs.partition(TOPIC, partition)
        start, end = found.log_start_offset, last_stable_offset(found)
        rows: dict[bool, dict[int, bytes]] = {}
        for committed in (True, False):
            request = ScanRequest(columns=("offset", "value"), read_committed=committed)
            rows[committed] = {
                offset: value
                for batch in scan_partition(found, start, end, request)
                for offset, value in zip(*(batch.column(name).to_pylist() for name in ("offset", "value")), strict=True)
            }
        log[partition] = [
            Entry(offset, parse_record(value), offset in rows[True]) for offset, value in sorted(rows[False].items())
        ]
    return log


def _differences(served: dict[int, list[Entry]], stored: dict[int, list[Entry]]) -> Iterator[str]:
    for partition, entries in served.items():
        differing = set(entries) ^ set(stored[partition])
        if differing:
            first = min(differing, key=lambda entry: entry.offset)
            yield f"partition {partition}: {len(differing)} records differ, the first at offset {first.offset}"


def _check(log_dir: Path) -> Iterator[str]:
    for finding in check_log_dirs([log_dir]).findings.kept:
        if finding.is_error:
            yield f"kafkalog-check: {finding}"


def _stalled(clients: _Clients, history: History) -> list[str]:
    """Readers and group that do not reach the end of the log in time."""
    visible = {
        level: [
            max((one.offset for one in history.log[partition] if one.is_committed or not level), default=-1)
            for partition in range(PARTITIONS)
        ]
        for level in (True, False)
    }
    end = time.monotonic() + DEADLINE_S
    found = []
    for reader in clients.readers:
        last = visible[reader.sessions[0].read_committed]
        for partition in range(PARTITIONS):
            if not _reaches(lambda: reader.last_offset(partition), last[partition], end):  # noqa: B023
                found.append(
                    f"{reader.name}, partition {partition}: {reader.last_offset(partition)} of {last[partition]}"
                )
    for partition in range(PARTITIONS):
        last_offset = visible[True][partition] + 1
        if not _reaches(lambda: clients.offsets.acknowledged[partition], last_offset, end):  # noqa: B023
            found.append(
                f"group {GROUP}, partition {partition}: {clients.offsets.acknowledged[partition]} of {last_offset} "
                "is committed"
            )
    return found


def _reaches(position: Callable[[], int], target: int, end: float) -> bool:
    while position() < target:
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _committed_offsets(bootstrap: str, offsets: Offsets) -> list[OffsetRead]:
    """Committed offsets of the group with their bounds; none if the broker does not respond in time."""
    consumer = _consumer(bootstrap, GROUP)
    before = list(offsets.acknowledged)
    try:
        found = consumer.committed([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)], DEADLINE_S)
    except KafkaException:
        return []
    finally:
        consumer.close()
    return [
        OffsetRead(GroupPartition(GROUP, one.partition), max(one.offset, 0), low, offsets.asked[one.partition])
        for one, low in zip(found, before, strict=True)
        if one.error is None
    ]


def _collect(clients: _Clients, history: History) -> None:
    history.producers = [sender.ledger for sender in clients.senders]
    for worker in clients.workers:
        history.producers += worker.ledgers
        history.lineage[worker.name] = [ledger.name for ledger in worker.ledgers]
    for reader in clients.readers:
        history.sessions += reader.sessions
    for member in clients.members:
        history.sessions += member.sessions
    every: list[Client | LedgerWorker] = [*clients.threads, *clients.workers]
    history.errors = sum((client.errors for client in every), start=Counter[Error]())
