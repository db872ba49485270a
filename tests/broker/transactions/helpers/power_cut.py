"""What a disk holds after a power cut: for each log a prefix that the test chooses, and no clean-shutdown marker."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kafkalog_broker.storage.partition import local_log
from kafkalog_broker.storage.partition.log import Log
from tests.broker.api.helpers.broker_in_process import BrokerInProcess

Ends = Callable[[Log], int]  # offset at which a log ends after the power cut, where one of its batches begins or ends


def everything(log: Log) -> int:
    """Keep what is in the page cache."""
    return log.log_end_offset


def flushed_only(log: Log) -> int:
    """Keep what was fsynced, and nothing else."""
    return log.recovery_point


def cut(**ends: int) -> Ends:
    """Keep everything but in the logs that are named, as `orders_0`: they end at the offset."""
    return lambda log: ends.get(log.name.strip("_").replace("-", "_"), log.log_end_offset)


def disk_after_power_cut(running: BrokerInProcess, directory: Path, target: Path, keeps: Ends) -> Path:
    """Copy the log directory of a running broker to `target`, with each log cut back to the offset `keeps` says."""
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
    """Record ("append" or "flush", partition) of all logs in the order in which each ends."""
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
