"""Start and shutdown without free file descriptors: no file counts as damaged or lost."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog_broker.storage import log_directories
from kafkalog_broker.storage.log_directories import LogDirectories
from kafkalog_spark.errors import KafkalogError
from tests.broker.storage.helpers import managed_logs
from tests.broker.storage.helpers.managed_logs import content, killed, started


@contextlib.contextmanager
def no_descriptor_for(name: str) -> Iterator[None]:
    """Make every open of a file with this name fail with EMFILE."""
    open_file = os.open

    def refuse(path: str | Path, *arguments: int, **named: int) -> int:
        if Path(path).name == name:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return open_file(path, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", refuse)
        yield


@pytest.fixture
def opened_dirs(monkeypatch: pytest.MonkeyPatch) -> list[LogDirectories]:
    """Log directories opened by all starts, including failed ones."""
    found: list[LogDirectories] = []

    def open_log_dirs(*arguments: object) -> LogDirectories:
        found.append(log_directories.open_log_dirs(*arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(managed_logs, "open_log_dirs", open_log_dirs)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "meta.properties", "recovery-point-offset-checkpoint", "kafkalog.topics.json", "partition.metadata",
        f"{0:020d}.log",
    ],
)  # fmt: skip
def test_start_without_file_descriptors_fails_and_leaves_log_directories_unchanged(
    tmp_path: Path, name: str, opened_dirs: list[LogDirectories]
) -> None:
    running = started(tmp_path / "a", tmp_path / "b")
    running.create("orders", 2)
    for partition in range(2):
        running.append(partition=partition)
    running.tick(600_000)  # checkpoints
    before = [content(running, partition=partition) for partition in range(2)]
    crashed = [killed(tmp_path / each, tmp_path / f"{each}-crashed") for each in ("a", "b")]
    running.logs.shutdown()
    opened_dirs.clear()
    with no_descriptor_for(name), pytest.raises((OSError, KafkalogError), match="Too many open files"):
        started(*crashed)
    for dirs in opened_dirs:
        assert len(dirs.online) == 2
        dirs.close()
    again = started(*crashed)
    assert [content(again, partition=partition) for partition in range(2)] == before
    again.logs.shutdown()


def test_shutdown_without_file_descriptors_writes_no_marker_and_closes_log_directories(tmp_path: Path) -> None:
    running = started(tmp_path)
    running.create("orders")
    running.append()
    with no_descriptor_for(".kafka_cleanshutdown.tmp"):
        running.logs.shutdown()
    assert running.dirs.online
    assert running.logs.to_recover == [tmp_path]
    again = started(tmp_path)
    assert again.log().log_end_offset == 1
    again.logs.shutdown()
