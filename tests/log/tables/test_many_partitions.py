"""What a query costs in a log directory of many partitions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kafkalog_spark.format.checkpoint import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.format.names import CLEAN_SHUTDOWN_FILE, segment_name
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.repair.repair_log_dir import repair_log_dirs
from kafkalog_spark.store.local_store import LocalStore
from tests.log.helpers.batch_builder import V2Record, batch
from tests.log.helpers.damaged_log import TIME

pytestmark = pytest.mark.local_only("it counts reads of local files")

PARTITIONS = 30


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for number in range(PARTITIONS):
        directory = root / f"orders-{number}"
        directory.mkdir(parents=True)
        (directory / f"{segment_name(0)}.log").write_bytes(batch(0, [V2Record(0, TIME, b"k", b"v")]))
    lines = "".join(f"orders {number} 1\n" for number in range(PARTITIONS))
    for name in (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        (root / name).write_text(f"0\n{PARTITIONS}\n{lines}")
    (root / CLEAN_SHUTDOWN_FILE).touch()
    return root


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Listings and whole reads, by path."""
    counted: Counter[str] = Counter()
    for name in ("list", "read_all"):
        real = getattr(LocalStore, name)

        def use(self: LocalStore, path: str, *rest: object, real: object = real) -> object:
            counted[path] += 1
            return real(self, path, *rest)  # type: ignore[operator]

        monkeypatch.setattr(LocalStore, name, use)
    return counted


@pytest.mark.parametrize("table", ["partitions", "findings", "segments", "batches"])
def test_table_of_many_partitions_reads_the_files_of_the_log_directory_a_few_times(
    table: str, log_dir: Path, uses: Counter[str]
) -> None:
    rows = LogDirs.open(log_dir).table(table).read_all()
    assert table == "findings" or rows.num_rows == PARTITIONS
    if table == "partitions":
        assert set(rows["high_watermark"].to_pylist()) == {1}
        assert set(rows["clean_shutdown"].to_pylist()) == {True}
    of_log_dir = [count for path, count in uses.items() if path == str(log_dir) or Path(path).parent == log_dir]
    assert max(of_log_dir) < 6


def test_repair_of_many_partitions_reads_each_checkpoint_a_few_times(
    log_dir: Path, tmp_path: Path, uses: Counter[str]
) -> None:
    assert repair_log_dirs([log_dir], tmp_path / "new").is_whole
    checkpoints = (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)
    assert [uses[str(log_dir / name)] for name in checkpoints] == [1, 1]
