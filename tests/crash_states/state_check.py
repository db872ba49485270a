"""Checks of one state: the broker is started on it, and must keep what the mode promises."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafkalog_broker.server import Server
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from tests.broker.manual_clock import ManualClock
from tests.crash_states.broker_thread import BrokerThread, Client, quiet
from tests.crash_states.disk import StateKind, Tree, build_tree, choose, write_tree
from tests.crash_states.ledger import Ledger, Partition, SentTransaction, expected_values
from tests.crash_states.registers import observe
from tests.crash_states.session import (
    EARLIEST,
    LATEST,
    TIMEOUT_MS,
    FetchedRecord,
    IdempotentProducer,
    Refused,
    Session,
)
from tests.crash_states.world import LOGS, TIER, WORKLOADS, Run, in_directory, scratch_directory

TICK_MS = 1000
FLUSH_ROUNDS = 40
"""Rounds of housekeeping after which a log's last records are flushed, and with flush.messages=1 visible."""


@dataclass(frozen=True)
class Anomaly:
    """kind: its class, a short name. what: the details."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


class StateCheck:
    """Checks of the state of `run` after a crash at `point`. `anomalies` is the result.

    rng: decides between equivalent ways to go on after the restart, so that a state is checked the same way again.
    """

    def __init__(self, run: Run, point: int, directory: Path, rng: random.Random) -> None:
        self.run, self.point, self.directory, self.rng = run, point, directory, rng
        self.ledger, self.mode = run.ledger, run.mode
        self.log_dir, self.tier = directory / LOGS, directory / TIER
        self.anomalies: list[Anomaly] = []
        self.clock = ManualClock(run.now_ms + 1000)
        self.compacted: set[str] = set(run.facts.get("compacted", ()))
        self.broker: BrokerThread
        self.session: Session
        self.served: list[Partition] = []

    def report(self, kind: str, what: str) -> None:
        self.anomalies.append(Anomaly(kind, what))

    # ---- the broker

    @contextmanager
    def started(self) -> Iterator[bool]:
        """Start the broker, stop it cleanly; False if it does not start."""
        self.broker = BrokerThread(in_directory(self.run.properties, self.directory), self.clock)
        try:
            self.broker.start()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self.report("start-fails", f"{type(error).__name__}: {error}")
            yield False
            return
        client = Client(self.broker.port)
        self.session = Session(client, Ledger(), self.broker)
        try:
            yield True
        except (Refused, ConnectionError) as error:
            self.report("request-fails", f"{type(error).__name__}: {error}")
        finally:
            client.close()
            try:
                self.broker.stop()
            except RuntimeError as error:
                self.report("stop-unclean", str(error))

    def settle(self) -> None:
        """Return when no transaction waits for markers, or report that one does."""

        async def completed(server: Server) -> list[str]:
            for _ in range(200):
                if not server.broker.transactions.prepared:
                    break
                server.broker.transaction_ends.complete_soon()
                await asyncio.sleep(0.001)
            return server.broker.transactions.prepared

        left = self.broker.run(completed)
        if left:
            self.report("markers-stuck", f"transactions {left} are not completed")

    # ---- the whole check

    def check(self) -> None:
        """Do all of it."""
        known = WORKLOADS.get(self.run.workload)
        own = None if known is None else known.check
        steps: list[Callable[[], None]] = [
            self.settle, self._check_online, self._check_registers, self._check_records,
            partial(self._check_visible, final=False), self._end_transactions, self._check_lso,
            partial(self._check_visible, final=True), self._continue_producers, self._produce_everywhere,
        ]  # fmt: skip
        if own is not None:
            steps.insert(4, partial(own, self))
        ends: dict[Partition, int] = {}
        with self.started() as is_started:
            if not is_started:
                return
            for step in steps:
                try:
                    step()
                except (Refused, TimeoutError) as error:
                    self.report("request-fails", str(error))
            ends = {partition: self.session.list_offset(partition, LATEST) for partition in self.served}
        if not self.anomalies or self.rng.random() < 0.3:
            self._check_files()
        if self.rng.random() < 0.3:
            with self.started() as is_started:
                if is_started:
                    for partition, end in ends.items():
                        found = self.session.list_offset(partition, LATEST)
                        if found != end:
                            self.report("second-start", f"{partition} ended at {end}, and at {found} after a stop")

    def _check_online(self) -> None:
        """Every partition that may exist is online; `served` are those that do."""

        async def offline(server: Server) -> list[str]:
            found = [f"{one.topic}-{one.partition}: {one.failure}" for one in server.broker.logs.entries.values()
                     if not one.is_online or (one.log is not None and one.log.failure is not None)]  # fmt: skip
            return found + [f"{topic}-{partition}: absent" for topic, partition in server.broker.logs.absent]

        for text in self.broker.run(offline):
            self.report("offline", text)

        async def partitions(server: Server) -> list[Partition]:
            return sorted(server.broker.logs.entries)

        known = set(self.broker.run(partitions))
        self.served = [
            one for one in self.ledger.partitions()
            if one in known and not self.ledger.is_deleted(one[0], self.point)
        ]  # fmt: skip
        for partition in self.ledger.partitions():
            acked = [one for one in self.ledger.of_partition(partition) if one.acked_at < self.point]
            if partition not in known and acked and not self.ledger.is_deleted(partition[0], self.point):
                self.report("partition-lost", f"{partition} had acknowledged records and is gone")

    def _check_registers(self) -> None:
        for key, register in self.ledger.registers.items():
            kind = key[0] if isinstance(key, tuple) else key
            durable = self.mode.keeps_state if kind in ("offset", "group", "share") else True
            allowed = register.possible(self.point, durable=durable)
            found = observe(self, key)
            if found not in allowed:
                self.report(f"{kind}-wrong", f"{_text(key)} is {found!r}, allowed are {allowed!r}")

    # ---- records

    def _check_records(self) -> None:
        """Each log is a prefix of what was sent; with a promise, nothing acknowledged is missing."""
        recovered = self.broker.recovered
        for partition in self.served:
            start, end, records = self.session.read(partition)
            highest = self.ledger.trimmed_to(partition, self.point)
            # Deleted records may come back: the log start offset is checkpointed later, as in Kafka.
            if start > highest:
                self.report("start-moved", f"{partition} begins at {start}, nobody asked for more than {highest}")
            self._check_content(partition, start, end, records, recovered.get(partition, end))

    def _check_content(
        self, partition: Partition, start: int, end: int, records: list[FetchedRecord], recovered: int
    ) -> None:
        expected = expected_values(self.ledger.of_partition(partition))
        following = start
        for record in records:
            if record.offset != following and partition[0] not in self.compacted:
                self.report("gap", f"{partition} has offset {record.offset} after {following - 1}")
            following = record.offset + 1
            if record.offset >= recovered:
                continue  # appended after the restart
            value, batch = expected.get(record.offset, (None, None))
            if record.marker is not None:
                if batch is not None:
                    self.report("foreign-record", f"{partition} has a marker at {record.offset}, {value!r} was sent")
            elif batch is None or record.value != value:
                self.report("foreign-record", f"{partition} has {record.value!r} at {record.offset}, sent {value!r}")
            elif batch.sent_at >= self.point:
                self.report("record-from-future", f"{partition} at {record.offset}")
        if following != end and partition[0] not in self.compacted:
            self.report("gap", f"{partition} ends at {end}, its records at {following}")
        if self.mode.keeps_records:
            acked = [one.until for one in self.ledger.of_partition(partition) if one.acked_at < self.point]
            acked += [until for shown, until, at in self.ledger.seen if shown == partition and at < self.point]
            wanted = max(acked, default=0)
            if min(end, recovered) < wanted:
                self.report("record-lost", f"{partition} ends at {recovered}, acknowledged up to {wanted}")

    # ---- transactions

    def _check_visible(self, *, final: bool) -> None:
        """What read_committed consumers are given. final: all transactions have ended."""
        visible: dict[SentTransaction, set[tuple[Partition, int]]] = {}
        for partition in self.served:
            expected = expected_values(self.ledger.of_partition(partition))
            recovered = self.broker.recovered.get(partition, 0)
            _, _, records = self.session.read(partition, committed=True)
            for record in records:
                _, batch = expected.get(record.offset, (None, None))
                if record.marker is not None or batch is None or record.offset >= recovered:
                    continue
                transaction = batch.transaction
                if transaction is None:
                    continue
                if not transaction.may_be_visible(self.point):
                    self.report("aborted-visible", f"{partition} at {record.offset} of {_named(transaction)}")
                visible.setdefault(transaction, set()).add((partition, record.offset))
        if not final or not self.mode.keeps_state:
            return
        for transaction in self.ledger.transactions:
            wanted = {
                (batch.partition, batch.base_offset + index)
                for batch in transaction.batches
                for index in range(len(batch.values))
                if batch.base_offset >= 0 and batch.partition in self.served
                and batch.base_offset >= self.session.list_offset(batch.partition, EARLIEST)
            }  # fmt: skip
            if any(topic in self.compacted for (topic, _), _ in wanted):
                continue
            shown = visible.get(transaction, set())
            if transaction.must_be_visible(self.point) and shown != wanted:
                kind = "half-visible" if shown else "commit-lost"
                self.report(kind, f"{_named(transaction)}: {len(shown)} of {len(wanted)} records are visible")
            elif transaction.may_be_visible(self.point) and shown and shown != wanted:
                self.report("half-visible", f"{_named(transaction)}: {len(shown)} of {len(wanted)} records are visible")

    def _end_transactions(self) -> None:
        """End what is open: by its timeout, or by the next producers with the same transactional ids."""
        ids = sorted({one.transactional_id for one in self.ledger.transactions})
        if ids and self.rng.random() < 0.5:
            for transactional_id in ids:
                self.session.transactional_producer(transactional_id, self.rng.choice((1, 2)))
        else:
            for _ in range(3):
                self.broker.tick(TIMEOUT_MS + 1000)
                self.settle()

    def _check_lso(self) -> None:
        async def stuck(server: Server) -> list[str]:
            found = []
            for topic, partition in server.broker.logs.partitions():
                log = server.broker.logs.get(topic, partition)
                if log is not None and log.last_stable_offset != log.high_watermark:
                    found.append(f"{log.name}: LSO {log.last_stable_offset}, high watermark {log.high_watermark}")
            return found

        found: list[str] = []
        for _ in range(FLUSH_ROUNDS):
            self.broker.tick(TICK_MS)
            found = self.broker.run(stuck)
            if not found:
                return
            time.sleep(0.005)
        for text in found:
            self.report("lso-stuck", text)

    def _continue_producers(self) -> None:
        """Transactional and idempotent producers of the workload go on; producer ids are new ones."""
        given = {number for number, at in self.ledger.producer_ids if at < self.point}
        transactional = {one.transactional_id for one in self.ledger.transactions}
        known = {producer_id for producer_id, _ in self.ledger.producer_ids}
        fresh = self.session.producer()
        if fresh.id in given:
            self.report("producer-id-again", f"{fresh.id} was given to another producer before")
        if not self.served:
            return
        for transactional_id in sorted(transactional):
            try:
                producer = self.session.transactional_producer(transactional_id, self.rng.choice((1, 2)))
                sent = [producer.produce(partition, [b"after"]) for partition in self.served]
                producer.end(commit=True)
            except Refused as error:
                self.report("producer-stuck", f"{transactional_id}: {error}")
                continue
            self.settle()
            for batch in sent:
                _, end, records = self._committed_after(batch.partition, batch.base_offset)
                if not any(record.offset == batch.base_offset for record in records):
                    self.report("commit-hidden", f"{batch.partition} at {batch.base_offset}, LSO {end}")
        idempotent = {
            (one.producer_id, one.producer_epoch) for one in self.ledger.batches
            if one.transaction is None and one.producer_id in known
        }  # fmt: skip
        for producer_id, epoch in sorted(idempotent):
            self._continue_idempotent(producer_id, epoch)

    def _committed_after(self, partition: Partition, offset: int) -> tuple[int, int, list[FetchedRecord]]:
        end = self.session.list_offset(partition, LATEST, committed=True)
        records = self.session.fetch(partition, offset, committed=True)["parsed"] if end > offset else []
        return offset, end, records

    def _continue_idempotent(self, producer_id: int, epoch: int) -> None:
        """The last batch that is in the log is recognised when it is sent again, and the next sequence is accepted."""
        for partition in self.served:
            if partition[0] in self.compacted:
                continue
            start = self.session.list_offset(partition, EARLIEST)
            recovered = self.broker.recovered.get(partition, 0)
            kept = [
                one for one in self.ledger.of_partition(partition)
                if (one.producer_id, one.producer_epoch) == (producer_id, epoch) and start <= one.base_offset
                and one.until <= recovered
            ]  # fmt: skip
            if not kept:
                continue
            last = kept[-1]
            producer = IdempotentProducer(self.session, producer_id, epoch)
            producer.next[partition] = last.sequence
            try:
                again = producer.produce(partition, last.values, keys=last.keys)
                if again.base_offset != last.base_offset:
                    self.report(
                        "duplicate", f"{partition}: the batch at {last.base_offset} again at {again.base_offset}"
                    )
                producer.produce(partition, [b"next"], keys=None if last.keys is None else [b"next"])
            except Refused as error:
                self.report("producer-stuck", f"{partition}, producer {producer_id}: {error}")

    def _produce_everywhere(self) -> None:
        for partition in self.served:
            try:
                self.session.produce(partition, [b"last"], keys=[b"last"])
            except Refused as error:
                self.report("produce-refused", f"{partition}: {error}")

    # ---- files

    def _check_files(self) -> None:
        log_dirs = in_directory(self.run.properties, self.directory)["log.dirs"].split(",")
        for finding in check_log_dirs(log_dirs, decode_records=True).findings.kept:
            if finding.is_error:
                self.report("check-error", str(finding).replace(str(self.directory), ""))


def _named(transaction: SentTransaction) -> str:
    how = {None: "open", True: "committed", False: "aborted"}[transaction.commits]
    return f"a transaction of {transaction.transactional_id!r} ({how} at {transaction.ended_at})"


def _text(key: Hashable) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def state_tree(run: Run, point: int, kind: StateKind, seed: int) -> Tree:
    """Return the state that these four name."""
    choice = choose(run.trace.events, point, kind, random.Random(seed))
    return build_tree(run.trace, point, choice)


def check_state(run: Run, point: int, kind: StateKind, seed: int) -> list[Anomaly]:
    """Build a state, check it, and return what is wrong."""
    with quiet(), scratch_directory() as directory:
        write_tree(state_tree(run, point, kind, seed), directory)
        known = WORKLOADS.get(run.workload)
        checker = StateCheck if known is None or known.checker is None else known.checker
        check = checker(run, point, directory, random.Random(seed))
        check.check()
    return check.anomalies
