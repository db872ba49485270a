"""Simulates a power cut: each log keeps a prefix that the test chooses, and there is no clean-shutdown marker."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kafkalog_broker.storage.partition import local_log
from kafkalog_broker.storage.partition.log import Log
from tests.broker.api.helpers.broker_in_process import BrokerInProcess

Ends = Callable[[Log], int]  # returns the end offset of a log after the power cut; a boundary of its batches


def everything(log: Log) -> int:
    """Keep all records, also those in the page cache."""
    return log.log_end_offset


def flushed_only(log: Log) -> int:
    """Keep only records that were flushed."""
    return log.recovery_point


def cut(**ends: int) -> Ends:
    """Keep all records, except that the named logs (`orders_0`) end at the given offset."""
    return lambda log: ends.get(log.name.strip("_").replace("-", "_"), log.log_end_offset)


def disk_after_power_cut(running: BrokerInProcess, directory: Path, target: Path, keeps: Ends) -> Path:
    """Copy the log directory of a running broker to `target`, each log truncated to the offset that `keeps` returns."""
    with ExitStack() as held:
        for log in running.broker.logs.logs():  # a flush in the background writes, and renames, files
            held.enter_context(log.local.flush_lock)
        shutil.copytree(directory, target, ignore=shutil.ignore_patterns(".lock"))
    for log in running.broker.logs.logs():
        end = keeps(log)
        for segment in log.segments:
            path = target / log.name / Path(segment.log_path).name
            if segment.base_offset >= end > log.log_start_offset:
                path.unlink()
            elif segment.next_offset > end:
                bounds = segment.locate(end)
                with open(path, "r+b") as file:
                    file.truncate(segment.size if bounds is None else bounds.position)
    return target


@contextmanager
def steps(patch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """Record ("append" or "flush", partition) for all logs, in the order in which the calls return."""
    found: list[tuple[str, str]] = []

    def recorded(what: str) -> None:
        original = getattr(local_log.LocalLog, what)

        def call(log, *arguments, **named):  # type: ignore[no-untyped-def]
            result = original(log, *arguments, **named)
            found.append((what, log.directory.name))
            return result

        patch.setattr(local_log.LocalLog, what, call)

    recorded("append")
    recorded("flush")
    yield found
