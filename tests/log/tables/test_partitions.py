"""The table `partitions` against what Kafka's consumers and tools said of the golden directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.format.checkpoint import read_leader_epochs, read_offset_checkpoint
from kafkalog_spark.log.log_dir import LogDirs
from tests.golden_data import KAFKA_2_8, KAFKA_4_3, data_dir, golden_logs


def table(root: Path, topic: str | None = None, **asked: Any) -> dict[tuple[str, int], dict[str, Any]]:
    rows = LogDirs.open(root).table("partitions", topic, **asked).read_all().to_pylist()
    return {(row["topic"], row["partition"]): row for row in rows}


@pytest.mark.local_only("it names local paths")
@pytest.mark.parametrize(("release", "crashed"), [(KAFKA_4_3, False), (KAFKA_4_3, True), (KAFKA_2_8, False)])
def test_partition_start_and_end_offsets_equal_kafkas(release: str, crashed: bool) -> None:
    root = data_dir(release, crashed=crashed)
    rows = table(root)
    marks = read_offset_checkpoint(root / "replication-offset-checkpoint")
    recovered = read_offset_checkpoint(root / "recovery-point-offset-checkpoint")
    for log in golden_logs(release, crashed=crashed):
        row = rows[log.topic, log.partition]
        assert (row["log_start_offset"], row["log_end_offset"]) == (log.log_start_offset, log.high_watermark), log
        assert (row["segments"], row["size"]) == (len(log.segments()), sum(p.stat().st_size for p in log.segments()))
        assert row["high_watermark"] == marks.get((log.topic, log.partition))
        assert row["recovery_point"] == recovered.get((log.topic, log.partition))
        assert row["clean_shutdown"] == (root / ".kafka_cleanshutdown").exists()
        assert row["directory"] == str(log.directory)
        assert row["error"] is None
        epochs = [(entry["epoch"], entry["start_offset"]) for entry in row["leader_epochs"]]
        assert epochs == read_leader_epochs(log.directory / "leader-epoch-checkpoint")
        metadata = log.directory / "partition.metadata"
        assert row["topic_id"] == (metadata.read_text().split()[-1] if metadata.exists() else None)


def test_damaged_partition_has_an_error_and_ends_before_the_damage(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, "codec-none-0")
    (log,) = golden_logs(KAFKA_4_3, "codec-none", crashed=False)
    (path,) = (root / "codec-none-0").glob("*.log")
    data = bytearray(path.read_bytes())
    last = log.batches(log.segments()[0])[-1]
    data[last.position + 70] ^= 1
    path.write_bytes(data)
    row = table(root, "codec-none")["codec-none", 0]
    assert row["log_end_offset"] == last.base_offset
    assert row["last_stable_offset"] is None
    assert "CRC-32C does not match" in row["error"]
