"""Writes without Spark: what tasks stage becomes part of the log, whole, once, and nothing else does."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from kafkalog_spark.errors import (
    BrokerOwnsDirectory,
    CorruptFile,
    CorruptLog,
    InvalidRecord,
    NotALogDirectory,
    UnknownPartition,
)
from kafkalog_spark.format.checkpoint import EpochEntry, read_leader_epochs, read_offset_checkpoint
from kafkalog_spark.format.partition_metadata import read_partition_metadata
from kafkalog_spark.log.write.record_encoder import BatchParams
from kafkalog_spark.sink import jobs
from kafkalog_spark.sink.driver_process import DriverProcess
from kafkalog_spark.sink.job_opening import recover
from kafkalog_spark.sink.task_manifest import TaskManifest
from tests.log.helpers.batch_builder import V2Record, batch
from tests.log.helpers.encoded_batches import encode_batches
from tests.log.helpers.log_writer import LogWriter
from tests.sink.helpers.crashing_steps import CountingSteps
from tests.sink.helpers.written_logs import (
    NOW,
    check_log,
    committer,
    everything,
    last_record,
    open_job,
    read,
    stage,
    staged_files,
    table,
    texts,
    values,
    write,
)


def appended(directory: Path, first: int, count: int, *, close: bool = True, epoch: int = 0) -> None:
    """What a broker writes: records `broker <offset>`."""
    writer = LogWriter(directory)
    records = pa.record_batch({"value": pa.array([b"broker %d" % n for n in range(first, first + count)])})
    writer.append_all(encode_batches(records, writer.next_offset, BatchParams(leader_epoch=epoch), NOW))
    if close:
        writer.close()
    else:
        writer.abandon()


def test_commit_appends_the_records_of_all_tasks_in_order(tmp_path: Path) -> None:
    write(tmp_path, values(*range(5), topic="t"), values(*range(5, 9), topic="t"))
    assert texts(tmp_path) == [str(n) for n in range(9)]
    write(tmp_path, values("next", topic="t"))
    assert texts(tmp_path)[-1] == "next"
    check_log(tmp_path)
    assert [row["offset"] for row in read(tmp_path)] == list(range(10))


def test_new_topic_gets_all_partitions_one_id_and_the_files_of_a_broker(tmp_path: Path) -> None:
    write(tmp_path, values("a", partition=2), topic="t", numPartitions=4)
    ids = {read_partition_metadata(tmp_path / f"t-{n}" / "partition.metadata") for n in range(4)}
    assert len(ids) == 1
    assert None not in ids
    assert [row["partition"] for row in read(tmp_path)] == [2]
    assert read_leader_epochs(tmp_path / "t-2" / "leader-epoch-checkpoint") == [EpochEntry(0, 0)]
    points = read_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint")
    assert points == {("t", 0): 0, ("t", 1): 0, ("t", 2): 1, ("t", 3): 0}
    assert sorted(path.name for path in (tmp_path / "t-1").iterdir()) == [
        "00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex",
        "partition.metadata",
    ]  # fmt: skip
    assert (tmp_path / "t-2" / "00000000000000000001.snapshot").exists()
    check_log(tmp_path)


def test_commit_after_a_broker_continues_its_epoch_after_its_empty_segment(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    appended(directory, 0, 3, epoch=7)
    with LogWriter(directory) as writer:
        writer.roll()
    assert (directory / "00000000000000000003.log").stat().st_size == 0
    write(tmp_path, values("a", "b", topic="t"))
    assert texts(tmp_path) == ["broker 0", "broker 1", "broker 2", "a", "b"]
    assert read_leader_epochs(directory / "leader-epoch-checkpoint") == [EpochEntry(7, 0)]
    check_log(tmp_path)
    appended(directory, 5, 2, epoch=7)
    assert [row["offset"] for row in read(tmp_path)] == list(range(7))


def test_commit_truncates_the_torn_tail_of_a_crashed_broker(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    appended(directory, 0, 50, close=False)
    with open(directory / "00000000000000000000.log", "ab") as log:
        log.write(b"\0\0\0\0\0\0\0\x32\0\0\1\0torn")
    write(tmp_path, values("a", topic="t"))
    assert texts(tmp_path)[49:] == ["broker 49", "a"]
    check_log(tmp_path)
    assert (directory / "00000000000000000000.index").stat().st_size < 1000, "the index of the old segment is trimmed"


def test_segment_that_a_broker_must_split_is_refused_unchanged(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir(parents=True)
    data = b"".join(batch(offset, [V2Record(offset, NOW)]) for offset in (0, 2**31 + 5))
    (directory / "00000000000000000000.log").write_bytes(data)
    with pytest.raises(CorruptLog, match=r"t-0.*ends with offset 2147483653.*it splits the segment"):
        write(tmp_path, values("a", topic="t"))
    assert (directory / "00000000000000000000.log").read_bytes() == data


def test_damaged_log_is_refused_and_unchanged(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    for first in (0, 3, 6):
        appended(directory, first, 3)
    path = directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    for name in ("00000000000000000000.index", "00000000000000000000.timeindex"):
        (directory / name).write_bytes(b"")
    before = everything(directory)
    with pytest.raises(CorruptLog, match=r"t-0 .*00000000000000000000.log at byte"):
        write(tmp_path, values("a", topic="t"))
    assert everything(directory) == before


def test_small_files_of_many_tasks_become_one_segment(tmp_path: Path) -> None:
    write(tmp_path, *(values(n, topic="t", partition=n % 2) for n in range(40)), numPartitions=2)
    assert len(list(tmp_path.glob("t-?/*.log"))) == 2
    assert texts(tmp_path, partition=0) == [str(n) for n in range(0, 40, 2)]
    check_log(tmp_path)


def test_segments_are_rolled_at_segment_bytes(tmp_path: Path) -> None:
    rows = [b"%05d" % n * 20 for n in range(2000)]
    write(tmp_path, table({"value": row} for row in rows), topic="t", segment_bytes="32k", batch_size="4k")
    sizes = [path.stat().st_size for path in sorted((tmp_path / "t-0").glob("*.log"))]
    assert len(sizes) > 6
    assert max(sizes) <= 32 * 1024
    assert min(sizes[:-1]) > 24 * 1024
    assert [row["value"] for row in read(tmp_path)] == rows
    check_log(tmp_path)


def test_replayed_micro_batch_is_written_once(tmp_path: Path) -> None:
    assert write(tmp_path, values("a", topic="t"), query="q", batch=0)
    assert not write(tmp_path, values("a", "changed", topic="t"), query="q", batch=0)
    assert write(tmp_path, values("b", topic="t"), query="q", batch=1)
    assert not write(tmp_path, values("a", topic="t"), query="q", batch=0)
    assert write(tmp_path, values("c", topic="t"), query="other", batch=0)
    assert texts(tmp_path) == ["a", "b", "c"]
    assert last_record(tmp_path).queries == {"q": 1, "other": 0}
    check_log(tmp_path)


def test_micro_batch_without_rows_is_recorded(tmp_path: Path) -> None:
    assert write(tmp_path, values(), topic="t", query="q", batch=0)
    assert not (tmp_path / "t-0").exists()
    assert not write(tmp_path, values("late", topic="t"), query="q", batch=0)


def test_files_of_losing_task_attempts_are_not_committed(tmp_path: Path) -> None:
    job = open_job(tmp_path)
    stage(tmp_path, job, values("loser", topic="t"))
    winner = stage(tmp_path, job, values("winner", topic="t"))
    committer(tmp_path).commit(job, winner, 1 << 30)
    assert texts(tmp_path) == ["winner"]
    check_log(tmp_path)


def test_task_after_the_commit_stages_nothing(tmp_path: Path) -> None:
    from kafkalog_spark.errors import JobEnded

    job = open_job(tmp_path)
    committer(tmp_path).commit(job, stage(tmp_path, job, values("a", topic="t")), 1 << 30)
    with pytest.raises(JobEnded, match="has ended"):
        stage(tmp_path, job, values("late", topic="t"))
    check_log(tmp_path)


def test_aborted_write_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, values("a", topic="t"))
    before = everything(tmp_path)
    job = open_job(tmp_path)
    stage(tmp_path, job, values("b", topic="t"), values("c", topic="new"))
    assert staged_files(tmp_path)
    committer(tmp_path).abort([job])
    assert everything(tmp_path) == before


def test_files_of_a_writer_are_kept_when_descriptors_run_out_during_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living, job = open_job(tmp_path), open_job(tmp_path)
    stage(tmp_path, living, values("living", topic="t"))
    staged = stage(tmp_path, job, values("a", topic="t"))
    read_text = Path.read_text

    def refuse(path: Path, encoding: str | None = None, errors: str | None = None) -> str:
        if path.match("/proc/*/stat"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return read_text(path, encoding, errors)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        committer(tmp_path).commit(job, staged, 1 << 30)
    assert texts(tmp_path) == ["a"]
    assert living in jobs.files_of_jobs(staged_files(tmp_path))


def test_files_of_dead_writers_are_removed_and_of_live_ones_kept(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; import sys; from tests.sink.helpers.written_logs import *\n"
        "d = Path(sys.argv[1]); stage(d, open_job(d), values('dead', topic='t'))"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=root, check=True)
    living = open_job(tmp_path)
    stage(tmp_path, living, values("living", topic="t"))
    assert len(staged_files(tmp_path)) == 4
    write(tmp_path, values("a", topic="t"))
    assert jobs.files_of_jobs(staged_files(tmp_path)).keys() == {living}
    assert texts(tmp_path) == ["a"]


def test_files_of_an_unknown_writer_are_kept_for_a_week(tmp_path: Path) -> None:
    job = uuid4().hex
    elsewhere = DriverProcess("another boot", "pid:[1]", 1, 1)
    (tmp_path / jobs.job_file(job)).write_bytes(jobs.format_job(jobs.Job(elsewhere)))
    now = (tmp_path / jobs.job_file(job)).stat().st_mtime
    recover(committer(tmp_path, now_s=lambda: now + 6 * 86_400).target)
    assert staged_files(tmp_path)
    recover(committer(tmp_path, now_s=lambda: now + 8 * 86_400).target)
    assert not staged_files(tmp_path)


def test_topic_created_meanwhile_with_other_partitions_is_an_error(tmp_path: Path) -> None:
    job = open_job(tmp_path)
    staged = stage(tmp_path, job, values("a", topic="t"))
    write(tmp_path, values("b", topic="t"), numPartitions=3)
    with pytest.raises(UnknownPartition, match="topic t has 3 partitions, but had 1 when"):
        committer(tmp_path).commit(job, staged, 1 << 30)
    committer(tmp_path).abort([job])
    assert texts(tmp_path) == ["b"]
    check_log(tmp_path)


@pytest.mark.parametrize("moment", ["mkdir t-0", "mkdir t-1", "mkdir t-2", "rename 00000000000000000000.log"])
def test_task_started_during_topic_creation_sees_all_partitions(tmp_path: Path, moment: str) -> None:
    job = open_job(tmp_path)
    staged: list[TaskManifest] = []

    class Looked(CountingSteps):
        def __call__(self, what: str, path: Path) -> None:
            super().__call__(what, path)
            if f"{what} {path.name}" == moment and not staged:
                staged.extend(stage(tmp_path, job, values("b", topic="t", partition=2)))

    write(tmp_path, values("a", topic="t", partition=0), numPartitions=3, on_step=Looked())
    assert committer(tmp_path).commit(job, staged, 1 << 30)
    assert texts(tmp_path) == ["a", "b"]
    check_log(tmp_path)


def test_partition_missing_from_the_log_directory_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, values("a", topic="t"), numPartitions=3)
    shutil.rmtree(tmp_path / "t-1")
    with pytest.raises(UnknownPartition, match=r"t-1: is not in this log directory, which holds partitions 0, 2 of t"):
        write(tmp_path, values("b", topic="t", partition=1))
    assert texts(tmp_path) == ["a"]


def test_new_topic_with_a_colliding_name_is_refused(tmp_path: Path) -> None:
    write(tmp_path, values("a", topic="a.b"))
    with pytest.raises(InvalidRecord, match=r"Topic 'a_b' collides with existing topic: a\.b"):
        write(tmp_path, values("a", topic="a_b"))


def test_directory_of_a_running_broker_is_refused_with_the_alternative(tmp_path: Path) -> None:
    from kafkalog_spark.log.write.log_dir_lock import LogDirLock

    write(tmp_path, values("a", topic="t"))
    held = LogDirLock.acquire(tmp_path)
    try:
        with pytest.raises(BrokerOwnsDirectory, match=r"a running broker owns .* kafka\.bootstrap\.servers"):
            write(tmp_path, values("b", topic="t"))
    finally:
        held.release()
    assert texts(tmp_path) == ["a"]


TURNS, WRITERS = 8, 3
WRITER = """
import sys
from pathlib import Path
from kafkalog_spark.sink.directory_check import check_log_directory
from kafkalog_spark.sink.directory_locks import COMMIT_WAIT_SECONDS, DirectoryLocks
from kafkalog_spark.sink.local_directory import LocalDirectory
from tests.log.helpers.encoded_batches import encode_batches
from tests.sink.helpers.written_logs import *
for turn in range(int(sys.argv[3])):
    check_log_directory(LocalDirectory(Path(sys.argv[1])))
    DirectoryLocks(Path(sys.argv[1]), COMMIT_WAIT_SECONDS).check_no_broker()
    texts = [f"{sys.argv[2]} {turn} {n}" for n in range(20)]
    write(Path(sys.argv[1]), values(*texts, partition=turn % 2), topic="t", numPartitions=2)
"""


@pytest.mark.end_to_end
def test_writers_in_several_processes_take_turns(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    children = [
        subprocess.Popen([*command, str(number), str(TURNS)], cwd=root, stderr=subprocess.PIPE, text=True)
        for number in range(WRITERS)
    ]
    said = [child.communicate(timeout=120)[1] for child in children]  # of all, so that no pipe is left open
    assert [child.returncode for child in children] == [0] * WRITERS, "".join(said)
    check_log(tmp_path)
    found = texts(tmp_path)
    assert sorted(found) == sorted(f"{w} {t} {n}" for w in range(WRITERS) for t in range(TURNS) for n in range(20))
    for at in range(0, len(found), 20):
        assert len({text.rpartition(" ")[0] for text in found[at : at + 20]}) == 1, "each write is in one piece"


def test_forged_commit_record_removes_no_file_outside_the_directory(tmp_path: Path) -> None:
    """`kafkalog.sink-<job>.job` is removed when a commit is finished."""
    log_dir, victim = tmp_path / "data", tmp_path / "victim.job"
    write(log_dir, values("a", topic="t"))
    victim.write_text("untouched")
    (log_dir / "kafkalog.sink-..").mkdir()
    record = log_dir / "kafkalog.commits-00000000000000000001.json"
    content = json.loads((log_dir / "kafkalog.commits-00000000000000000000.json").read_text())
    record.write_text(json.dumps({**content, "job": "../../../victim", "segments": [], "topics": []}))
    with pytest.raises(CorruptFile, match=r"'../../../victim' is not the ID of a job"):
        write(log_dir, values("b", topic="t"))
    assert victim.exists()


def test_symbolic_link_with_the_name_of_a_joined_file_is_not_followed(tmp_path: Path) -> None:
    log_dir, victim = tmp_path / "data", tmp_path / "victim"
    victim.write_text("untouched")
    job = open_job(log_dir)
    tasks = stage(log_dir, job, values("a", topic="t"), values("b", topic="t"))
    first = min(log_dir.glob("kafkalog.sink-*-0-*.log"))
    first.with_name(f"{first.stem}-joined.log").symlink_to(victim)
    with pytest.raises(NotALogDirectory, match="is a symbolic link"):
        committer(log_dir).commit(job, tasks, 1 << 20)
    assert victim.read_text() == "untouched"


def test_job_owner_without_a_process_id_is_unknown(tmp_path: Path) -> None:
    job = "0" * 32
    owner = {"boot": "b", "pid_namespace": "n", "pid": "../../tmp/pipe", "start": 1}
    content = {"owner": owner, "stream": None, "made_directory": False}
    (tmp_path / jobs.job_file(job)).write_text(json.dumps(content))
    assert jobs.read_job(tmp_path, job).owner is None
