"""The checks of a state see what a disk loses that ignores an fsync."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tests.crash_states import workloads as _workloads  # noqa: F401 - registers them
from tests.crash_states.disk import Event, Link, Send, StateKind, SyncBegin, SyncEnd
from tests.crash_states.state_check import check_state
from tests.crash_states.world import WORKLOADS, Mode, Run, record


def without_syncs(run: Run, is_lost: Callable[[int], bool]) -> Run:
    """The run on a disk that says yes to an fsync of some inodes and does nothing. Points stay as they are."""
    nothing = Send(0, 0)
    events: list[Event] = [
        nothing if isinstance(event, SyncBegin | SyncEnd) and is_lost(event.inode) else event
        for event in run.trace.events
    ]
    return dataclasses.replace(run, trace=dataclasses.replace(run.trace, events=events))


def test_search_on_a_disk_that_ignores_fsync_of_logs_finds_lost_records_and_offsets() -> None:
    run = record(WORKLOADS["groups"], Mode.STRICT, seed=3)
    logs = {event.inode for event in run.trace.events if isinstance(event, Link) and event.name.endswith(".log")}
    found = set()
    for point in (len(run.trace.events) // 2, len(run.trace.events)):
        lost = without_syncs(run, logs.__contains__)
        found |= {anomaly.kind for anomaly in check_state(lost, point, StateKind.NOTHING, 1)}
    assert {"record-lost", "offset-wrong"} <= found


def test_search_on_a_disk_that_ignores_fsync_of_directories_finds_lost_topics() -> None:
    run = record(WORKLOADS["administration"], Mode.STRICT, seed=3)
    lost = without_syncs(run, lambda inode: inode in run.trace.directories)
    found = {anomaly.kind for anomaly in check_state(lost, len(run.trace.events) // 2, StateKind.NOTHING, 1)}
    assert "topic-wrong" in found
