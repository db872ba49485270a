"""The ends of live partitions, for the price of what has changed: counted in files opened and directories listed."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.source.live_logs import LiveLogs
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.watch import COARSE_NS
from tests.source.helpers.made_logs import append, delete_first_segment, delete_partition, numbers

PARTITIONS = 200


class Clock:
    """Ns; every look comes long after the one before, as the file systems' clocks go."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += COARSE_NS
        return self.now


def live(path: Path, **options: str) -> LiveLogs:
    return LiveLogs(parse_read_options({"path": str(path), "allTopics": "true", **options}, streaming=True), Clock())


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is opened or listed below os, by path."""
    seen: list[str] = []
    for name in ("open", "listdir"):
        original = getattr(os, name)

        def spy(path: Any, *args: Any, original: Any = original, **keywords: Any) -> Any:
            seen.append(str(path))
            return original(path, *args, **keywords)

        monkeypatch.setattr(os, name, spy)
    return seen


@pytest.fixture
def many(tmp_path: Path) -> Path:
    for partition in range(PARTITIONS):
        append(tmp_path, "t", partition, ["x"])
    return tmp_path


def test_unchanged_partitions_are_neither_listed_nor_opened(many: Path, touched: list[str]) -> None:
    logs = live(many)
    for _ in range(2):  # the second is the one that counts
        assert len(logs.look()) == PARTITIONS
    touched.clear()
    for _ in range(3):
        assert {log.readers_end for log in logs.look().values()} == {1}
    assert touched == []


@pytest.mark.local_only("counts what is opened")
def test_refresh_costs_only_what_has_changed(many: Path, touched: list[str]) -> None:
    logs = live(many)
    for _ in range(2):
        logs.look()
    append(many, "t", 7, numbers(0, 3))
    append(many, "t", 8, numbers(0, 3), roll_first=True)
    touched.clear()
    found = logs.look()
    assert found["t", 7].readers_end == found["t", 8].readers_end == 4
    assert {Path(path).relative_to(many).parts[0] for path in touched} == {"t-7", "t-8"}


@pytest.mark.local_only("counts what is opened")
def test_refresh_after_appends_does_not_read_the_offset_index(many: Path, touched: list[str]) -> None:
    logs = live(many)
    for _ in range(2):
        logs.look()
    append(many, "t", 7, numbers(0, 30), batch=1)
    touched.clear()
    assert logs.look()["t", 7].readers_end == 31
    opened = [Path(path).name for path in touched if Path(path).parent.name == "t-7"]
    assert opened == ["partition.metadata", f"{0:020d}.log"]


def test_refreshed_logs_equal_newly_opened_logs(tmp_path: Path) -> None:
    """Appends, rolls, retention, new and deleted topics at random; every look finds what a fresh listing finds."""
    chance = random.Random(11)
    append(tmp_path, "t", 0, ["x"])
    logs = live(tmp_path)
    for _ in range(150):
        for _ in range(chance.randint(0, 3)):
            topic, partition = chance.choice("tuv"), chance.randrange(3)
            directory = tmp_path / f"{topic}-{partition}"
            action = chance.random()
            if action < 0.7:
                append(tmp_path, topic, partition, ["x"] * chance.randint(1, 5), roll_first=chance.random() < 0.3)
            elif action < 0.9 and len(list(directory.glob("*.log"))) > 1:
                delete_first_segment(tmp_path, topic, partition)
            elif directory.exists() and directory.name != "t-0":
                delete_partition(tmp_path, topic, partition)
        found = {tp: (log.log_start, log.readers_end) for tp, log in logs.look().items()}
        dirs = LogDirs.open(tmp_path)
        fresh = {tp: location.open() for tp, location in dirs.locations.items()}
        assert found == {tp: (log.log_start_offset, log.log_end_offset) for tp, log in fresh.items()}


def test_changes_within_one_file_timestamp_are_seen(tmp_path: Path) -> None:
    """Two rolls within one tick of the file system's clock: the first look comes between them."""
    append(tmp_path, "t", 0, ["x"])
    logs = LiveLogs(parse_read_options({"path": str(tmp_path), "allTopics": "true"}, streaming=True), lambda: 0)
    logs.look()
    directory = tmp_path / "t-0"
    same = os.stat(directory).st_mtime_ns
    append(tmp_path, "t", 0, ["x"], roll_first=True)
    os.utime(directory, ns=(same, same))
    assert logs.look()["t", 0].readers_end == 2
    append(tmp_path, "t", 0, ["x"], roll_first=True)
    os.utime(directory, ns=(same, same))
    assert logs.look()["t", 0].readers_end == 3
