"""The table `segments`: what Kafka's manifests say of golden directories; damage is counted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.log.log_dir import LogDirs
from tests.golden_data import KAFKA_2_8, KAFKA_4_3, data_dir, golden_logs
from tests.log.tables.test_batches import moment


def table(root: Path, topic: str | None = None, **asked: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = LogDirs.open(root).table("segments", topic, **asked).read_all().to_pylist()
    return rows


@pytest.mark.local_only("it names local paths")
@pytest.mark.parametrize(("release", "crashed"), [(KAFKA_4_3, False), (KAFKA_4_3, True), (KAFKA_2_8, False)])
def test_segments_equal_kafkas_manifests(release: str, crashed: bool) -> None:
    rows = {row["file"]: row for row in table(data_dir(release, crashed=crashed)) if row["state"] == "live"}
    for log in golden_logs(release, crashed=crashed):
        paths = log.segments()
        for path in paths:
            row, batches = rows[str(path)], log.batches(path)
            assert (row["size"], row["batches"]) == (path.stat().st_size, len(batches))
            assert row["closed"] == (path != paths[-1])
            assert row["damaged_bytes"] == 0
            assert row["error"] is None
            assert row["offset_index_wrong"] == row["time_index_wrong"] == 0, path
            if batches:
                assert row["end_offset"] == batches[-1].last_offset + 1
                assert row["max_timestamp"] == moment(max(batch.timestamp for batch in batches))
            if all(batch.count is not None for batch in batches):
                assert row["records"] == sum(batch.count or 0 for batch in batches)
            assert (row["aborted_transactions"] is not None) == path.with_suffix(".txnindex").exists()
            assert row["has_snapshot"] == path.with_suffix(".snapshot").exists()
            if not crashed:
                assert row["offset_index_entries"] == path.with_suffix(".index").stat().st_size // 8


@pytest.mark.local_only("it names local paths")
def test_files_marked_for_deletion_are_rows_without_contents() -> None:
    rows = [row for row in table(data_dir(KAFKA_2_8)) if row["state"] != "live"]
    files = sorted(str(path) for path in data_dir(KAFKA_2_8).glob("*/*.log.*"))
    assert sorted(row["file"] for row in rows) == files != []
    assert {(row["state"], row["batches"], row["end_offset"]) for row in rows} == {("deleted", None, None)}


def test_damage_is_counted_in_bytes_and_wrong_entries(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, "segments-0")
    path = root / "segments-0" / "00000000000000000600.log"
    batch = next(log for log in golden_logs(KAFKA_4_3, "segments") if log.partition == 0).batches(path)[1]
    data = bytearray(path.read_bytes())
    data[batch.position + 70] ^= 1
    path.write_bytes(data)
    index = root / "segments-0" / "00000000000000001200.index"
    entries = bytearray(index.read_bytes())
    entries[7] ^= 1
    index.write_bytes(entries)
    rows = {row["segment"]: row for row in table(root, "segments")}
    assert rows[600]["damaged_bytes"] == batch.size
    assert rows[600]["error"].startswith("CRC-32C does not match")
    assert (rows[600]["batches"], rows[1200]["offset_index_wrong"]) == (rows[1200]["batches"] - 1, 1)
    assert rows[0]["offset_index_wrong"] == rows[600]["offset_index_wrong"] == 0


def test_segment_without_indexes_is_marked(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, "codec-none-0")
    for suffix in ("index", "timeindex"):
        (path,) = (root / "codec-none-0").glob(f"*.{suffix}")
        path.unlink()
    (row,) = table(root, "codec-none")
    assert row["offset_index_entries"] is row["offset_index_wrong"] is row["time_index_entries"] is None


def test_swap_file_replaces_its_segments(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, "segments-0")
    old = root / "segments-0" / "00000000000000000000.log"
    shutil.copyfile(old, old.with_suffix(".log.swap"))
    states = {row["file"].rpartition("/")[2]: row["state"] for row in table(root, "segments") if row["segment"] == 0}
    assert states == {"00000000000000000000.log.swap": "live", "00000000000000000000.log": "deleted"}
