"""The disk model, by states that are written out by hand."""

from __future__ import annotations

import random

import pytest

from tests.crash_states.disk import (
    Choice,
    Event,
    Link,
    Rename,
    StateKind,
    SyncBegin,
    SyncEnd,
    Trace,
    Tree,
    Truncate,
    Unlink,
    Write,
    build_tree,
    choose,
    unsafe_operations,
)

ROOT, FILE, OTHER, DIRECTORY = 1, 2, 3, 4


def tree_of(*events: Event, kind: StateKind, seed: int = 0, point: int | None = None) -> Tree:
    """The state below the root at `point`, by default after all events."""
    trace = Trace({"d": ROOT}, frozenset({ROOT, DIRECTORY}), events)
    at = len(events) if point is None else point
    tree = build_tree(trace, at, choose(events, at, kind, random.Random(seed)))
    return {path.removeprefix("d/"): content for path, content in tree.items() if path != "d"}


def sync(inode: int, call: int) -> tuple[Event, Event]:
    return SyncBegin(inode, call), SyncEnd(inode, call)


def test_state_nothing_without_any_fsync_is_empty() -> None:
    assert tree_of(Link(ROOT, "a", FILE), Write(FILE, 0, b"abc"), kind=StateKind.NOTHING) == {}


def test_state_nothing_with_only_the_file_synced_lacks_the_name() -> None:
    events = (Link(ROOT, "a", FILE), Write(FILE, 0, b"abc"), *sync(FILE, 1))
    assert tree_of(*events, kind=StateKind.NOTHING) == {}


def test_state_nothing_with_only_the_directory_synced_has_an_empty_file() -> None:
    events = (Link(ROOT, "a", FILE), Write(FILE, 0, b"abc"), *sync(ROOT, 1))
    assert tree_of(*events, kind=StateKind.NOTHING) == {"a": b""}


def test_state_nothing_with_both_synced_has_the_file() -> None:
    events = (Link(ROOT, "a", FILE), Write(FILE, 0, b"abc"), *sync(FILE, 1), *sync(ROOT, 2))
    assert tree_of(*events, kind=StateKind.NOTHING) == {"a": b"abc"}


def test_state_nothing_with_a_file_in_a_new_directory_needs_the_parents_fsync() -> None:
    events = (Link(ROOT, "x", DIRECTORY), Link(DIRECTORY, "a", FILE), *sync(DIRECTORY, 1))
    assert tree_of(*events, kind=StateKind.NOTHING) == {}
    assert tree_of(*events, *sync(ROOT, 2), kind=StateKind.NOTHING) == {"x": None, "x/a": b""}


def test_fsync_covers_only_writes_before_it_began() -> None:
    events = (
        Link(ROOT, "a", FILE), *sync(ROOT, 1), Write(FILE, 0, b"one"), SyncBegin(FILE, 2), Write(FILE, 3, b"two"),
        SyncEnd(FILE, 2),
    )  # fmt: skip
    assert tree_of(*events, kind=StateKind.NOTHING) == {"a": b"one"}


def test_fsync_counts_only_when_it_has_returned() -> None:
    events = (Link(ROOT, "a", FILE), *sync(ROOT, 1), Write(FILE, 0, b"one"), *sync(FILE, 2))
    assert tree_of(*events, kind=StateKind.NOTHING, point=len(events) - 1) == {"a": b""}


def test_overlapping_fsyncs_the_later_begin_counts() -> None:
    events = (
        Link(ROOT, "a", FILE), *sync(ROOT, 1), SyncBegin(FILE, 2), Write(FILE, 0, b"one"), SyncBegin(FILE, 3),
        SyncEnd(FILE, 3), SyncEnd(FILE, 2),
    )  # fmt: skip
    assert tree_of(*events, kind=StateKind.NOTHING) == {"a": b"one"}


def test_rename_without_fsync_of_the_directory_is_the_old_file_or_the_new_one() -> None:
    events = (
        Link(ROOT, "a", FILE), Write(FILE, 0, b"old"), *sync(FILE, 1), *sync(ROOT, 2),
        Link(ROOT, "a.tmp", OTHER), Write(OTHER, 0, b"new"), *sync(OTHER, 3), Rename(ROOT, "a.tmp", ROOT, "a", OTHER),
    )  # fmt: skip
    assert tree_of(*events, kind=StateKind.NOTHING) == {"a": b"old"}
    assert tree_of(*events, kind=StateKind.EVERYTHING) == {"a": b"new"}
    assert tree_of(*events, *sync(ROOT, 4), kind=StateKind.NOTHING) == {"a": b"new"}
    for seed in range(50):
        state = tree_of(*events, kind=StateKind.RANDOM, seed=seed)
        assert state in ({"a": b"old"}, {"a": b"old", "a.tmp": b"new"}, {"a": b"new"})


def test_rename_of_a_file_that_was_not_synced_may_leave_an_empty_one() -> None:
    events = (
        Link(ROOT, "a", FILE), Write(FILE, 0, b"old"), *sync(FILE, 1), *sync(ROOT, 2),
        Link(ROOT, "a.tmp", OTHER), Write(OTHER, 0, b"new"), Rename(ROOT, "a.tmp", ROOT, "a", OTHER),
    )  # fmt: skip
    assert tree_of(*events, kind=StateKind.NAMES) == {"a": b""}
    assert tree_of(*events, kind=StateKind.ZEROS) == {"a": b"\0\0\0"}


def test_unlink_without_fsync_may_come_back() -> None:
    events = (Link(ROOT, "a", FILE), *sync(ROOT, 1), Unlink(ROOT, "a"))
    assert tree_of(*events, kind=StateKind.NOTHING) == {"a": b""}
    assert tree_of(*events, *sync(ROOT, 2), kind=StateKind.NOTHING) == {}


def test_name_that_was_used_again_never_loses_the_file_that_was_renamed_away() -> None:
    events = (Link(ROOT, "a", FILE), *sync(ROOT, 1), Rename(ROOT, "a", ROOT, "b", FILE), Link(ROOT, "a", OTHER))
    states = [tree_of(*events, kind=StateKind.RANDOM, seed=seed) for seed in range(100)]
    assert {tuple(sorted(state)) for state in states} == {("a",), ("b",), ("a", "b")}


def test_renamed_directory_keeps_its_files() -> None:
    events = (
        Link(ROOT, "x", DIRECTORY), Link(DIRECTORY, "a", FILE), *sync(DIRECTORY, 1), *sync(ROOT, 2),
        Rename(ROOT, "x", ROOT, "x-delete", DIRECTORY),
    )  # fmt: skip
    assert tree_of(*events, kind=StateKind.NOTHING) == {"x": None, "x/a": b""}
    assert tree_of(*events, kind=StateKind.NAMES) == {"x-delete": None, "x-delete/a": b""}


def test_absent_write_before_a_present_one_leaves_a_hole() -> None:
    events = (Link(ROOT, "a", FILE), *sync(ROOT, 1), Write(FILE, 0, b"one"), Write(FILE, 3, b"two"))
    trace = Trace({"d": ROOT}, frozenset({ROOT}), events)
    assert build_tree(trace, len(events), Choice(frozenset({4}))) == {"d": None, "d/a": b"\0\0\0two"}


def test_truncate_without_fsync_may_be_absent() -> None:
    events = (Link(ROOT, "a", FILE), Write(FILE, 0, b"abcdef"), *sync(FILE, 1), *sync(ROOT, 2), Truncate(FILE, 2))
    assert tree_of(*events, kind=StateKind.NOTHING) == {"a": b"abcdef"}
    assert tree_of(*events, kind=StateKind.EVERYTHING) == {"a": b"ab"}


def test_truncate_to_a_larger_size_adds_zeros() -> None:
    events = (Link(ROOT, "a", FILE), Write(FILE, 0, b"ab"), Truncate(FILE, 4))
    assert tree_of(*events, kind=StateKind.EVERYTHING) == {"a": b"ab\0\0"}


def test_state_prefix_keeps_the_order_and_tears_the_last_write() -> None:
    events = (Link(ROOT, "a", FILE), *sync(ROOT, 1), Write(FILE, 0, b"one"), Write(FILE, 3, b"two"))
    states = [tree_of(*events, kind=StateKind.PREFIX, seed=seed)["a"] for seed in range(200)]
    assert set(states) == {b"", b"o", b"on", b"one", b"onet", b"onetw", b"onetwo"}


def test_torn_write_over_sectors_loses_any_of_them() -> None:
    data = b"x" * 512 + b"y" * 512
    events = (Link(ROOT, "a", FILE), *sync(ROOT, 1), Write(FILE, 0, data))
    states = {tree_of(*events, kind=StateKind.PREFIX, seed=seed)["a"] for seed in range(400)}
    assert {b"", data, data[:512], bytes(512) + b"y" * 512} <= states


def test_state_files_has_all_or_nothing_of_a_file() -> None:
    events = (
        Link(ROOT, "a", FILE), Link(ROOT, "b", OTHER), *sync(ROOT, 1), Write(FILE, 0, b"one"), Write(FILE, 3, b"two"),
        Write(OTHER, 0, b"three"),
    )  # fmt: skip
    states = [tree_of(*events, kind=StateKind.FILES, seed=seed) for seed in range(200)]
    assert {(state["a"], state["b"]) for state in states} == {
        (b"", b""), (b"onetwo", b""), (b"", b"three"), (b"onetwo", b"three"),
    }  # fmt: skip


def test_initial_content_is_safe() -> None:
    trace = Trace({"d": ROOT}, frozenset({ROOT}), (Write(FILE, 0, b"X"),), {FILE: b"abc"}, {ROOT: {"a": FILE}})
    assert build_tree(trace, 1, Choice(frozenset())) == {"d": None, "d/a": b"abc"}
    assert build_tree(trace, 1) == {"d": None, "d/a": b"Xbc"}


@pytest.mark.parametrize("point", range(7))
def test_unsafe_operations_at_each_point(point: int) -> None:
    events = (
        Link(ROOT, "a", FILE), Write(FILE, 0, b"one"), SyncBegin(FILE, 1), SyncEnd(FILE, 1), SyncBegin(ROOT, 2),
        SyncEnd(ROOT, 2),
    )  # fmt: skip
    assert unsafe_operations(events, point) == [[], [0], [0, 1], [0, 1], [0], [0], []][point]
