"""Writes to a bucket without Spark: what tasks stage becomes part of the log, whole, once, and nothing else does."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import CorruptLog, JobEnded, KafkalogError, UnknownPartition
from kafkalog_spark.format.checkpoint import EpochEntry, parse_leader_epochs
from kafkalog_spark.format.partition_metadata import parse_partition_metadata
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.sink import bucket_commit_log
from kafkalog_spark.sink.bucket_commit_log import RETENTION_SECONDS
from kafkalog_spark.sink.bucket_stage import BucketStage
from kafkalog_spark.sink.committers import bucket_committer
from kafkalog_spark.sink.job_opening import recover
from tests.log.helpers.log_writer import LogWriter
from tests.sink.helpers import written_logs
from tests.sink.helpers.written_buckets import Place, kill_at, killed, record_name, stage, write
from tests.sink.helpers.written_logs import table, values
from tests.sink.test_commit import appended
from tests.store.fault_proxy import Fault, FaultKind, FaultProxy, Request, at_random
from tests.store.s3_server import S3Server

BIG = 60  # bytes of a row that fill segments of 500


@pytest.fixture
def place(s3: S3Server) -> Place:
    return Place.new(s3)


def test_commit_appends_the_records_of_all_tasks_in_order(place: Place, tmp_path: Path) -> None:
    assert write(place.bucket(), values(*range(5), topic="t"), values(*range(5, 9), topic="t"))
    assert place.texts() == [str(n) for n in range(9)]
    assert write(place.bucket(), values("next", topic="t"))
    assert place.texts()[-1] == "next"
    assert [row["offset"] for row in place.rows()] == list(range(10))
    place.check(tmp_path)
    checked = check_log_dirs([place.root], decode_records=True, storage=place.bucket().store.options)
    assert (checked.findings.errors, len(checked.partitions)) == (0, 1), "what the sink keeps is in nobody's way"


def test_bucket_sink_writes_the_files_of_the_local_sink(place: Place, tmp_path: Path) -> None:
    """Segments and indexes byte by byte, and the small files, but those that docs/sink.md names."""
    random.seed(5)
    rows = [
        {"key": b"%d" % n, "value": os.urandom(random.randrange(1, 900)), "timestamp": 1_700_000_000_000 + n * 7 % 50}
        for n in range(300)
    ]
    for codec in ("none", "lz4"):
        given: dict[str, Any] = {"topic": codec, "numPartitions": 2, "compression_type": codec, "batch_size": "2k"}
        write(place.bucket(), table(rows[:200]), table(rows[200:]), **given)
        written_logs.write(tmp_path / "local", table(rows[:200]), table(rows[200:]), **given)
    copy = place.copy_to(tmp_path / "copy")
    ours = {str(path.relative_to(copy)): path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    local = written_logs.everything(tmp_path / "local")
    for name in list(ours):
        if name.endswith("partition.metadata"):  # each topic has an id of its own
            assert len(ours.pop(name)) == len(local.pop(name))
    left = {name for name, data in local.items() if ours.get(name) != data and (tmp_path / "local" / name).is_file()}
    assert {name for name in left if "kafkalog" not in name and ".lock" not in name} == {
        "recovery-point-offset-checkpoint",
        *(name for name in local if name.endswith(".snapshot")),
    }
    assert ours.keys() <= local.keys()
    assert len([name for name in ours if name.endswith(".log")]) == 4


def test_new_topic_has_all_its_partitions_with_one_id(place: Place, tmp_path: Path) -> None:
    bucket = place.bucket()
    write(bucket, values("a", partition=2), topic="t", numPartitions=4)
    assert place.dirs.topics == {"t": (0, 1, 2, 3)}
    ids = {parse_partition_metadata(bucket.read(f"t-{n}/partition.metadata", 100)) for n in range(4)}
    assert len(ids) == 1
    assert parse_leader_epochs(bucket.read("t-2/leader-epoch-checkpoint", 100)) == [EpochEntry(0, 0)]
    made = [name for what, name in bucket.steps if name.endswith("partition.metadata")]
    assert made == [f"t-{n}/partition.metadata" for n in (3, 2, 1, 0)], "whoever looks meanwhile sees how many come"
    place.check(tmp_path)


def test_commit_after_a_broker_continues_its_epoch_and_replaces_its_empty_segment(place: Place, tmp_path: Path) -> None:
    directory = tmp_path / "broker" / "t-0"
    appended(directory, 0, 3, epoch=7)
    with LogWriter(directory) as writer:
        writer.roll()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    assert (directory / "00000000000000000003.log").stat().st_size == 0
    place.put_directory(tmp_path / "broker")
    write(place.bucket(), values("a", "b", topic="t"))
    assert place.texts() == ["broker 0", "broker 1", "broker 2", "a", "b"]
    write(place.bucket(), values("c", topic="t"))
    place.check(tmp_path)
    assert parse_leader_epochs(place.bucket().read("t-0/leader-epoch-checkpoint", 100)) == [EpochEntry(7, 0)]
    copy = place.copy_to(tmp_path / "copy")
    appended(copy / "t-0", 6, 2, epoch=7)
    assert [row["offset"] for row in written_logs.read(copy)] == list(range(8))


def test_torn_tail_is_refused_with_the_remedy(place: Place, tmp_path: Path) -> None:
    directory = tmp_path / "broker" / "t-0"
    appended(directory, 0, 50, close=False)
    with open(directory / "00000000000000000000.log", "ab") as log:
        log.write(b"\0\0\0\0\0\0\0\x32\0\0\1\0torn")
    place.put_directory(tmp_path / "broker")
    before = place.names()
    with pytest.raises(
        CorruptLog, match=r"t-0.*16 bytes after its last whole batch.*an object cannot be truncated.*broker"
    ):
        write(place.bucket(), values("a", topic="t"))
    assert [name for name in place.names() if not name.startswith("kafkalog.commits")] == before
    (directory / "00000000000000000007.log.swap").write_bytes(b"")
    place.put_directory(tmp_path / "broker")
    with pytest.raises(CorruptLog, match=r"0007.log.swap is left over from an interrupted cleaning"):
        write(place.bucket(), values("a", topic="t"))


def test_damage_in_the_last_segment_is_refused(place: Place, tmp_path: Path) -> None:
    directory = tmp_path / "broker" / "t-0"
    appended(directory, 0, 3)
    appended(directory, 3, 3)
    path = directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    path.write_bytes(data)
    place.put_directory(tmp_path / "broker")
    with pytest.raises(CorruptLog, match=r"t-0 .*00000000000000000000.log at byte"):
        write(place.bucket(), values("a", topic="t"))


def test_micro_batch_replayed_by_any_writer_is_written_once(place: Place, tmp_path: Path) -> None:
    assert write(place.bucket(), values("a", topic="t"), query="q", batch=0)
    assert not write(place.bucket(), values("a", topic="t"), query="q", batch=0)
    assert write(place.bucket(), values("b", topic="t"), query="q", batch=1)
    assert not write(place.bucket(), values("a", topic="t"), query="q", batch=0)
    assert write(place.bucket(), values("other", topic="t"), query="other", batch=0)
    assert write(place.bucket(), values("batch", topic="t"))
    assert not write(place.bucket(), values("b", topic="t"), query="q", batch=1)
    assert place.texts() == ["a", "b", "other", "batch"]
    assert bucket_committer(place.bucket()).commit("ab" * 16, [], 500, "q", 2), "an empty one is one, too"
    assert not bucket_committer(place.bucket()).commit("ab" * 16, [], 500, "q", 2)
    place.check(tmp_path)


def test_segments_are_rolled_at_segment_bytes_across_tasks(place: Place, tmp_path: Path) -> None:
    tasks = [table({"value": b"%d %05d" % (task, n) + b"." * BIG} for n in range(200)) for task in range(3)]
    write(place.bucket(), *tasks, topic="t", segment_bytes="8k", batch_size="1k")
    assert [text[:7] for text in place.texts()] == [f"{task} {n:05d}" for task in range(3) for n in range(200)]
    sizes = place.bucket().sizes("t-0")
    logs = [size for name, size in sorted(sizes.items()) if name.endswith(".log")]
    assert len(logs) > 4
    assert max(logs) <= 8 << 10
    place.check(tmp_path)


def test_large_segments_are_uploaded_in_parts(place: Place, tmp_path: Path) -> None:
    """What is larger than a whole put may be, here 20 kB, and what was there before such a put is not written again."""
    rows = table({"value": b"%05d" % n + b"." * 100} for n in range(1300))
    given: dict[str, Any] = {"topic": "t", "batch_size": "2k", "segment_bytes": "50k"}
    bucket = replace(place.bucket(), max_single_put_bytes=20 << 10)
    write(bucket, rows, **given)
    assert [what for what, name in bucket.steps if name.startswith("t-0/0") and name.endswith(".log")][:2] == [
        "upload"
    ] * 2
    order = [name for _, name in bucket.steps if name.startswith("t-0/0000")]
    assert order[0].endswith("0.log"), "the upload begins, its indexes come before its end"
    assert [text[:5] for text in place.texts()] == [f"{n:05d}" for n in range(1300)]
    place.check(tmp_path)
    for step in range(10, len(bucket.steps)):
        again = Place.new(place.server)
        with killed():
            write(
                replace(again.bucket(kill_at(step)), max_single_put_bytes=20 << 10), rows, query="q", batch=0, **given
            )
        write(replace(again.bucket(), max_single_put_bytes=20 << 10), rows, query="q", batch=0, **given)
        assert [text[:5] for text in again.texts()] == [f"{n:05d}" for n in range(1300)]


def test_task_bounds_the_bytes_buffered_for_all_partitions(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BucketStage, "held_bytes", 4000)
    bucket = place.bucket()
    held: list[int] = []
    real = BucketStage.append

    def append(self: BucketStage, name: str, data: memoryview) -> None:
        real(self, name, data)
        held.append(sum(map(len, self._open.values())))

    monkeypatch.setattr(BucketStage, "append", append)
    rows = [{"value": b"%03d" % n + b"." * 97, "partition": n % 40} for n in range(2000)]
    tasks = [[table(rows[at : at + 100]) for at in range(0, 2000, 100)] for _ in range(2)]
    monkeypatch.setattr("kafkalog_spark.sink.task_writer._WINDOW_BYTES", (1000, 1000))
    write(bucket, *tasks, topic="t", numPartitions=40, batch_size="1k")
    assert max(held) <= 4000 + 3 * 110 + 61, "one partition's share of a window on top"
    assert len([name for what, name in bucket.steps if name.startswith("kafkalog.staged") and what == "put"]) > 200
    assert len(place.rows()) == 4000
    place.check(tmp_path)


def test_concurrent_writers_lose_and_duplicate_nothing(place: Place, tmp_path: Path) -> None:
    """Four writers of five micro-batches each, with threads of their own, all partitions and a topic that all make."""

    def writer(number: int) -> None:
        for batch in range(5):
            rows = values(*(f"{number} {batch} {n}" for n in range(4)), topic="t")
            bucket = replace(place.bucket(), parallel=4)
            write(bucket, rows, query=f"q{number}", batch=batch, numPartitions=3)
            assert not write(bucket, rows, query=f"q{number}", batch=batch, numPartitions=3)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(writer, number) for number in range(4)]:
            done.result()
    found = place.texts()
    assert sorted(found) == sorted(f"{w} {b} {n}" for w in range(4) for b in range(5) for n in range(4))
    # A writer does not remove the staged objects of a commit that another writer completed for it.
    place.bucket().delete(place.staged())
    place.check(tmp_path)


def test_network_faults_do_not_change_the_result(place: Place, tmp_path: Path, proxy: FaultProxy) -> None:
    proxy.plan = at_random(seed=11, share=0.15, most=60, longest_delay=0.0)
    for batch in range(6):
        rows = values(*(f"{batch} {n}" for n in range(4)), topic="t")
        write(place.bucket(proxy=proxy), rows, query="q", batch=batch, numPartitions=2)
    assert sum(seen.fault is not None for seen in proxy.seen) > 20
    assert sorted(place.texts()) == sorted(f"{batch} {n}" for batch in range(6) for n in range(4))
    place.check(tmp_path)


def test_commit_whose_response_is_lost_is_found(place: Place, tmp_path: Path, proxy: FaultProxy) -> None:
    """The record lies there, and whoever put it has to find out that it is its own."""
    lost: list[int] = []

    def plan(request: Request) -> Fault | None:
        if request.method == "PUT" and request.path.endswith(".json") and not lost:
            lost.append(request.number)
            return Fault(FaultKind.TRUNCATE, 0)
        return None

    proxy.plan = plan
    assert write(place.bucket(proxy=proxy), values("a", topic="t"), query="q", batch=0)
    assert lost
    assert (place.texts(), len(place.commits())) == (["a"], 1)
    place.check(tmp_path)


def test_abandoned_commit_cannot_succeed_later(place: Place) -> None:
    """Its number's place is taken, so that the put, when it arrives, is refused."""
    write(place.bucket(), values("a", topic="t"))
    job = "ab" * 16
    staged = stage(place.bucket(), job, values("late", topic="t"))

    def fails(number: int, what: str, name: str) -> None:
        if name == record_name(1) and not given_up:
            given_up.append(name)
            raise OSError(110, "did not answer in time", name)

    given_up: list[str] = []
    bucket = place.bucket(fails)
    with pytest.raises(KafkalogError, match="did not answer in time; nothing was written"):
        bucket_committer(bucket).commit(job, staged, 500, "q", 0)
    late = bucket_committer(place.bucket()).target.log.read(1)
    assert (late.job, late.segments, late.queries) == (None, (), {})
    assert not bucket_committer(place.bucket()).target.log.put(1, replace(late, id="late"), late)
    assert bucket_committer(place.bucket()).commit(job, staged, 500, "q", 0), "a stream tries again"
    assert place.texts() == ["a", "late"]


def test_staged_objects_of_dead_jobs_are_removed_after_a_week(place: Place) -> None:
    if not place.server.serves_files:
        pytest.skip("the times of objects cannot be set in moto's server")
    for job in ("old", "young"):
        stage(place.bucket(), {"old": "0a", "young": "0b"}[job] * 16, values(job, topic="t"))
    folder = place.server.directory / "tier" / place.root.removeprefix("s3://tier/") / "kafkalog.staged"
    now = max(path.stat().st_mtime for path in folder.rglob("*.log"))
    for job, age in (("0a" * 16, RETENTION_SECONDS + 10), ("0b" * 16, RETENTION_SECONDS - 10)):
        for path in (folder / job).iterdir():
            os.utime(path, (now - age, now - age))
    write(place.bucket(), values("a", topic="t"))
    assert {name.split("/")[1] for name in place.staged()} == {"0b" * 16}


def test_old_commit_records_are_removed_except_the_newest(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if not place.server.serves_files:
        pytest.skip("the times of objects cannot be set in moto's server")
    monkeypatch.setattr(bucket_commit_log, "PRUNE_EVERY", 4)
    for batch in range(4):
        write(place.bucket(), values(batch, topic="t"), query="q", batch=batch)
    folder = place.server.directory / "tier" / place.root.removeprefix("s3://tier/") / "kafkalog.commits"
    for number, age in ((0, RETENTION_SECONDS * 2), (1, RETENTION_SECONDS + 10)):
        path = folder / f"{number:020d}.json"
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    write(place.bucket(), values("last", topic="t"), query="other", batch=0)
    assert place.commits() == [record_name(number) for number in (2, 3, 4)]
    assert not write(place.bucket(), values(3, topic="t"), query="q", batch=3)
    assert place.texts() == ["0", "1", "2", "3", "last"]


def test_missing_wrong_or_stale_done_object_is_tolerated(place: Place, tmp_path: Path) -> None:
    for batch, done in enumerate([None, b"", b'{"number": 99}', b'{"number": 0}', b"[]", b'{"number": "x"}']):
        write(place.bucket(), values(batch, topic="t"), query="q", batch=batch)
        if done is None:
            place.bucket().delete(["kafkalog.commits/done"])
        else:
            place.bucket().replace("kafkalog.commits/done", done)
        assert not write(place.bucket(), values(batch, topic="t"), query="q", batch=batch)
    assert place.texts() == [str(n) for n in range(6)]
    place.check(tmp_path)


def test_partition_deleted_before_a_commit_completes_is_not_restored(place: Place, tmp_path: Path) -> None:
    write(place.bucket(), values("a", topic="old"))
    counted = Place.new(place.server)
    write(counted.bucket(), values("a", topic="old"))
    bucket = counted.bucket()
    rows = table({"value": b"b", "topic": topic} for topic in ("old", "new"))
    write(bucket, rows)
    commit = bucket.steps.index(("create", record_name(1)))
    with killed():
        write(place.bucket(kill_at(commit + 1)), rows)
    place.bucket().delete([name for name in place.names() if name.startswith("old-0/")])
    recover(bucket_committer(place.bucket()).target)
    assert place.dirs.topics == {"new": (0,)}
    assert place.texts("new") == ["b"]
    place.check(tmp_path)


def test_lost_staged_objects_of_a_commit_are_reported(place: Place) -> None:
    write(place.bucket(), values("a", topic="t"))
    bucket = place.bucket()
    write(bucket, values("b", topic="t"))
    commit = bucket.steps.index(("create", record_name(1)))
    other = Place.new(place.server)
    write(other.bucket(), values("a", topic="t"))
    with killed():
        write(other.bucket(kill_at(commit + 1)), values("b", topic="t"))
    other.bucket().delete(other.staged())
    with pytest.raises(KafkalogError, match=r"kafkalog.staged/.*commit 1 needs a staged file that is gone"):
        write(other.bucket(), values("c", topic="t"))
    assert other.texts() == ["a"]


def test_foreign_segment_with_the_same_name_is_refused(place: Place) -> None:
    write(place.bucket(), values("a", topic="t"))

    def comes(number: int, what: str, name: str) -> None:
        if name == "t-0/00000000000000000001.log":
            place.bucket().replace(name, place.bucket().read("t-0/00000000000000000000.log", 1000))

    with pytest.raises(
        KafkalogError, match=r"another program has written a segment at offset 1\b.*another program than"
    ):
        write(place.bucket(comes), values("bb", topic="t"))


def test_topic_with_added_or_missing_partitions_is_refused(place: Place) -> None:
    write(place.bucket(), values("a", topic="t"), numPartitions=2)
    staged = stage(place.bucket(), "ab" * 16, values("b", topic="t"))
    place.bucket().replace("t-2/partition.metadata", place.bucket().read("t-0/partition.metadata", 100))
    with pytest.raises(UnknownPartition, match="topic t has 3 partitions, but had 2 when the tasks chose"):
        bucket_committer(place.bucket()).commit("ab" * 16, staged, 500)
    place.bucket().delete(["t-1/partition.metadata"])
    with pytest.raises(UnknownPartition, match="t-1: is not in this log directory, which holds partitions 0, 2 of t"):
        write(place.bucket(), values("b", topic="t", partition=1))


def test_commit_without_its_staged_objects_is_not_made(place: Place) -> None:
    """They were older than a week, or somebody removed them: a commit that names them could never be completed."""
    staged = stage(place.bucket(), "ab" * 16, values("a", topic="t"), values("b", topic="t"))
    place.bucket().delete(place.staged()[:1])
    with pytest.raises(JobEnded, match=r"1 of 2 staged objects are gone.*nothing was written"):
        bucket_committer(place.bucket()).commit("ab" * 16, staged, 500, "q", 0)
    assert place.commits() == []


def test_empty_write_writes_nothing(place: Place) -> None:
    assert write(place.bucket())
    assert place.names() == []
    with pytest.raises(KafkalogError, match="Invalid partition number: -1"):
        write(place.bucket(), values("a", topic="t"), values("b", topic="t", partition=-1))
    assert place.names() == []
