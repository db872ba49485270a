"""The table `findings` holds what kafkalog-check reports, whoever looks at which partition."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.log_dir import LogDirs
from tests.golden_data import KAFKA_2_8, KAFKA_4_3, data_dir


def table(*roots: Path, topic: str | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = LogDirs.open(roots).table("findings", topic).read_all().to_pylist()
    return rows


def reported(root: Path) -> list[tuple[Any, ...]]:
    """What the check says, by path and place."""
    return sorted(
        (f.severity.value, f.path, str(f.topic_partition), str(f.fault)) for f in check_log_dirs([root]).findings.kept
    )


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    from kafkalog_spark.log.check.finding import Fault

    return sorted(
        (
            row["severity"],
            row["path"],
            "None" if row["topic"] is None else f"{row['topic']}-{row['partition']}",
            str(Fault(row["what"], row["position"], row["offset"], row["expected"], row["got"])),
        )
        for row in rows
    )


@pytest.mark.parametrize("release", [KAFKA_4_3, KAFKA_2_8])
def test_findings_of_a_golden_directory_equal_the_check(release: str) -> None:
    root = data_dir(release)
    assert shown(table(root)) == reported(root)


def test_findings_of_a_damaged_directory_equal_the_check(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, crashed=False)
    numbers = random.Random(4)
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    for path in numbers.sample(files, 25):
        data = bytearray(path.read_bytes())
        data[numbers.randrange(len(data))] ^= numbers.randrange(1, 256)
        path.write_bytes(data)
    (root / "no-partition").mkdir()
    (root / "stray.txt").write_text("x")
    found = shown(table(root))
    assert found == reported(root)
    assert len(found) > 10


@pytest.mark.local_only("it names local paths")
def test_findings_of_one_topic_read_only_its_partitions(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, crashed=False)
    (root / "no-partition").mkdir()
    (path, *_) = sorted((root / "segments-1").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1])
    rows = table(root, topic="segments")
    assert {(row["topic"], row["partition"]) for row in rows} == {("segments", 1)}
    assert {row["path"] for row in rows} == {str(path)}
