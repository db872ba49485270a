"""A commit survives a crash of the machine, whoever wrote the log before it and in which state it was left."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import CorruptLog
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    EpochEntry,
    read_leader_epochs,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from kafkalog_spark.format.layout import ATTRIBUTE_TRANSACTIONAL, ControlType
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE, new_uuid, write_partition_metadata
from kafkalog_spark.format.producer_snapshot import write_producer_snapshot
from kafkalog_spark.format.transaction_index import AbortedTransaction, load_transaction_index
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, build_batch, control_batch
from kafkalog_spark.sink.job_opening import open_job
from tests.log.helpers.log_writer import LogWriter
from tests.log.helpers.sync_watch import SyncWatch
from tests.sink.helpers.crashing_steps import CountingSteps
from tests.sink.helpers.written_logs import NOW, check_log, committer, read, texts, values, write
from tests.sink.test_commit import appended

PRODUCER = 7


def plain(offset: int) -> EncodedBatch:
    return build_batch([(None, b"broker %d" % offset)], NOW, base_offset=offset)


def of_transaction(offset: int) -> EncodedBatch:
    return build_batch(
        [(None, b"aborted %d" % offset)], NOW, base_offset=offset, attributes=ATTRIBUTE_TRANSACTIONAL,
        producer_id=PRODUCER, producer_epoch=0, base_sequence=offset,
    )  # fmt: skip


def marker(offset: int, kind: ControlType = ControlType.ABORT) -> EncodedBatch:
    return control_batch(kind, offset, NOW, producer_id=PRODUCER, producer_epoch=0, coordinator_epoch=0)


def written(log_dir: Path, *segments: list[EncodedBatch], close: bool, recovery_point: int, clean: bool) -> None:
    """Partition t-0 as a broker leaves it; nothing is synced."""
    directory = log_dir / "t-0"
    log = LogWriter(directory)
    for number, batches in enumerate(segments):
        if number:
            log.roll()
        log.append_all(batches)
    if close:
        log.close()
    else:
        log.abandon()
    write_partition_metadata(directory / PARTITION_METADATA_FILE, new_uuid())
    write_offset_checkpoint(log_dir / RECOVERY_POINT_CHECKPOINT, {("t", 0): recovery_point})
    if clean:
        (log_dir / names.CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":-1}')


def unsynced_at_recovery_point(log_dir: Path, monkeypatch: pytest.MonkeyPatch, **given: Any) -> list[str]:
    """Write to topic t; names of what is not on disk when the commit writes the recovery points."""
    watch, found = SyncWatch(monkeypatch), []

    def at_rename(path: Path) -> None:
        if path.name == RECOVERY_POINT_CHECKPOINT:
            found.append(watch.unsynced(log_dir / "t-0"))

    watch.at_rename = at_rename
    write(log_dir, values("ours", topic="t"), **given)
    [unsynced] = found
    return unsynced


@pytest.mark.parametrize(
    ("close", "recovery_point", "clean"),
    [
        pytest.param(True, 6, True, id="stopped-cleanly"),
        pytest.param(True, 6, False, id="idle-and-killed"),
        pytest.param(False, 6, False, id="killed-after-a-flush"),
        pytest.param(False, 0, False, id="killed-before-a-flush"),
        pytest.param(True, 3, False, id="killed-after-a-roll"),
    ],
)
def test_commit_after_a_broker_syncs_its_whole_log_before_the_recovery_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, close: bool, recovery_point: int, clean: bool
) -> None:
    segments = [list(map(plain, range(3))), list(map(plain, range(3, 6)))]
    written(tmp_path, *segments, close=close, recovery_point=recovery_point, clean=clean)
    may_be_flushed = {
        path.name for path in (tmp_path / "t-0").glob("*0.*") if recovery_point == 6 or int(path.stem) < recovery_point
    }
    snapshots = {name for name in may_be_flushed if name.endswith(names.PRODUCER_SNAPSHOT_SUFFIX)}
    unsynced = unsynced_at_recovery_point(tmp_path, monkeypatch)
    # A lost producer snapshot is taken again from the log; segments below the recovery point are on disk.
    assert {
        name for name in unsynced if not name.endswith(names.PRODUCER_SNAPSHOT_SUFFIX)
    } <= may_be_flushed - snapshots
    assert texts(tmp_path) == [f"broker {n}" for n in range(6)] + ["ours"]
    assert read_offset_checkpoint(tmp_path / RECOVERY_POINT_CHECKPOINT) == {("t", 0): 7}
    check_log(tmp_path)


def test_commit_after_a_segment_of_the_newest_commit_does_not_recover_it(tmp_path: Path) -> None:
    write(tmp_path, values("a", topic="t"))
    before = (tmp_path / "t-0/00000000000000000000.timeindex").stat()
    # As if the commit had ended a second later: a file that changed in the same tick counts as changed since.
    os.utime(tmp_path / "kafkalog.commits-done", ns=(before.st_ctime_ns + 10**9,) * 2)
    write(tmp_path, values("b", topic="t"))
    after = (tmp_path / "t-0/00000000000000000000.timeindex").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_commit_after_a_broker_without_appends_syncs_its_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that recovers the log writes the snapshot at its end again, without an fsync."""
    write(tmp_path, values("a", topic="t"))
    write_producer_snapshot(tmp_path / "t-0/00000000000000000001.snapshot", [])
    os.utime(tmp_path / "kafkalog.commits-done", (0, 0))  # the commit was long ago
    assert unsynced_at_recovery_point(tmp_path, monkeypatch) == []


def test_recovery_of_a_killed_brokers_log_rebuilds_its_transaction_indexes(tmp_path: Path) -> None:
    """The recovery point rises above the aborted transactions, so no broker reads these segments again."""
    written(
        tmp_path, [plain(0), of_transaction(1)], [of_transaction(2), marker(3), plain(4)], [plain(5)],
        close=False, recovery_point=2, clean=False,
    )  # fmt: skip
    stale = tmp_path / "t-0/00000000000000000005.txnindex"
    stale.write_bytes(b"torn")
    write(tmp_path, values("ours", topic="t"))
    index = load_transaction_index(tmp_path / "t-0/00000000000000000002.txnindex", 2)
    assert index == [AbortedTransaction(PRODUCER, 1, 3, 4)]
    assert not stale.exists()


def test_recovery_refuses_a_gap_that_a_power_cut_left_above_the_recovery_point(tmp_path: Path) -> None:
    """The names of later segments may be on disk without an earlier one; a broker cuts the log at the gap."""
    written(tmp_path, [plain(0)], [plain(1)], [plain(2)], close=False, recovery_point=1, clean=False)
    for path in (tmp_path / "t-0").glob("00000000000000000001.*"):
        path.unlink()
    with pytest.raises(CorruptLog, match=r"t-0.*offsets 1 to 1 are missing.*let a broker recover"):
        write(tmp_path, values("ours", topic="t"))
    write_offset_checkpoint(tmp_path / CLEANER_OFFSET_CHECKPOINT, {("t", 0): 2})
    write(tmp_path, values("ours", topic="t"))
    assert [row["offset"] for row in read(tmp_path)] == [0, 2, 3]


def test_recovery_refuses_a_marker_that_cannot_be_read(tmp_path: Path) -> None:
    """A broker cuts the log there, and everything after it."""
    broken = build_batch(
        [(b"\0", b"")], NOW, base_offset=1, attributes=ATTRIBUTE_TRANSACTIONAL | 0x20, producer_id=PRODUCER,
        producer_epoch=0,
    )  # fmt: skip
    written(tmp_path, [of_transaction(0), broken], [plain(2)], close=False, recovery_point=0, clean=False)
    size = (tmp_path / "t-0/00000000000000000000.log").stat().st_size
    with pytest.raises(CorruptLog, match=r"t-0.*control record"):
        write(tmp_path, values("ours", topic="t"))
    assert (tmp_path / "t-0/00000000000000000000.log").stat().st_size == size


def test_commit_without_a_leader_epoch_checkpoint_continues_with_the_epoch_of_the_log(tmp_path: Path) -> None:
    appended(tmp_path / "t-0", 0, 3, epoch=7)
    (tmp_path / "t-0" / LEADER_EPOCH_CHECKPOINT).write_bytes(b"")
    write(tmp_path, values("ours", topic="t"))
    assert read_leader_epochs(tmp_path / "t-0" / LEADER_EPOCH_CHECKPOINT) == [EpochEntry(7, 0)]
    check_log(tmp_path)
    assert [row["offset"] for row in read(tmp_path)] == list(range(4))


def test_segments_of_a_partition_are_synced_in_order(tmp_path: Path) -> None:
    """Of two renames without an fsync between them a crash may keep only the second, and leave a gap of offsets."""
    steps = CountingSteps()
    rows = values(*(f"{n:03d} " + "." * 40 for n in range(20)), topic="t")
    write(tmp_path, rows, on_step=steps, segment_bytes="600", batch_size="300")
    moved = [at for at, (what, name) in enumerate(steps.steps) if (what, name[-4:]) == ("rename", ".log")]
    assert len(moved) > 1
    for first, second in pairwise(moved):
        between = steps.steps[first + 1 : second]
        assert between[0] == ("fsync", "t-0"), between


def test_replacing_indexes_never_exist_beside_an_empty_log(tmp_path: Path) -> None:
    appended(tmp_path / "t-0", 0, 3)
    with LogWriter(tmp_path / "t-0") as writer:
        writer.roll()
    steps = CountingSteps()
    write(tmp_path, values("ours", topic="t"), on_step=steps)
    stem = "00000000000000000003"
    changes = [step for step in steps.steps if step[1].startswith(stem) or step == ("fsync", "t-0")]
    assert changes[:6] == [
        ("unlink", f"{stem}.index"), ("unlink", f"{stem}.timeindex"), ("fsync", "t-0"),
        ("rename", f"{stem}.log"), ("fsync", "t-0"), ("rename", f"{stem}.index"),
    ]  # fmt: skip


def test_new_log_directory_is_synced_with_all_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = SyncWatch(monkeypatch)
    open_job(committer(tmp_path / "a" / "b" / "logs").target, None)
    assert [path for path in (tmp_path, tmp_path / "a", tmp_path / "a" / "b") if not watch.is_synced(path)] == []
