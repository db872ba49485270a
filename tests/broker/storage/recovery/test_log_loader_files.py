from __future__ import annotations

import itertools
import shutil

import pytest

from kafkalog_broker.storage.recovery.startup_files import clean_up, next_offset_of, plan_startup
from tests.log.helpers.batch_builder import V2Record, batch


def name(offset, suffix):
    return f"{offset:020d}{suffix}"


def segment(offset, transient=""):
    return [name(offset, f"{suffix}{transient}") for suffix in (".log", ".index", ".timeindex")]


def planned(*listing, next_offsets=None):
    return plan_startup(list(listing), lambda file: (next_offsets or {})[int(file[:20])])


def test_loader_leaves_a_clean_directory_unchanged():
    plan = planned(*segment(0), *segment(7), name(7, ".snapshot"), "partition.metadata", "leader-epoch-checkpoint")
    assert (plan.removals, plan.renames) == ((), ())
    assert (plan.base_offsets, plan.snapshots, plan.complete) == ((0, 7), (7,), {0, 7})


def test_loader_removes_deleted_files_and_indexes_without_a_log():
    plan = planned(*segment(0, ".deleted"), *segment(7), name(3, ".index"), name(5, ".snapshot.deleted"), "notes.txt")
    assert set(plan.removals) == {*segment(0, ".deleted"), name(3, ".index"), name(5, ".snapshot.deleted")}
    assert plan.base_offsets == (7,)


def test_loader_removes_its_own_temporary_files_and_keeps_foreign_ones():
    plan = planned(
        *segment(0), "leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp", "partition.metadata.tmp", "a.tmp"
    )
    assert set(plan.removals) == {"leader-epoch-checkpoint.tmp", "partition.metadata.tmp"}


def test_segment_without_one_of_its_indexes_is_incomplete():
    assert planned(name(0, ".log"), name(0, ".index")).complete == set()
    assert planned(name(0, ".log"), name(0, ".timeindex")).complete == set()


def test_loader_removes_files_of_an_unfinished_cleaning_in_order():
    plan = planned(*segment(0), *segment(7), *segment(0, ".cleaned"), *segment(7, ".swap"))
    assert plan.removals == (*sorted(segment(7, ".swap")), *sorted(segment(0, ".cleaned")))
    assert plan.base_offsets == (0, 7)


def test_loader_replaces_segments_by_those_of_a_finished_cleaning():
    plan = planned(
        *segment(0), *segment(4), *segment(9), *segment(0, ".swap"), name(4, ".snapshot"), next_offsets={0: 9}
    )
    assert set(plan.removals) == {*segment(0), *segment(4)}
    assert sorted(plan.renames) == [(file, file.removesuffix(".swap")) for file in sorted(segment(0, ".swap"))]
    assert plan.renames[0][1] == name(0, ".log")
    assert plan.base_offsets == (0, 9)
    assert plan.snapshots == (4,)


def test_crash_at_any_step_of_loader_cleanup_gives_the_same_log(tmp_path):
    """Each step is one removal or rename; after each one, a new start lists the directory again."""
    data = {
        base: b"".join(batch(offset, [V2Record(offset, 1)]) for offset in range(base, end))
        for base, end in ((0, 4), (4, 9), (9, 12))
    }
    start = tmp_path / "start"
    start.mkdir()
    for base, content in data.items():
        for file in segment(base):
            (start / file).write_bytes(content if file.endswith(".log") else b"old")
    cleaned = batch(2, [V2Record(2, 1)]) + batch(8, [V2Record(8, 1)])
    for file in segment(0, ".swap"):
        (start / file).write_bytes(cleaned if ".log" in file else b"new")
    (start / name(20, ".log.cleaned")).write_bytes(b"")
    (start / name(30, ".log.swap")).write_bytes(b"")
    (start / name(1, ".log.deleted")).write_bytes(b"")

    def contents(directory):
        return {path.name: path.read_bytes() for path in directory.iterdir()}

    whole = tmp_path / "whole"
    shutil.copytree(start, whole)
    steps = clean_up(whole)
    assert contents(whole) == {
        **{file: cleaned if file.endswith(".log") else b"new" for file in segment(0)},
        **{file: data[9] if file.endswith(".log") else b"old" for file in segment(9)},
    }
    count = len(steps.removals) + len(steps.renames)
    for done in range(count + 1):
        crashed = tmp_path / f"crashed-{done}"
        shutil.copytree(start, crashed)
        for file in itertools.islice(steps.removals, done):
            (crashed / file).unlink()
        for old, new in steps.renames[: max(done - len(steps.removals), 0)]:
            (crashed / old).rename(crashed / new)
        assert clean_up(crashed).base_offsets == (0, 9)
        assert contents(crashed) == contents(whole)


@pytest.mark.parametrize("tail", [b"", b"torn", bytes(100)])
def test_next_offset_of_a_swap_log_is_read_from_its_batch_headers(tmp_path, tail):
    path = tmp_path / name(5, ".log.swap")
    path.write_bytes(tail)
    assert next_offset_of(path) == 5
    path.write_bytes(batch(5, [V2Record(5, 1)]) + batch(9, [V2Record(9, 1), V2Record(11, 1)]) + tail)
    assert next_offset_of(path) == 12
