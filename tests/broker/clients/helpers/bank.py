"""A bank: transfers between accounts in one transaction each, and checks of what readers see of them.

A transfer takes an amount from one account and gives it to another: two records, in the partitions of the accounts.
Whoever reads committed records must see both or neither, and the sum over all accounts never changes.
"""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_scan import scan_partition

TOPIC, PARTITIONS, ACCOUNTS = "bank", 8, 100
TIMEOUT_MS = 1_500
WAIT = 60
PROPERTIES = {
    "log.segment.bytes": 1 << 20,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "transaction.state.log.num.partitions": 5,
}
CLIENT = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


class Record(NamedTuple):
    transfer: str
    account: int
    amount: int

    @classmethod
    def read(cls, value: bytes) -> Record:
        transfer, account, amount = value.decode().split()
        return cls(transfer, int(account), int(amount))

    @property
    def text(self) -> str:
        """The record's value as text."""
        return f"{self.transfer} {self.account} {self.amount}"


@dataclass
class Outcomes:
    """Outcomes of the producers' transfers. unknown: the response to a commit was lost."""

    committed: set[str] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    ways: Counter[str] = field(default_factory=Counter)


class Teller(threading.Thread):
    """A transactional producer that makes random transfers until it is stopped: it commits, aborts, lets transactions
    time out, and is fenced by a second producer with its transactional ID.
    """

    def __init__(self, bootstrap: str, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.outcomes = Outcomes()
        self.failed: list[str] = []
        self._servers, self._name = bootstrap, f"teller-{number}"
        self._chance = random.Random(seed)
        self._transfers = 0
        self._begun = False  # whether the broker knows the latest producer, which fences those before it
        self._producer = self._begin()

    def _begin(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._servers, "transactional.id": self._name, "linger.ms": 0,
                "transaction.timeout.ms": TIMEOUT_MS, "message.timeout.ms": TIMEOUT_MS, **CLIENT,
            }
        )  # fmt: skip
        self._begun = False
        while not self.stop.is_set() or not self._transfers:
            try:
                producer.init_transactions(WAIT)
                self._begun = True
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        return producer

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self._transfer()
        except Exception as error:  # noqa: BLE001 - reported by the test, whatever it is
            self.failed.append(f"{self._name}: {error!r}")
        finally:
            del self._producer  # it would look for its broker as long as anything holds this teller

    def _transfer(self) -> None:
        self._transfers += 1
        transfer = f"{self._name}/{self._transfers}"
        one, other = self._chance.sample(range(ACCOUNTS), 2)
        amount = self._chance.randint(1, 100)
        way = self._chance.random()
        producer = self._producer
        try:
            producer.begin_transaction()
            for account, change in ((one, -amount), (other, amount)):
                value = Record(transfer, account, change).text.encode()
                producer.produce(TOPIC, value, b"%d" % account, account % PARTITIONS)
            if way < 0.02:
                self._let_it_time_out(transfer)
            elif way < 0.05:
                self._be_fenced(transfer)
            elif way < 0.25:
                producer.flush(WAIT)
                self._end(transfer, commit=False)
            else:
                self._end(transfer, commit=True)
        except KafkaException as error:
            self._recover(transfer, error)

    def _end(self, transfer: str, *, commit: bool) -> None:
        (self.outcomes.unknown if commit else self.outcomes.aborted).add(transfer)
        while True:
            try:
                (self._producer.commit_transaction if commit else self._producer.abort_transaction)(WAIT)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        self.outcomes.ways["commit" if commit else "abort"] += 1
        if commit:
            self.outcomes.committed.add(transfer)
            self.outcomes.unknown.discard(transfer)

    def _let_it_time_out(self, transfer: str) -> None:
        self.outcomes.aborted.add(transfer)
        self._producer.flush(WAIT)
        self.stop.wait(TIMEOUT_MS / 1000 + 0.3)
        self.outcomes.ways["timeout"] += 1
        self._producer = self._begin()

    def _be_fenced(self, transfer: str) -> None:
        """Another producer with the same id begins, then the zombie tries to commit."""
        self._producer.flush(WAIT)
        zombie, self._producer = self._producer, self._begin()
        self.outcomes.aborted.add(transfer)
        if not self._begun:
            return  # stopped before the other had begun: nobody is fenced, and the transaction times out
        self.outcomes.ways["fenced"] += 1
        try:
            zombie.commit_transaction(WAIT)
        except KafkaException:
            return
        self.failed.append(f"{transfer}: a fenced producer could commit")

    def _recover(self, transfer: str, error: KafkaException) -> None:
        """End the transaction, either way; unknown outcomes stay unknown."""
        if transfer not in self.outcomes.unknown:
            self.outcomes.aborted.add(transfer)
        self.outcomes.ways["error"] += 1
        if error.args[0].txn_requires_abort():
            try:
                self._end(transfer, commit=False)
            except KafkaException:
                pass
            else:
                return
        self._producer = self._begin()


Visible = list[tuple[int, Record]]
"""Of one partition: offset and record."""


@dataclass
class Seen:
    """Transfers that a reader saw. hidden: those of which some record below the last stable offset was skipped."""

    records: list[Visible]
    hidden: set[str] = field(default_factory=set)

    def visible(self) -> Counter[str]:
        return Counter(record.transfer for records in self.records for _, record in records)

    def check(self, aborted: Iterable[str]) -> Counter[str]:
        """Assert that no transfer was aborted, seen twice or seen in part."""
        visible = self.visible()
        assert not visible.keys() & set(aborted), "a transfer that was never committed is visible"
        assert not visible.keys() & self.hidden, "a transfer is visible in one partition and aborted in the other"
        assert max(visible.values(), default=0) <= 2, "a transfer was written twice"
        for number, records in enumerate(self.records):
            assert all(record.account % PARTITIONS == number for _, record in records)
            offsets = [offset for offset, _ in records]
            assert offsets == sorted(set(offsets))
        return visible

    def check_whole(self, outcomes: list[Outcomes]) -> None:
        """After all transactions have ended: as `check`, and all that was committed is there."""
        visible = self.check(transfer for told in outcomes for transfer in told.aborted)
        assert set(visible.values()) <= {2}, "half of a transfer is visible"
        amounts = Counter[str]()
        for records in self.records:
            for _, record in records:
                amounts[record.transfer] += record.amount
        assert not any(amounts.values()), "the sum over all accounts has changed"
        committed = {transfer for told in outcomes for transfer in told.committed}
        unknown = {transfer for told in outcomes for transfer in told.unknown}
        assert committed <= visible.keys(), f"committed and not visible: {sorted(committed - visible.keys())[:5]}"
        assert visible.keys() <= committed | unknown


class LiveReads(threading.Thread):
    """Reads all partitions again and again while tellers work and the broker is killed, and holds each read to what a
    read of several partitions can promise.

    A transfer may be visible in one partition and not yet in the other: each partition is read to its own last stable
    offset, a moment earlier or later, and an older open transaction may hold back one of them. But of each partition a
    read sees, at any moment, all committed records up to some offset and nothing else, so

    - it sees what the read before saw, unchanged, and only more behind it;
    - it sees all that in the end is committed below the last stable offset that the broker told before the read began;
    - what it sees is the beginning of what all see in the end: nothing aborted, no hole, every transfer whole in time.
    """

    def __init__(self, broker: RunningBroker, read: Callable[[], list[Visible]]) -> None:
        super().__init__(daemon=True, name="live reader")
        self.stop = threading.Event()
        self.failed: list[str] = []
        self.reads = 0
        self._servers, self._read = broker.bootstrap, read
        self._seen: list[Visible] = [[] for _ in range(PARTITIONS)]
        self._looks: list[tuple[list[int], list[int]]] = []

    def run(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "live", "log_level": 0,
                             "isolation.level": "read_committed", **CLIENT})  # fmt: skip
        stable = [0] * PARTITIONS
        try:
            while not self.stop.is_set() and not self.failed:
                for partition in range(PARTITIONS):
                    try:
                        _, stable[partition] = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), 0.5)
                    except KafkaException:
                        break  # the broker is away: what it told before still holds
                self._take(self._read(), list(stable))
        except Exception as error:  # noqa: BLE001 - reported by the test, whatever it is
            self.failed.append(repr(error))
        finally:
            consumer.close()

    def _take(self, seen: list[Visible], stable: list[int]) -> None:
        for partition, (before, now) in enumerate(zip(self._seen, seen, strict=True)):
            if now[: len(before)] != before:
                self.failed.append(f"read {self.reads}: partition {partition} is not what it was with more behind it")
        self._seen = seen
        self._looks.append((stable, [len(found) for found in seen]))
        self.reads += 1

    def check(self, final: list[Visible]) -> None:
        """`final`: all records of committed transfers, when all transactions have ended."""
        assert self.failed == []
        for partition, (live, found) in enumerate(zip(self._seen, final, strict=True)):
            assert found[: len(live)] == live, f"partition {partition}: a live read saw what is not there in the end"
            offsets = [offset for offset, _ in found]
            for number, (stable, counts) in enumerate(self._looks):
                missing = bisect_left(offsets, stable[partition]) - counts[partition]
                assert missing <= 0, f"read {number}: {missing} stable records of partition {partition} are missing"
        total = sum(map(len, final))
        assert any(0 < sum(counts) < total for _, counts in self._looks), "no read met the load"


def read_with_our_reader(log_dir: Path) -> Seen:
    """The files as they are, also while the broker writes."""
    dirs = LogDirs.open(log_dir)
    seen = Seen([])
    for partition in range(PARTITIONS):
        log = dirs.partition(TOPIC, partition)
        start, end = log.log_start_offset, last_stable_offset(log)
        found = {
            committed: [
                (offset, Record.read(value))
                for rows in scan_partition(
                    log, start, end, ScanRequest(columns=("offset", "value"), read_committed=committed)
                )
                for offset, value in zip(*(rows.column(name).to_pylist() for name in ("offset", "value")), strict=True)
            ]
            for committed in (True, False)
        }
        seen.records.append(found[True])
        seen.hidden |= {record.transfer for _, record in found[False]} - {record.transfer for _, record in found[True]}
    return seen


def read_with_librdkafka(bootstrap: str) -> Seen:
    """All partitions up to their last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "auditor", "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": True, **CLIENT,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    seen, ended = Seen([[] for _ in range(PARTITIONS)]), set()
    for message in _messages(consumer):
        if message.error():
            ended.add(message.partition())
            if len(ended) == PARTITIONS:
                break
        else:
            seen.records[message.partition()].append((message.offset(), Record.read(message.value())))
    consumer.close()
    return seen


def _messages(consumer: Consumer) -> Iterator[Any]:
    end = time.monotonic() + WAIT
    while True:
        found = consumer.consume(1000, 0.1)  # it waits so long for the thousandth
        assert found or time.monotonic() < end, "nothing comes"
        yield from found


def wait_until_stable(broker: RunningBroker) -> None:
    """Return when no partition has an open transaction; abandoned transactions have then timed out."""
    consumer = {
        level: Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "stable", "isolation.level": level})
        for level in ("read_committed", "read_uncommitted")
    }
    end = time.monotonic() + WAIT
    for partition in range(PARTITIONS):
        while True:
            stable, last = (
                consumer[level].get_watermark_offsets(TopicPartition(TOPIC, partition), WAIT)[1]
                for level in ("read_committed", "read_uncommitted")
            )
            if stable == last:
                break
            assert time.monotonic() < end, f"a transaction hangs in partition {partition}: {stable} of {last} is stable"
            time.sleep(0.1)
    for one in consumer.values():
        one.close()
