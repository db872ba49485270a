"""read_committed streams stop at the LSO and go on when it moves; what nobody can read starts no batch."""

from __future__ import annotations

import random
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.last_stable_offset import StableOffsetWalk, last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.write.encoded_batch import control_batch
from tests.log.helpers.log_writer import LogWriter
from tests.source.helpers.made_logs import FIRST_TIMESTAMP, MadeBatch, append, numbers, write_batches
from tests.source.helpers.stream_driver import Query

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def send(log_dir: Path, producer: int, values: list[str], *, roll_first: bool = False) -> None:
    """A batch of that producer's transaction."""
    timestamps = [FIRST_TIMESTAMP] * len(values)
    write_batches(log_dir, "t", 0, [MadeBatch(values, timestamps, producer_id=producer, roll_first=roll_first)])


def end(log_dir: Path, producer: int, kind: ControlType) -> None:
    """The marker that ends it."""
    with LogWriter(log_dir / "t-0", index_interval_bytes=0) as writer:
        marker = control_batch(
            kind, writer.next_offset, FIRST_TIMESTAMP, producer_id=producer, producer_epoch=0, coordinator_epoch=0
        )
        writer.append(marker)


@pytest.fixture
def committed(tmp_path: Path) -> Query:
    append(tmp_path, "t", 0, numbers(0, 5))
    query = Query(tmp_path, startingOffsets="earliest", isolationLevel="read_committed")
    assert query.trigger() == [numbers(0, 5)]
    return query


def test_open_transaction_starts_no_batch_and_its_commit_does_at_once(committed: Query, tmp_path: Path) -> None:
    send(tmp_path, 1, numbers(5, 8))
    append(tmp_path, "t", 0, numbers(8, 10))  # behind the LSO
    for _ in range(3):
        assert committed.trigger() == []
    end(tmp_path, 1, COMMIT)
    assert committed.trigger() == [numbers(5, 10)]
    assert committed.end == {"t": {"0": 11}}


def test_aborted_transactions_and_markers_start_no_batch(committed: Query, tmp_path: Path) -> None:
    send(tmp_path, 1, numbers(5, 8))
    end(tmp_path, 1, ABORT)
    for _ in range(3):
        assert committed.trigger() == []
    append(tmp_path, "t", 0, numbers(8, 10))
    assert committed.trigger() == [numbers(8, 10)]
    assert committed.end == {"t": {"0": 11}}


def test_marker_after_the_last_record_starts_no_batch(committed: Query, tmp_path: Path) -> None:
    query = Query(tmp_path, startingOffsets="earliest")  # read_uncommitted sees the records before the marker
    send(tmp_path, 1, numbers(5, 8))
    query.trigger()
    end(tmp_path, 1, COMMIT)
    assert query.trigger() == []
    assert committed.trigger() == [numbers(5, 8)]
    assert committed.trigger() == []


def test_available_now_ends_before_a_transaction_without_a_marker(committed: Query, tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(5, 8))
    send(tmp_path, 1, numbers(8, 10))
    options: dict[str, Any] = {
        "isolationLevel": "read_committed",
        "maxOffsetsPerTrigger": 2,
        "trigger_kind": "availableNow",
    }
    again = Query(tmp_path, checkpoint=committed.checkpoint, **options)
    assert again.trigger() == [["5", "6"], ["7"]]
    end(tmp_path, 1, COMMIT)
    again = Query(tmp_path, checkpoint=committed.checkpoint, **options)
    assert list(chain.from_iterable(again.trigger())) == ["8", "9"]


# KafkaMicroBatchSourceSuite "read Kafka transactional messages": batches of three offsets, some of which nobody sees
def test_batches_of_only_invisible_offsets_are_empty(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 3))
    query = Query(tmp_path, startingOffsets="earliest", isolationLevel="read_committed", maxOffsetsPerTrigger=3)
    assert query.trigger() == [numbers(0, 3)]
    send(tmp_path, 1, numbers(3, 9))  # offsets 3 to 8
    end(tmp_path, 1, ABORT)
    send(tmp_path, 2, numbers(10, 15))  # 10 to 14
    end(tmp_path, 2, COMMIT)
    batches = []
    while ran := query.trigger():
        batches += ran
    assert batches == [[], [], ["10", "11"], ["12", "13", "14"]]
    assert query.end == {"t": {"0": 15}}, "behind it is a marker"


def test_incremental_last_stable_offset_equals_the_one_found_from_the_start(tmp_path: Path) -> None:
    chance = random.Random(7)
    walk, log = StableOffsetWalk(), None
    in_progress: set[int] = set()
    append(tmp_path, "t", 0, ["x"])
    for step in range(120):
        producer = chance.randrange(4)
        if producer == 0:
            append(tmp_path, "t", 0, ["x"] * chance.randint(1, 3), roll_first=chance.random() < 0.2)
        elif producer in in_progress and chance.random() < 0.6:
            end(tmp_path, producer, chance.choice([COMMIT, ABORT]))
            in_progress.discard(producer)
        else:
            send(tmp_path, producer, ["x"] * chance.randint(1, 3), roll_first=chance.random() < 0.1)
            in_progress.add(producer)
        if chance.random() < 0.5:
            log = log or LogDirs.open(tmp_path).partition("t", 0)
            log.update_checkpoints(recovery_point=None, log_start=None)
            log.refresh()
            fresh = LogDirs.open(tmp_path).partition("t", 0)
            assert walk.last_stable_offset(log) == last_stable_offset(fresh), step
            assert log.log_end == fresh.log_end


def test_truncated_and_rewritten_log_is_scanned_again(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 5))
    path = tmp_path / "t-0" / f"{0:020d}.log"
    copy = tmp_path / "copy"
    shutil.copytree(path.parent, copy)
    send(tmp_path, 1, numbers(5, 8))
    log = PartitionLog(PartitionLocation("t", 0, str(tmp_path / "t-0")))
    walk = StableOffsetWalk()
    assert walk.last_stable_offset(log) == 5
    shutil.rmtree(path.parent)
    copy.rename(path.parent)
    append(tmp_path, "t", 0, numbers(20, 30))
    log.update_checkpoints(recovery_point=None, log_start=None)
    log.refresh()
    assert walk.last_stable_offset(log) == 15
