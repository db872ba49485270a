"""A commit to a bucket is stopped, fails, or meets another writer at every single change that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import KafkalogError, WriteUnfinished
from kafkalog_spark.sink.bucket_directory import BucketDirectory
from kafkalog_spark.sink.commit import Committer
from kafkalog_spark.sink.committers import bucket_committer
from kafkalog_spark.sink.job_opening import recover
from tests.sink.helpers.written_buckets import OnStep, Place, StepBucket, kill_at, killed, stage, write
from tests.sink.helpers.written_logs import options, table
from tests.sink.test_commit import appended
from tests.store.s3_server import S3Server

COUNT = 12
SETTINGS: dict[str, Any] = {"numPartitions": 2, "segment_bytes": "500", "batch_size": "300"}
TOPICS = ("fresh", "new", "old")


EVERY = pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 7])
"""Each step of a write, or a sample: each seventh."""


def prepared(s3: S3Server, tmp_path: Path) -> Place:
    """Topic `old` with a sink's records in partition 0 and a broker's in 1; `fresh`, a broker's, with an empty active
    segment in partition 0."""
    place = Place.new(s3)
    source = tmp_path / "source"
    if not source.exists():
        appended(source / "old-1", 0, 4)
        appended(source / "fresh-0", 0, 3)
        appended(source / "fresh-1", 0, 1)
        for suffix in (".log", ".index", ".timeindex"):
            (source / "fresh-0" / f"00000000000000000003{suffix}").write_bytes(b"")
    first = table({"value": b"first %d" % n, "topic": "old", "partition": 0} for n in range(3))
    write(place.bucket(), first, numPartitions=2)
    place.put_directory(source)
    return place


def records(topic: str, mark: str = "ours") -> Any:
    return table(
        {"value": f"{mark} {topic} {n:03d} {'.' * 60}".encode(), "topic": topic, "partition": n % 2}
        for n in range(COUNT)
    )


def the_write(bucket: BucketDirectory, mark: str = "ours", query: str = "q") -> bool:
    """Micro-batch 3 of a query: several segments a partition, an existing topic, a broker's, a new one."""
    tasks = [records("old", mark), records("fresh", mark), records("new", mark), records("old", mark).slice(0, 1)]
    return write(bucket, *tasks, query=query, batch=3, **SETTINGS)


def expected(topic: str, partition: int, mark: str = "ours") -> list[str]:
    ours = [f"{mark} {topic} {n:03d} {'.' * 60}" for n in range(partition, COUNT, 2)]
    if topic == "old" and partition == 0:
        ours.append(ours[0])
    return ours


def before(topic: str, partition: int) -> list[str]:
    if topic == "new":
        return []
    if (topic, partition) == ("old", 0):
        return [f"first {n}" for n in range(3)]
    return [f"broker {n}" for n in range({("old", 1): 4, ("fresh", 0): 3, ("fresh", 1): 1}[topic, partition])]


def partitions() -> list[tuple[str, int]]:
    return [(topic, partition) for topic in TOPICS for partition in (0, 1)]


def check_whole(place: Place, scratch: Path) -> None:
    for topic, partition in partitions():
        found = place.texts(topic, partition)
        assert found == before(topic, partition) + expected(topic, partition), f"{topic}-{partition}"
    place.check(scratch)


def check_valid(place: Place) -> None:
    """What readers meet between a stop and the next write: of each partition a beginning of what is to come, whole
    segments of it, never less than there was."""
    for topic in place.dirs.topics:
        for partition in place.dirs.topics[topic]:
            found = place.texts(topic, partition)
            whole = before(topic, partition) + expected(topic, partition)
            assert found == whole[: len(found)]
            assert len(found) >= len(before(topic, partition))


def sample(steps: list[tuple[str, str]], every: int) -> list[int]:
    """Each `every`-th step, those around the commit, and the last."""
    names = [name for _, name in steps]
    commit = max(number for number, name in enumerate(names) if name.startswith("kafkalog.commits/0"))
    return sorted({*range(0, len(steps), every), commit - 1, commit, commit + 1, len(steps) - 1})


def steps_of(place: Place) -> list[tuple[str, str]]:
    bucket = place.bucket()
    the_write(bucket)
    return bucket.steps


@EVERY
def test_write_stopped_at_any_step_is_present_once_after_the_replay(s3: S3Server, tmp_path: Path, every: int) -> None:
    counted = prepared(s3, tmp_path)
    steps = steps_of(counted)
    check_whole(counted, tmp_path)
    assert len(steps) > 45
    decided = []
    for step in sample(steps, every):
        place = prepared(s3, tmp_path)
        with killed():
            the_write(place.bucket(kill_at(step)))
        check_valid(place)
        decided.append(not the_write(place.bucket()))
        if not decided[-1] or step == len(steps) - 1:
            remove_staged_of_the_dead(place)
        check_whole(place, tmp_path)
    first = decided.index(True)
    assert decided == [False] * first + [True] * (len(decided) - first), "one step decides"
    assert 5 // every < first < len(decided) - 1


def remove_staged_of_the_dead(place: Place) -> None:
    """What a writer staged that was stopped before its commit, or when all was done but that, stays for a week; that it
    is removed then is another test's matter."""
    place.bucket().delete(place.staged())


@EVERY
def test_completion_of_a_dead_writers_commit_may_be_stopped_at_any_step(
    s3: S3Server, tmp_path: Path, every: int
) -> None:
    named = steps_of(prepared(s3, tmp_path))
    logs = [number for number, (what, name) in enumerate(named) if what == "create" and name.endswith(".log")]
    half = kill_at(logs[len(logs) // 2])
    place = prepared(s3, tmp_path)
    with killed():
        the_write(place.bucket(half))
    whole = place.bucket()
    recover(bucket_committer(whole).target)
    check_whole(place, tmp_path)
    assert len(whole.steps) > 10
    for step in range(0, len(whole.steps), every):
        place = prepared(s3, tmp_path)
        with killed():
            the_write(place.bucket(half))
        with killed():
            recover(bucket_committer(place.bucket(kill_at(step))).target)
        check_valid(place)
        recover(bucket_committer(place.bucket()).target)
        if step == len(whole.steps) - 1:
            remove_staged_of_the_dead(place)
        check_whole(place, tmp_path)


def during(step: int, other: OnStep) -> OnStep:
    """Another writer's whole write, in the middle of ours, just before a step."""

    def on_step(number: int, what: str, name: str) -> None:
        if number == step:
            other(number, what, name)

    return on_step


@EVERY
@pytest.mark.parametrize("others_query", ["another", "q"])
def test_second_writer_between_any_two_steps_loses_and_duplicates_nothing(
    s3: S3Server, tmp_path: Path, others_query: str, every: int
) -> None:
    """Another query: both are there, whole, in the order of their commits. The same micro-batch, run twice at once: it
    is there once."""
    for step in sample(steps_of(prepared(s3, tmp_path)), every):
        place = prepared(s3, tmp_path)
        fresh: list[bool] = []

        def other(number: int, what: str, name: str, place: Place = place, fresh: list[bool] = fresh) -> None:
            fresh.append(the_write(place.bucket(), "theirs" if others_query != "q" else "ours", others_query))

        fresh.append(the_write(place.bucket(during(step, other))))
        if others_query == "q":
            assert sorted(fresh) == [False, True], step
            check_whole(place, tmp_path)
            continue
        assert fresh == [True, True], step
        for topic, partition in partitions():
            ours, theirs = expected(topic, partition), expected(topic, partition, "theirs")
            assert place.texts(topic, partition)[len(before(topic, partition)) :] in (ours + theirs, theirs + ours)
        place.check(tmp_path)


def test_two_writers_with_alternating_steps_both_commit(s3: S3Server, tmp_path: Path) -> None:
    """A third writer's small commit comes before each number that ours wants to put, several times."""
    place = prepared(s3, tmp_path)
    came: list[str] = []

    def first(number: int, what: str, name: str) -> None:
        if what == "create" and name.startswith("kafkalog.commits/") and len(came) < 8:
            came.append(name)
            write(place.bucket(), table([{"value": b"small", "topic": "small"}]))

    assert the_write(place.bucket(first))
    assert len(came) == 8
    assert place.texts("small") == ["small"] * 8
    for topic, partition in partitions():
        assert place.texts(topic, partition) == before(topic, partition) + expected(topic, partition)
    place.check(tmp_path)


def test_writer_that_always_loses_the_race_gives_up_and_leaves_nothing(s3: S3Server, tmp_path: Path) -> None:
    place = prepared(s3, tmp_path)

    def first(number: int, what: str, name: str) -> None:
        if what == "create" and name.startswith("kafkalog.commits/"):
            write(place.bucket(), table([{"value": b"small", "topic": "small"}]))

    bucket = place.bucket(first)
    committer = bucket_committer(bucket, tries=3)
    staged = stage(bucket, "ab" * 16, records("old"), **SETTINGS)
    with pytest.raises(
        KafkalogError, match=r"other sinks committed 3 times while this sink tried to commit.*nothing was"
    ):
        committer.commit("ab" * 16, staged, 500)
    bucket_committer(place.bucket()).abort(["ab" * 16])
    assert place.texts("old", 1) == before("old", 1)
    place.check(tmp_path)


def failing_from(at: int, until: str) -> OnStep:
    def on_step(number: int, what: str, name: str) -> None:
        if number >= at and what != until:
            raise OSError(5, "the store is overloaded or failing (status 503)", name)

    return on_step


@EVERY
def test_error_at_any_step_leaves_nothing_or_reports_a_decided_write(s3: S3Server, tmp_path: Path, every: int) -> None:
    """The store fails, and then works again: what Spark does is commit, and abort when that fails."""
    job = "cd" * 16
    place = prepared(s3, tmp_path)
    bucket = place.bucket()
    staged = stage(bucket, job, records("old"), records("fresh"), records("new"), **SETTINGS)
    begun = len(bucket.steps)
    bucket_committer(bucket).commit(job, staged, 500, "q", 3)
    outcomes = []
    for step in sample(bucket.steps[begun:], every):
        place = prepared(s3, tmp_path)
        logs = set(place.names())
        staged = stage(place.bucket(), job, records("old"), records("fresh"), records("new"), **SETTINGS)
        outcomes.append(outcome(bucket_committer(place.bucket(failing_from(step, "none"))), job, staged))
        bucket_committer(place.bucket()).abort([job])
        if outcomes[-1] in ("nothing", "not known"):
            left = set(place.names()) - logs
            assert {name for name in left if not name.startswith("kafkalog.commits/")} == set()
            assert place.texts("old", 0) == before("old", 0)
        else:
            assert place.texts("new", 0) == expected("new", 0)
            assert len(place.rows()) == 11 + 3 * COUNT
            bucket_committer(place.bucket()).commit("ef" * 16, [], 500, "other", 0)
        place.check(tmp_path)
    assert set(outcomes) - {"not known"} == {"nothing", "decided", "complete"}
    assert outcomes.count("not known") == 1, "where the commit is put, and nothing else answers either"


def outcome(committer: Committer, job: str, staged: Any) -> str:
    try:
        committer.commit(job, staged, options(Path("/"), **SETTINGS).segment_bytes, "q", 3)
    except WriteUnfinished as error:
        return "not known" if "the commit may exist or not" in str(error) else "decided"
    except KafkalogError as error:
        return "nothing" if "overloaded or failing" in str(error) else str(error)
    return "complete"


@pytest.mark.parametrize("arrives", [True, False])
def test_unknown_outcome_of_a_commit_is_resolved_later(s3: S3Server, tmp_path: Path, arrives: bool) -> None:
    """The store stops answering at the commit, which it has taken or not."""
    job = "cd" * 16
    place = prepared(s3, tmp_path)
    staged = stage(place.bucket(), job, records("old"), records("fresh"), records("new"), **SETTINGS)

    def fails(number: int, what: str, name: str) -> None:
        if not name.endswith("00000000000000000001.json") and not gone:
            return
        if arrives and not gone:
            BucketDirectory.put_if_absent(place.bucket(), name, sent[-1])
        gone.append(name)
        raise OSError(110, "did not answer in time", name)

    class Sending(StepBucket):
        def put_if_absent(self, name: str, data: Any) -> bool:
            sent.append(bytes(data))
            return super().put_if_absent(name, data)

    gone: list[str] = []
    sent: list[bytes] = []
    failing = Sending(place.root, place.bucket().store, on_step=fails)
    with pytest.raises(WriteUnfinished, match=r"the commit may exist or not: did not answer in time.*check the log"):
        bucket_committer(failing).commit(job, staged, 500, "q", 3)
    bucket_committer(place.bucket()).abort([job])
    assert bucket_committer(place.bucket()).commit("ef" * 16, [], 500, "q", 3) != arrives
    assert len(place.rows()) == 11 + 3 * COUNT * arrives
    place.check(tmp_path)


def test_commit_steps_have_the_documented_order(s3: S3Server, tmp_path: Path) -> None:
    """Pieces, the proof of the condition, the commit, then what it says, the .log of each segment last."""
    named = steps_of(prepared(s3, tmp_path))
    words = [what for what, _ in named]
    commit = next(number for number, (what, name) in enumerate(named) if name.endswith("00000000000000000001.json"))
    assert {name.partition("/")[0] for _, name in named[: commit - 1]} == {"kafkalog.staged"}
    assert named[commit - 1] == ("create", "kafkalog.commits/00000000000000000000.json")
    assert named[-2:] == [("put", "kafkalog.commits/done"), ("delete", named[-1][1])]
    assert words[commit + 1 : commit + 3] == ["create", "create"]
    new = [name for _, name in named if name.startswith("new-1/0") and "0000.log" in name]
    assert new == ["new-1/00000000000000000000.log"]
    own = [name.rpartition("/")[2] for _, name in named if name.startswith("old-1/0")]
    assert own == sorted(own, key=lambda name: (name[:20], [".index", ".timeindex", ".log"].index(name[20:])))
    assert StepBucket.before_change is not BucketDirectory.before_change
