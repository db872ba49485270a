"""The query is killed (-9) again and again under load: every acknowledged record is in the Parquet files once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafkalog_broker.testing import RunningBroker
from tests.source.helpers.live_load import PARTITIONS, TOPIC, Load
from tests.spark.helpers.streams import frame_of, start_query

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[2]
RATE = 1_000  # records a second
SEGMENT_BYTES = 20_000  # some 300 records
START_SECONDS = 300  # a JVM, a session, a first batch: 20 s, on a busy machine minutes


class Copying:
    """The query and what belongs to it: processes, checkpoint, output."""

    def __init__(self, directory: Path, log_dir: Path) -> None:
        self.out, self.checkpoint, self.log_dir = directory / "out", directory / "checkpoint", log_dir
        self.said = directory / "query.log"

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Killed with all its processes when the block ends, at whatever it is doing."""
        command = [sys.executable, "-m", "tests.spark.helpers.stream_to_parquet"]
        arguments = [str(self.log_dir), str(self.out), str(self.checkpoint), f"subscribe={TOPIC}"]
        with self.said.open("wb") as said:
            query = subprocess.Popen(
                [*command, *arguments, "startingOffsets=earliest"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                start_new_session=True,  # the JVM is in its process group
            )
            try:
                yield query
            finally:
                os.killpg(query.pid, signal.SIGKILL)
                query.wait()
                assert query.stdin is not None
                query.stdin.close()

    def committed(self) -> int:
        """How many batches are done."""
        commits = self.checkpoint / "commits"
        return len([name for name in os.listdir(commits) if name.isdigit()]) if commits.exists() else 0

    def wait_for(self, condition: Callable[[], bool], query: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + START_SECONDS
        while not condition():
            assert query.poll() is None, self.said.read_text()[-3000:]
            assert time.monotonic() < end, f"no batch in {START_SECONDS} s: {self.said.read_text()[-3000:]}"
            time.sleep(0.02)

    def done_offsets(self) -> dict[int, int]:
        """Offsets by partition at the end of the last batch that is done: what lies before is in the files."""
        last = max(int(name) for name in os.listdir(self.checkpoint / "commits") if name.isdigit())
        text = (self.checkpoint / "offsets" / str(last)).read_text().splitlines()[-1]
        return {int(partition): offset for partition, offset in json.loads(text)[TOPIC].items()}


def kill_rounds(spark: Any, directory: Path, *, rounds: int, seed: int, broker_too: bool) -> None:
    """`rounds` runs of the query, each killed at a random moment after its first batch; a last one to the end.

    broker_too: the broker is killed and recovers in each round, and records that have been read are deleted, so that
    retention takes their segments away behind the reader.
    """
    moments = random.Random(seed)
    # housekeeping often enough to meet the reader
    properties = {"log.retention.check.interval.ms": 500, "log.segment.delete.delay.ms": 500}
    broker = RunningBroker(directory / "data", properties)
    broker.start()
    broker.create_topic(TOPIC, PARTITIONS, {"internal.segment.bytes": SEGMENT_BYTES})
    load = Load(broker, RATE)
    load.start()
    copying = Copying(directory, broker.log_dir)
    try:
        for _ in range(rounds):
            before = copying.committed()
            with copying.running() as query:
                copying.wait_for(lambda before=before: copying.committed() > before, query)  # type: ignore[misc]
                if broker_too:
                    delete_behind(broker, copying)
                    time.sleep(moments.uniform(0, 0.5))
                    broker.kill()
                    broker.start()
                time.sleep(moments.uniform(0, 1.0))  # the moment that the kill has to meet may be any
    finally:
        load.stop.set()
        load.join(150)
    frame = frame_of(spark, broker.log_dir, subscribe=TOPIC, startingOffsets="earliest")
    last = start_query(
        frame.selectExpr("partition", "offset", "cast(value as string) as value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(copying.checkpoint))
        .trigger(availableNow=True),
        str(copying.out),
    )
    assert last.awaitTermination(600)
    deleted = {int(name.stem) for name in (broker.log_dir / f"{TOPIC}-0").glob("*.log")}
    broker.stop()
    assert load.failed == []
    rows = spark.read.parquet(str(copying.out)).toArrow()
    read = [int(value) for value in rows["value"].to_pylist()]
    places = set(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    assert len(load.acknowledged) > rounds * 500, "too little was sent: the test has shown nothing"
    assert len(set(read)) == len(read) == len(places), "a record is there twice"
    assert load.acknowledged <= set(read), f"lost: {sorted(load.acknowledged - set(read))[:20]}"
    if broker_too:
        assert 0 not in deleted, "no segment was deleted behind the reader"


def delete_behind(broker: RunningBroker, copying: Copying) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    behind = [TopicPartition(TOPIC, partition, offset) for partition, offset in copying.done_offsets().items()]
    for answer in admin.delete_records(behind).values():
        answer.result(120)


def test_query_killed_under_load_writes_every_record_once(spark: Any, tmp_path: Path) -> None:
    kill_rounds(spark, tmp_path, rounds=1, seed=1, broker_too=False)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_query_survives_twenty_kills_with_broker_crashes_and_retention(spark: Any, tmp_path: Path) -> None:
    kill_rounds(spark, tmp_path, rounds=20, seed=2, broker_too=True)
