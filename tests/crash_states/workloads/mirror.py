"""kafkalog-mirror: it follows a source, is stopped or killed and started again; then a broker takes its directory over.

The source is a broker of its own below the same directory, which is not recorded: the power cut is the mirror's.
"""

from __future__ import annotations

import asyncio
import copy
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from kafkalog_broker.mirror.command import run_mirror
from kafkalog_broker.mirror.mirror_file import is_mirror
from kafkalog_broker.mirror.mirror_options import MirrorOptions
from kafkalog_broker.mirror.source_address import parse_bootstrap
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_spark.errors import KafkalogError
from tests.broker.manual_clock import ManualClock
from tests.crash_states.broker_thread import BrokerThread, Client
from tests.crash_states.disk import Tree, read_tree, write_tree
from tests.crash_states.ledger import NEVER, Ledger, SentBatch
from tests.crash_states.session import LATEST, Session
from tests.crash_states.state_check import StateCheck
from tests.crash_states.world import World, workload

TOPIC, PARTITIONS = "orders", 2
SOURCE = "source"


@contextmanager
def source_broker(directory: Path, clock: ManualClock) -> Iterator[tuple[str, Session]]:
    """The source, by its address, and a client of it."""
    broker = BrokerThread({"log.dirs": directory}, clock)
    broker.start()
    client = Client(broker.port)
    try:
        yield f"127.0.0.1:{broker.port}", Session(client, Ledger(), broker)
    finally:
        client.close()
        broker.stop()


def mirror_once(bootstrap: str, directory: Path, *, is_killed: bool = False) -> int:
    """Copy all that the source has now; its exit code. is_killed: end as kill -9 does, without a clean shutdown."""

    def abandon(logs: LogManager) -> None:
        logs.cleaner.stop()
        for log in logs.logs():
            log.discard()
        logs.dirs.close()

    options = MirrorOptions(
        bootstrap=parse_bootstrap(bootstrap), directory=directory, topics=re.compile(TOPIC), once=True
    )
    if not is_killed:
        return asyncio.run(run_mirror(options))
    with mock.patch.object(LogManager, "shutdown", abandon):
        return asyncio.run(run_mirror(options))


def _records(session: Session) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of the records of the source that read_committed consumers are given, or aborted ones
    below the last stable offset."""
    found = []
    for partition in range(PARTITIONS):
        stable = session.list_offset((TOPIC, partition), LATEST, committed=True)
        _, _, records = session.read((TOPIC, partition))
        found += [
            (partition, one.offset, one.value) for one in records
            if one.marker is None and one.offset < stable and one.value is not None
        ]  # fmt: skip
    return found


def _end_offsets(records: list[tuple[int, int, bytes]]) -> dict[int, int]:
    """Offset after the last record of each partition."""
    ends: dict[int, int] = {}
    for partition, offset, _ in records:
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    return ends


class MirrorCheck(StateCheck):
    """After the crash the mirror continues from the same source, or a broker takes the directory over at once."""

    def check(self) -> None:
        self.ledger = copy.copy(self.ledger)
        if (is_mirror(self.log_dir) or not any(self.log_dir.glob("*-*"))) and self.rng.random() < 0.5:
            self._continue_mirror()
        super().check()

    def _check_records(self) -> None:
        """What was on disk when a mirror had ended cleanly, or a broker had taken it over, is there."""
        super()._check_records()
        for ends in [ends for point, ends in self.run.facts["ends"] if point < self.point]:
            for partition, end in ends.items():
                key = (TOPIC, partition)
                if key not in self.served or self.session.list_offset(key, LATEST) < end:
                    self.report("record-lost", f"{key} ends before {end}")

    def _continue_mirror(self) -> None:
        tree: Tree = self.run.facts["source"]
        write_tree(tree, self.directory)
        with source_broker(self.directory / SOURCE, self.clock) as (bootstrap, session):
            try:
                code = mirror_once(bootstrap, self.log_dir)
            except (KafkalogError, OSError) as error:
                self.report("mirror-fails", f"{type(error).__name__}: {error}")
                return
            if code:
                self.report("mirror-fails", f"exit code {code}")
            for partition in range(PARTITIONS):
                self._compare(partition, session.list_offset((TOPIC, partition), LATEST))

    def _compare(self, partition: int, end: int) -> None:
        """The mirror has the source's log, byte for byte."""
        name = f"{TOPIC}-{partition}"
        theirs, ours = (
            b"".join(path.read_bytes() for path in sorted((root / name).glob("*.log")))
            for root in (self.directory / SOURCE, self.log_dir)
        )
        if ours != theirs:
            at = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), -1)
            self.report(
                "mirror-differs", f"{name}: {len(ours)} of {len(theirs)} bytes, first difference at {at}, {end}"
            )


@workload("mirror", checker=MirrorCheck)
def mirror(world: World) -> None:
    """Rounds of production and mirroring, each ended cleanly or killed; a takeover with an open transaction."""
    rng = random.Random(world.seed)
    source = world.directory / SOURCE
    source.mkdir()
    ends: list[tuple[int, dict[int, int]]] = []  # (point, end offsets): since then no crash may lose what is below
    with source_broker(source, world.clock) as (bootstrap, session):
        session.create_topic(TOPIC, PARTITIONS, internal_segment_bytes=700, index_interval_bytes=200)
        producer, transactional = session.producer(), session.transactional_producer("t")
        rounds = rng.randint(2, 3)
        for number in range(rounds):
            for _ in range(rng.randint(3, 8)):
                key = (TOPIC, rng.randrange(PARTITIONS))
                if rng.random() < 0.3:
                    transactional.produce(key, world.values(2, 50))
                    transactional.end(commit=rng.random() < 0.5)
                else:
                    producer.produce(key, world.values(rng.randint(1, 3), 50))
            if number == rounds - 1 and rng.random() < 0.7:  # nobody ends it before the takeover
                transactional.produce((TOPIC, 0), world.values(2, 50))
                producer.produce((TOPIC, 0), world.values(2, 50))
            is_killed = rng.random() < 0.5
            assert mirror_once(bootstrap, world.log_dir, is_killed=is_killed) == 0
            if not is_killed:
                ends.append((world.point() - 1, _end_offsets(_records(session))))
        records = _records(session)
    world.facts["source"] = read_tree({SOURCE: source})
    world.start()
    ends.append((world.point() - 1, _end_offsets(records)))
    world.facts["ends"] = ends
    world.ledger.batches += [
        SentBatch((TOPIC, partition), [value], -1, NEVER, offset) for partition, offset, value in records
    ]
    ours = world.session()
    for partition in range(PARTITIONS):
        ours.produce((TOPIC, partition), world.values(2, 50))
