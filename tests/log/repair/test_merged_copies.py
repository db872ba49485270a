"""Copies of a partition as one log: each offset once, what is damaged in one taken from another, by leader epochs."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import CorruptBatch, OptionError
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.repair.repair_log_dir import repair_log_dirs
from kafkalog_spark.source.option_parsing import parse_read_options
from tests.golden_data import KAFKA_4_3, golden_logs
from tests.log.helpers.damaged_copies import broken, broker, data
from tests.log.helpers.damaged_log import NAME, TOPIC, log_path, patched
from tests.log.helpers.random_damage import LOGS, copied, damage, undamaged
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows
from tests.source.helpers.driver import Load, read

pytestmark = pytest.mark.local_only("it writes to its source")


def merged(*roots: Path, **options: Any) -> list[dict[str, Any]]:
    return plain_rows(LogDirs.open(roots).scan(columns=ALL_COLUMNS, replicas="merge", **options))


def merge_damaged(seed: int, work: Path) -> None:
    """Three copies, each damaged somewhere: what is whole in one of them is read, and is in their repair."""
    numbers = random.Random(seed)
    log = numbers.choice(LOGS)
    roots = [work / f"broker-{n}" for n in range(3)]
    harmed = [damage(log, copied(log, root), numbers) for root in roots]
    said = {row["offset"]: {name: row[name] for name in ALL_COLUMNS} for row in log.records()}
    whole: set[int] = set()
    for root, (path, positions) in zip(roots, harmed, strict=True):
        start = LogDirs.open(root).partition(log.topic, log.partition).log_start_offset
        for one in undamaged(log, path, positions):
            whole.update(range(max(one.base_offset, start), one.last_offset + 1))
    rows = merged(*roots, drop_malformed=True)
    found = {row["offset"]: row for row in rows}
    assert len(found) == len(rows), seed
    moved = found.keys() - said.keys()  # an offset that was changed where nothing contradicts it
    if not moved:
        assert [at for at in said if at in whole and found.get(at) != said[at]] == [], seed
        assert [at for at in found if found[at] != said[at]] == [], seed
    shutil.rmtree(work / "repaired", ignore_errors=True)
    repair_log_dirs(roots, work / "repaired")
    assert [str(one) for one in check_log_dirs([work / "repaired"]).findings.kept if one.is_error] == [], seed
    repaired = plain_rows(LogDirs.open(work / "repaired").scan(log.topic, columns=ALL_COLUMNS))
    assert repaired == rows, seed


def test_merge_of_randomly_damaged_copies_has_every_batch_of_any_copy(tmp_path: Path) -> None:
    for seed in range(20, 32):
        merge_damaged(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(1000, 2000, 250))
def test_merge_of_many_randomly_damaged_copies_has_every_batch_of_any_copy(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 250):
        merge_damaged(seed, tmp_path)


def offsets(*roots: Path, **options: Any) -> list[int]:
    return [row["offset"] for row in merged(*roots, **options)]


def test_damaged_stretch_is_taken_only_from_a_copy_with_the_same_leader_epochs(tmp_path: Path) -> None:
    leader = broker(
        tmp_path / "a", {0: data(0) + broken(data(5)) + broken(data(10, 2)) + data(15, 2)}, [(0, 0), (2, 10)]
    )
    # epoch 1 was put aside: its records at 10 to 14 are of no log
    other = broker(tmp_path / "b", {0: data(0) + data(5) + data(10, 1, size=30)}, [(0, 0), (1, 10)])
    with pytest.raises(CorruptBatch) as caught:
        offsets(leader, other)
    assert (caught.value.path, caught.value.position) == (str(log_path(leader / NAME)), len(data(0)))
    assert offsets(leader, other, drop_malformed=True) == [*range(10), *range(15, 20)]
    third = broker(tmp_path / "c", {0: data(0) + data(5), 10: data(10, 2)}, [(0, 0), (2, 10)])
    assert offsets(leader, other, third) == list(range(20))
    rows = merged(leader, other, third)
    assert {row["value"] for row in rows} == {b"v" * 10}


def test_records_missing_at_either_end_come_from_other_copies_unless_deleted(tmp_path: Path) -> None:
    epochs = [(0, 0)]
    a = broker(tmp_path / "a", {10: data(10) + data(15), 20: data(20)}, epochs)
    b = broker(tmp_path / "b", {0: data(0) + data(5), 10: data(10), 25: broken(data(25))}, epochs)
    assert offsets(a, b) == list(range(25))
    (a / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 7\n")
    assert offsets(a, b) == list(range(7, 25))
    (a / "cleaner-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 7\n")
    lost = broker(tmp_path / "c", {0: data(0), 20: data(20), 25: data(25)}, epochs)
    assert offsets(lost, b) == [*range(15), *range(20, 30)]
    (lost / "cleaner-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 7\n")  # compacted: a hole says nothing
    assert offsets(lost, b) == [*range(5), *range(20, 30)]


def test_replicas_merge_works_in_every_mode_and_is_refused_where_it_does_not_apply(tmp_path: Path) -> None:
    epochs = [(0, 0)]
    a = broker(tmp_path / "a", {0: data(0) + broken(data(5)) + data(10) + broken(data(15)) + data(20)}, epochs)
    b = broker(tmp_path / "b", {0: data(0) + data(5) + data(10) + broken(data(15))}, epochs)
    asked: dict[str, Any] = {"replicas": "merge", "columns": "offset", "subscribe": TOPIC}
    with pytest.raises(CorruptBatch):
        read(a, b, **asked)
    good = [*range(15), *range(20, 25)]
    variants: list[dict[str, Any]] = [{}, {"maxPartitionBytes": 1}, {"minPartitions": 4}, {"tail": 100}]
    for more in variants:
        assert read(a, b, **asked, mode="DROPMALFORMED", **more)["offset"].to_pylist() == good
    scan = Load(a, b, **asked, mode="PERMISSIVE").scan()
    rows = scan.read().to_pylist()
    assert [row["offset"] for row in rows if row["_error"] is None] == good
    (lost,) = [row for row in rows if row["_error"] is not None]
    assert (lost["_file"], lost["_first_offset"], lost["_next_offset"]) == (str(log_path(a / NAME)), 15, 20)
    assert read(a, b, **asked, mode="DROPMALFORMED", tail=7)["offset"].to_pylist() == good[-7:]
    bounds = {"startingOffsets": f'{{"{TOPIC}":{{"0":7}}}}', "endingOffsets": f'{{"{TOPIC}":{{"0":12}}}}'}
    assert read(a, b, **asked, **bounds)["offset"].to_pylist() == [7, 8, 9, 10, 11]
    with pytest.raises(OptionError, match="replicas=merge applies to batch queries"):
        parse_read_options({"path": "/logs", "subscribe": "t", "replicas": "merge"}, streaming=True)
    with pytest.raises(OptionError, match="replicas=merge applies to records, not to the table 'batches'"):
        parse_read_options({"path": "/logs", "replicas": "merge", "table": "batches"})


def test_transactions_are_computed_on_the_merged_log(tmp_path: Path) -> None:
    (log,) = [log for log in golden_logs(KAFKA_4_3, "transactions", crashed=False) if log.partition == 0]
    roots = [tmp_path / "a", tmp_path / "b"]
    segment = max(log.segments(), key=lambda path: path.stat().st_size)
    for n, root in enumerate(roots):
        copied(log, root)
        for one in log.batches(segment)[1 + n :: 4]:
            whole = (root / log.name / segment.name).read_bytes()
            at = one.position + one.size - 1
            (root / log.name / segment.name).write_bytes(patched(whole, at, bytes([whole[at] ^ 1])))
    rows = merged(*roots, read_committed=True)
    assert rows == [{name: row[name] for name in ALL_COLUMNS} for row in log.records(committed_only=True)]


def test_repair_reports_which_copy_each_stretch_came_from(tmp_path: Path) -> None:
    epochs = [(0, 0)]
    a = broker(tmp_path / "a", {0: data(0) + broken(data(5)) + data(10), 15: broken(data(15)) + data(20)}, epochs)
    b = broker(tmp_path / "b", {0: data(0) + data(5), 10: data(10) + broken(data(15))}, epochs)
    report = repair_log_dirs([a, b], tmp_path / "new")
    (partition,) = report.partitions
    (taken,) = partition.taken
    assert (taken.path, taken.position, taken.size) == (str(log_path(b / NAME)), len(data(0)), len(data(5)))
    assert (taken.first_offset, taken.next_offset) == (5, 10)
    (loss,) = partition.losses
    assert (loss.path, loss.position, loss.first_offset, loss.next_offset) == (str(log_path(a / NAME, 15)), 0, 15, 20)
    assert (loss.keys, loss.keys_read) == (("key",), 5)
    assert log_path(tmp_path / "new" / NAME).read_bytes() == data(0) + data(5) + data(10)
    assert log_path(tmp_path / "new" / NAME, 15).read_bytes() == data(20)
    lines = report.lines()
    assert lines[0].startswith(f"taken: {NAME} {log_path(b / NAME)} from byte {len(data(0))}, {len(data(5))} bytes: ")
    assert lines[1].endswith("; keys that can still be read there: key")
    assert [str(one) for one in check_log_dirs([tmp_path / "new"]).findings.kept if one.is_error] == []
