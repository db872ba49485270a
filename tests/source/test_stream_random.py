"""Whatever happens to query and logs in whatever order, every record is read exactly once; and what a stream reads in
pieces is what a batch reads at once.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.log.helpers.rows import plain_rows
from tests.source.helpers.driver import read
from tests.source.helpers.made_logs import append, delete_first_segment, segment_offsets
from tests.source.helpers.stream_driver import Checkpoint, Crash, Query

STEPS = ("planning", "reading", "commit")
ORDER = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]


class Copy:
    """What a sink that remembers the number of each batch holds: a batch that runs again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}

    def take(self, query: Query) -> bool:
        """One trigger; whether a batch ran."""
        number = query.checkpoint.committed
        batch = query.batch()
        if batch is not None:
            self.batches[number] = batch["value"].to_pylist()
        return batch is not None


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_random_failures_read_every_record_once(tmp_path: Path, seed: int) -> None:
    """Appends, rolls, new partitions and topics, retention behind the reader, a query that is killed and restarted."""
    chance = random.Random(seed)
    limits: dict[str, Any] = chance.choice(
        [{}, {"maxOffsetsPerTrigger": 7}, {"maxBytesPerTrigger": 300}, {"maxOffsetsPerTrigger": 9, "minPartitions": 4}]
    )
    options = {"subscribePattern": "^t", "startingOffsets": "earliest", **limits}
    sent = 0

    def send() -> None:
        nonlocal sent
        values = [b"%d" % n for n in range(sent, sent + chance.randint(1, 12))]
        topic, partition = chance.choice(("t", "t", "topic2")), chance.randrange(3)
        append(tmp_path, topic, partition, values, batch=chance.randint(1, 5), roll_first=chance.random() < 0.3)
        sent += len(values)

    send()
    copy, checkpoint = Copy(), Checkpoint()
    query = Query(tmp_path, checkpoint=checkpoint, **options)
    for _ in range(60):
        action = chance.random()
        if action < 0.45:
            send()
        elif action < 0.6:
            delete_what_was_read(tmp_path, checkpoint, chance)
        else:
            if action > 0.85:
                query.crash_before = chance.choice(STEPS)
            try:
                copy.take(query)
            except Crash:
                query = Query(tmp_path, checkpoint=checkpoint, **options)
    query = Query(tmp_path, checkpoint=checkpoint, trigger_kind="availableNow", **options)
    while copy.take(query):
        pass
    found = sorted(int(value) for batch in copy.batches.values() for value in batch)
    assert found == list(range(sent))


def delete_what_was_read(log_dir: Path, checkpoint: Checkpoint, chance: random.Random) -> None:
    """Retention of a segment that lies before the last batch that is done."""
    if checkpoint.committed == 0:
        return
    done = json.loads(checkpoint.offsets[checkpoint.committed - 1])
    topic = chance.choice(sorted(done))
    partition, offset = chance.choice(sorted(done[topic].items()))
    segments = segment_offsets(log_dir, topic, int(partition))
    if len(segments) > 1 and segments[1] <= offset:
        delete_first_segment(log_dir, topic, int(partition))


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("limits", [{"maxOffsetsPerTrigger": 4_000}, {"maxBytesPerTrigger": "300k"}, {}])
def test_stream_equals_a_batch_read(golden: Path, level: str, limits: dict[str, Any]) -> None:
    options: dict[str, Any] = {"includeHeaders": True, "isolationLevel": level}
    query = Query(golden, startingOffsets="earliest", trigger_kind="availableNow", **options, **limits)
    tables = []
    while (batch := query.batch()) is not None:
        tables.append(batch)
    assert not limits or len(tables) > 2
    streamed = pa.concat_tables(tables).sort_by(ORDER)
    expected = read(golden, **options).sort_by(ORDER)
    assert plain_rows(streamed.to_batches()) == plain_rows(expected.to_batches())


def test_stream_over_a_crashed_brokers_directory_reads_every_record(golden_crashed: Path) -> None:
    query = Query(golden_crashed, startingOffsets="earliest", trigger_kind="availableNow", maxOffsetsPerTrigger=3_000)
    count = 0
    while (batch := query.batch()) is not None:
        count += batch.num_rows
    assert count == read(golden_crashed).num_rows > 0
