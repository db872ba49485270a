"""The Spark sink: commits into a fresh directory, and into one that a broker used before and left in any way.

The sink runs in this process, without Spark: what a task does (TaskWriter), and what the driver does (Committer).
"""

from __future__ import annotations

import copy
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafkalog_broker.server import Server
from kafkalog_spark.errors import CorruptLog, KafkalogError
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.sink.committers import local_committer
from kafkalog_spark.sink.job_opening import open_job
from kafkalog_spark.sink.jobs import files_of_jobs
from kafkalog_spark.sink.local_directory import LocalDirectory
from kafkalog_spark.sink.local_staged_jobs import LocalStagedJobs
from kafkalog_spark.sink.task_manifest import TaskAttempt
from kafkalog_spark.sink.task_writer import TaskWriter
from tests.crash_states.ledger import Partition, SentBatch
from tests.crash_states.state_check import StateCheck
from tests.crash_states.world import World, workload
from tests.sink.helpers.written_logs import NOW, options

BROKERS_TOPIC, SINKS_TOPIC = "orders", "made"
PARTITIONS = 2
QUERY = "query"

Values = dict[Partition, list[bytes]]


@dataclass
class SentJob:
    """A write of the sink. batch: number of the micro-batch, None of a batch write. values: by partition."""

    values: Values
    tasks: int
    batch: int | None
    sent_at: int
    acked_at: int
    batches: list[SentBatch] = field(default_factory=list)


class CrashedJobs(LocalStagedJobs):
    """Jobs after a crash of the machine: all drivers have ended."""

    def dead_jobs(self) -> list[str]:
        return list(files_of_jobs(self.directory.names_in_root()))


def write_job(log_dir: Path, values: Values, tasks: int, batch: int | None, jobs: type[LocalStagedJobs]) -> bool:
    """Write as the driver and `tasks` tasks do; False if the micro-batch was in the log already."""
    directory = LocalDirectory(log_dir)
    committer = local_committer(directory, wait_s=5)
    committer = replace(committer, target=replace(committer.target, jobs=jobs(directory)))
    job = open_job(committer.target, None if batch is None else QUERY)
    given = options(log_dir, numPartitions=PARTITIONS, segment_bytes=900, batch_size=250)
    manifests = []
    for task, rows in enumerate(_divided(values, tasks)):
        attempt = TaskAttempt(job, task, NOW, None if batch is None else QUERY)
        writer = TaskWriter(committer.target, given, ("value",), attempt, lambda: NOW)
        manifests.append(writer.run(rows))
    if batch is None:
        return committer.commit(job, manifests, given.segment_bytes)
    return committer.commit(job, manifests, given.segment_bytes, QUERY, batch)


def _divided(values: Values, tasks: int) -> Iterator[list[pa.RecordBatch]]:
    """Rows of each task, so that the tasks one after the other have the values of each partition in their order."""
    for task in range(tasks):
        batches = []
        for (topic, partition), all_values in values.items():
            count = -(-len(all_values) // tasks)
            own = all_values[task * count : (task + 1) * count]
            if own:
                columns = {
                    "value": pa.array(own, pa.binary()),
                    "topic": pa.array([topic] * len(own), pa.string()),
                    "partition": pa.array([partition] * len(own), pa.int32()),
                }
                batches.append(pa.record_batch(columns))
        if batches:
            yield batches


def kill(world: World) -> None:
    """End the broker as kill -9 does: nothing is flushed, and there is no marker of a clean shutdown."""

    async def without_shutdown(server: Server) -> None:
        def abandon() -> None:
            server.broker.logs.cleaner.stop()
            for log in server.broker.logs.logs():
                log.discard()
            server.broker.logs.dirs.close()

        server.broker.logs.shutdown = abandon  # type: ignore[method-assign]

    world.broker.run(without_shutdown)
    world.stop()


def commit(world: World, rng: random.Random, batch: int | None, topics: Sequence[str]) -> None:
    """Write some rows with the sink and note where they are."""
    wanted = [(topic, partition) for topic in topics for partition in range(PARTITIONS) if rng.random() < 0.7]
    values = {key: world.values(rng.choice((1, 3, 30)), 60) for key in wanted or [(topics[0], 0)]}
    tasks, sent_at = rng.choice((1, 2, 3)), world.point()
    before = _ends(world.log_dir, values)
    assert write_job(world.log_dir, values, tasks, batch, LocalStagedJobs)
    job = SentJob(values, tasks, batch, sent_at, world.point() - 1)
    world.facts.setdefault("jobs", []).append(job)
    for key, own in values.items():
        job.batches.append(SentBatch(key, list(own), sent_at, job.acked_at, before.get(key, 0)))
    world.ledger.batches += job.batches


def _ends(log_dir: Path, keys: Values) -> dict[Partition, int]:
    if not any(log_dir.glob("*-*/*.log")):
        return {}
    places = LogDirs.open(log_dir).locations
    return {key: places[key].open().log_end_offset for key in keys if key in places}


def broker_phase(world: World, rng: random.Random, how: str) -> None:
    """Let a broker serve the directory, and leave it stopped, idle and killed, or killed while it is written to."""
    world.start()
    session = world.session()
    if not world.facts.get("has_topic"):
        # A roll flushes the log: without one an idle log is in the page cache only.
        size = rng.choice((1500, 1 << 20))
        configs = {**world.topic_configs, "internal_segment_bytes": size, "index_interval_bytes": 300}
        session.create_topic(BROKERS_TOPIC, PARTITIONS, **configs)
        world.facts["has_topic"] = True
    producer = session.producer()
    for _ in range(rng.randint(4, 10)):
        writer: Any = producer if rng.random() < 0.5 else session
        key = (BROKERS_TOPIC, rng.randrange(PARTITIONS))
        writer.produce(key, world.values(rng.randint(1, 4), 60), timestamp=world.clock.now_ms())
        if rng.random() < 0.1:
            world.broker.tick(61_000)
    if how == "stopped":
        world.stop()
        return
    if how == "idle":
        for _ in range(3):
            world.broker.tick(61_000)
    kill(world)


class SinkCheck(StateCheck):
    """After the crash either the broker starts first, or the sink completes and continues what it had begun."""

    def check(self) -> None:
        self.ledger = copy.copy(self.ledger)
        self.ledger.batches = list(self.ledger.batches)
        self.jobs: list[SentJob] = [job for job in self.run.facts.get("jobs", ()) if job.sent_at < self.point]
        self.count = 0
        if self.rng.random() < 0.6:
            self._continue_sink(may_refuse=True)
        super().check()
        if not any(anomaly.kind == "start-fails" for anomaly in self.anomalies):
            self._continue_sink(may_refuse=False)
            self._check_log_dir()

    def _continue_sink(self, *, may_refuse: bool) -> None:
        """Replay the last micro-batch, write another batch, and compare with what was written.

        may_refuse: only a broker repairs what is no torn tail, such as lost writes between others.
        """
        if (done := self.log_dir / "kafkalog.commits-done").exists():
            os.utime(done, (0, 0))  # the files of a state have no times of their own: all count as changed since
        replayed = next((job for job in reversed(self.jobs) if job.batch is not None), None)
        last = replayed is not None and replayed is self.jobs[-1]
        try:
            if replayed is not None and last:
                was_new = write_job(self.log_dir, replayed.values, replayed.tasks, replayed.batch, CrashedJobs)
                if was_new and replayed.acked_at < self.point:
                    self.report("commit-forgotten", f"micro-batch {replayed.batch} was committed, and written again")
            # A crash while the broker made the topic may leave one partition, to which the sink alone adds no other.
            is_whole = all((self.log_dir / f"{BROKERS_TOPIC}-{n}").exists() for n in range(PARTITIONS))
            topic = BROKERS_TOPIC if is_whole else SINKS_TOPIC
            values: Values = {(topic, n): [b"after %d %d %d" % (self.count, n, m) for m in range(3)]
                              for n in range(PARTITIONS)}  # fmt: skip
            self.count += 1
            write_job(self.log_dir, values, 1, None, CrashedJobs)
        except CorruptLog as error:
            if not may_refuse:
                self.report("sink-refuses", str(error))
            return
        except (KafkalogError, OSError) as error:
            self.report("sink-fails", f"{type(error).__name__}: {error}")
            return
        self._check_rows(values)

    def _check_rows(self, values: Values) -> None:
        """Committed rows are there once and in their order, others wholly or not at all, offsets have no gap."""
        found = self._read()
        places: defaultdict[bytes, list[tuple[Partition, int]]] = defaultdict(list)
        for key, records in found.items():
            following = records[0][0] if records else 0
            for offset, value in records:
                if offset != following and not self._has_marker_before(key):
                    self.report("gap", f"{key} has offset {offset} after {following - 1}")
                following = offset + 1
                places[value].append((key, offset))
        for job in [*self.jobs, SentJob(values, 1, None, -1, -1)]:
            all_values = [(key, value) for key, own in job.values.items() for value in own]
            counts = Counter(len(places.get(value, ())) for _, value in all_values)
            if set(counts) - {0, 1}:
                self.report("row-twice", f"micro-batch {job.batch}: {counts}")
            elif len(counts) > 1:
                self.report("half-commit", f"micro-batch {job.batch}, acknowledged at {job.acked_at}: {counts}")
            elif counts[0] and job.acked_at < self.point:
                self.report("row-lost", f"micro-batch {job.batch}, acknowledged at {job.acked_at}: {counts}")
            for key, own in job.values.items():
                offsets = [offset for value in own for place, offset in places.get(value, ()) if place == key]
                if offsets != sorted(offsets):
                    self.report("row-order", f"{key}: {offsets}")
        self._note(found)

    def _has_marker_before(self, key: Partition) -> bool:
        return bool(self.ledger.transactions) and key[0] == BROKERS_TOPIC

    def _read(self) -> dict[Partition, list[tuple[int, bytes]]]:
        rows: dict[Partition, list[tuple[int, bytes]]] = {}
        try:
            dirs = LogDirs.open(self.log_dir)
            for topic in (BROKERS_TOPIC, SINKS_TOPIC):
                if topic not in dirs.topics:
                    continue
                for batch in dirs.scan(topic, columns=("partition", "offset", "value")):
                    for row in batch.to_pylist():
                        rows.setdefault((topic, row["partition"]), []).append((row["offset"], row["value"]))
        except KafkalogError as error:
            self.report("unreadable", str(error))
        return {key: sorted(records) for key, records in rows.items()}

    def _note(self, found: dict[Partition, list[tuple[int, bytes]]]) -> None:
        """What is in the log now is what a broker must find, too: the sink's commit has returned."""
        ours = {value for job in self.jobs for own in job.values.values() for value in own}
        there = {(key, offset, value) for key, records in found.items() for offset, value in records}
        brokers = [batch for batch in self.run.ledger.batches if ours.isdisjoint(batch.values)]
        kept = [batch for batch in brokers if (batch.partition, batch.base_offset, batch.values[0]) in there]
        if self.mode.keeps_records:
            for batch in brokers:
                if batch.acked_at < self.point and batch not in kept:
                    self.report("record-lost", f"{batch.partition} at {batch.base_offset}")
        values = {value for batch in kept for value in batch.values}
        self.ledger.batches = kept + [
            SentBatch(key, [value], -1, -1, offset) for key, offset, value in sorted(there) if value not in values
        ]

    def _check_log_dir(self) -> None:
        found = check_log_dirs([self.log_dir], decode_records=True).findings.kept
        for one in found:
            if one.is_error:
                self.report("check-error", str(one).replace(str(self.directory), ""))


@workload("sink", checker=SinkCheck)
def sink(world: World) -> None:
    """Commits of batch and streaming jobs, between them a broker that was stopped, idle and killed, or killed."""
    rng = random.Random(world.seed)
    batch = 0
    if rng.random() < 0.4:
        commit(world, rng, None, [SINKS_TOPIC])
        commit(world, rng, (batch := batch + 1), [SINKS_TOPIC])
    for _ in range(rng.randint(1, 2)):
        broker_phase(world, rng, rng.choice(("stopped", "idle", "idle", "killed")))
        for _ in range(rng.randint(1, 3)):
            if rng.random() < 0.5:
                commit(world, rng, (batch := batch + 1), [BROKERS_TOPIC, SINKS_TOPIC])
            else:
                commit(world, rng, None, [BROKERS_TOPIC, SINKS_TOPIC])
