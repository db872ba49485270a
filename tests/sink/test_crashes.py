"""A commit is killed, or fails, at every single change that it makes to the file system."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.storage.recovery.log_loader import LoadRequest, load_log
from kafkalog_spark.errors import KafkalogError, WriteUnfinished
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.sink.commit import Committer
from kafkalog_spark.sink.job_opening import recover
from kafkalog_spark.sink.local_directory import LocalDirectory
from kafkalog_spark.sink.task_manifest import TaskManifest
from tests.log.helpers.log_writer import LogWriter
from tests.sink.helpers.crashing_steps import KILLED, CountingSteps, FailingSteps, KillingSteps, in_child
from tests.sink.helpers.written_logs import (
    OnStep,
    check_log,
    committer,
    everything,
    is_complete,
    last_record,
    open_job,
    read,
    stage,
    staged_files,
    table,
    texts,
    write,
)
from tests.sink.test_commit import appended

COUNT = 20
SETTINGS: dict[str, Any] = {"numPartitions": 2, "segment_bytes": "600", "batch_size": "300"}

EVERY = pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 7])
"""Each step of a write, or a sample: each seventh."""


def records(topic: str) -> object:
    return table(
        {"value": b"%s %03d " % (topic.encode(), n) + b"." * 40, "topic": topic, "partition": n % 2}
        for n in range(COUNT)
    )


def prepare(log_dir: Path) -> None:
    """Topic `old` with records in both partitions, `fresh` with an empty active segment in partition 0."""
    for partition in (0, 1):
        appended(log_dir / f"old-{partition}", 0, 20)
    appended(log_dir / "fresh-0", 0, 5)
    with LogWriter(log_dir / "fresh-0") as writer:
        writer.roll()
    with LogWriter(log_dir / "fresh-1"):
        pass


def the_write(log_dir: Path, on_step: OnStep | None = None) -> bool:
    """Micro-batch 3 of query q: segments of their own, joined ones, an existing topic, a new one."""
    tasks = [records("old"), records("fresh"), records("new"), records("old").slice(0, 2)]  # type: ignore[attr-defined]
    return write(log_dir, *tasks, query="q", batch=3, on_step=on_step, **SETTINGS)


def expected(topic: str, partition: int) -> list[str]:
    before = {"old": 20, "fresh": 5 if partition == 0 else 0}.get(topic, 0)
    ours = [f"{topic} {n:03d} " + "." * 40 for n in range(partition, COUNT, 2)]
    return [f"broker {n}" for n in range(before)] + ours + ([ours[0]] if topic == "old" else [])


def check_whole(log_dir: Path) -> None:
    for topic in ("old", "fresh", "new"):
        for partition in (0, 1):
            assert texts(log_dir, topic, partition) == expected(topic, partition), f"{topic}-{partition}"
    check_log(log_dir)
    assert is_complete(log_dir)


def check_valid(log_dir: Path) -> None:
    """What readers and brokers meet between a crash and the next write: of each partition a beginning of what is to
    come, never less than there was, and a log that loads, clean or not."""
    for topic, partitions in LogDirs.open(log_dir).topics.items():
        for partition in partitions:
            found = texts(log_dir, topic, partition)
            assert found == expected(topic, partition)[: len(found)]
            assert len(found) >= {"old": 20, "fresh": 5 - 5 * partition}.get(topic, 0)
            clean = partition == 0
            copy = log_dir.with_name("loaded") / f"{topic}-{partition}"
            shutil.copytree(log_dir / copy.name, copy)
            loaded = load_log(LoadRequest(directory=copy, clean=clean))
            assert (loaded.log_end_offset, sum(one.truncated_bytes for one in loaded.recovered)) == (len(found), 0)
            shutil.rmtree(copy.parent)


def steps(tmp_path: Path) -> list[tuple[str, str]]:
    counting = CountingSteps()
    prepare(tmp_path / "counted")
    the_write(tmp_path / "counted", counting)
    check_whole(tmp_path / "counted")
    return counting.steps


def each_step(tmp_path: Path) -> list[tuple[int, Path]]:
    """(step, a prepared directory of its own)."""
    count = len(steps(tmp_path))
    assert count > 50
    prepare(tmp_path / "prepared")
    places = []
    for step in range(count):
        shutil.copytree(tmp_path / "prepared", tmp_path / str(step) / "data")
        places.append((step, tmp_path / str(step) / "data"))
    return places


@EVERY
def test_write_killed_at_any_step_is_present_once_after_the_replay(tmp_path: Path, every: int) -> None:
    decided = []
    for step, log_dir in each_step(tmp_path)[::every]:
        assert in_child(lambda: the_write(log_dir, KillingSteps(step))) == KILLED  # noqa: B023  called at once
        check_valid(log_dir)
        fresh = the_write(log_dir)
        check_whole(log_dir)
        decided.append(not fresh)
    first = decided.index(True)
    assert decided == [False] * first + [True] * (len(decided) - first), "one step decides"
    assert first > 10 // every


@pytest.mark.slow
def test_completion_of_a_dead_writers_commit_may_be_killed_at_any_step(tmp_path: Path) -> None:
    """The first crash comes at the middle of the moves; the second at any step of what finishes them."""
    named = steps(tmp_path)
    middle = [number for number, (what, _) in enumerate(named) if what == "rename"][7]
    prepare(tmp_path / "data")
    assert in_child(lambda: the_write(tmp_path / "data", KillingSteps(middle))) == KILLED
    step = 0
    while True:
        log_dir = tmp_path / "again" / "data"
        shutil.copytree(tmp_path / "data", log_dir)
        code = in_child(lambda: recover(committer(log_dir, KillingSteps(step)).target))  # noqa: B023
        if code == KILLED:
            check_valid(log_dir)
            recover(committer(log_dir).target)
        check_whole(log_dir)
        shutil.rmtree(log_dir.parent)
        if code == 0:
            break
        assert code == KILLED
        step += 1
    assert step > 20


@EVERY
def test_broker_between_crash_and_replay_keeps_its_records_before_the_sinks(tmp_path: Path, every: int) -> None:
    for step, log_dir in each_step(tmp_path)[::every]:
        in_child(lambda: the_write(log_dir, KillingSteps(step)))  # noqa: B023
        seen = len(texts(log_dir, "old", 0))
        directory = log_dir / "old-0"
        load_log(LoadRequest(directory=directory, clean=True))  # removes indexes without a log, as a broker's start
        appended(directory, seen, 2)
        the_write(log_dir)
        check_log(log_dir)
        whole = expected("old", 0)
        between = [f"broker {seen}", f"broker {seen + 1}"]
        assert texts(log_dir, "old", 0) == whole[:seen] + between + whole[seen:]
        assert texts(log_dir, "old", 1) == expected("old", 1)


def test_partition_deleted_before_a_commit_completes_is_not_restored(tmp_path: Path) -> None:
    named = steps(tmp_path)
    last_write = named.index(("create", "kafkalog.commits-00000000000000000000.json"))
    prepare(tmp_path / "data")
    assert in_child(lambda: the_write(tmp_path / "data", KillingSteps(last_write + 1))) == KILLED
    for partition in (0, 1):
        shutil.rmtree(tmp_path / "data" / f"old-{partition}")
    recover(committer(tmp_path / "data").target)
    assert set(LogDirs.open(tmp_path / "data").topics) == {"fresh", "new"}
    assert texts(tmp_path / "data", "new", 1) == expected("new", 1)
    check_log(tmp_path / "data")


@EVERY
def test_error_at_any_step_leaves_nothing_or_reports_a_decided_write(tmp_path: Path, every: int) -> None:
    """No space, and then some again: what Spark does is commit, and abort when that fails."""
    outcomes = []
    for step, log_dir in each_step(tmp_path)[::every]:
        logs = everything_of_the_logs(log_dir)
        failing = FailingSteps(step, stays=True)
        job = open_job(log_dir)
        staged = stage(log_dir, job, records("old"), records("fresh"), records("new"), **SETTINGS)
        outcomes.append(outcome(committer(log_dir, failing), job, staged))
        committer(log_dir).abort([job])
        if outcomes[-1] == "nothing":
            assert everything_of_the_logs(log_dir) == logs
            assert staged_files(log_dir) == []
        else:
            assert last_record(log_dir).queries.get("q", -1) >= 3
            assert texts(log_dir, "new", 0) == expected("new", 0)
            assert len(read(log_dir)) == 45 + 3 * COUNT
            check_log(log_dir)
    assert set(outcomes) == {"nothing", "decided", "complete"}


def outcome(writer: Committer, job: str, staged: list[TaskManifest]) -> str:
    try:
        writer.commit(job, staged, 600, "q", 3)
    except WriteUnfinished as error:
        return "decided" if "do not run the write again" in str(error) else str(error)
    except KafkalogError as error:
        return "nothing" if "No space left on device" in str(error) else str(error)
    return "complete"


def everything_of_the_logs(log_dir: Path) -> dict[str, bytes]:
    """All but what the sink itself keeps and the locks."""
    return {name: data for name, data in everything(log_dir).items() if not name.startswith(("kafkalog.", ".lock"))}


def test_commit_is_decided_when_only_the_last_fsync_of_its_record_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalDirectory.put_if_absent

    def fails_late(self: LocalDirectory, name: str, data: bytes) -> bool:
        real(self, name, data)
        raise OSError(5, "Input/output error", name)

    prepare(tmp_path)
    job = open_job(tmp_path)
    staged = stage(tmp_path, job, records("new"), **SETTINGS)
    monkeypatch.setattr(LocalDirectory, "put_if_absent", fails_late)
    with pytest.raises(WriteUnfinished, match="Input/output error"):
        committer(tmp_path).commit(job, staged, 600)
    monkeypatch.undo()
    committer(tmp_path).abort([job])
    assert texts(tmp_path, "new", 0) == expected("new", 0)
    check_log(tmp_path)


def test_put_if_absent_after_a_killed_writer_ignores_its_temporary_file(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path)
    assert directory.put_if_absent("0.json", b"first")
    assert not directory.put_if_absent("0.json", b"late")
    assert os.listdir(tmp_path) == ["0.json"]
    os.link(tmp_path / "0.json", tmp_path / "kafkalog.commits.tmp")  # killed between link and unlink
    assert directory.put_if_absent("1.json", b"second")
    assert everything(tmp_path) == {"0.json": b"first", "1.json": b"second"}
