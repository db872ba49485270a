"""mode=PERMISSIVE, by what it stands on: good records, and a row for each damaged stretch, wherever a range is cut."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, DAMAGE_COLUMN_TYPES
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import OpenHints, PartitionLocation, PartitionLog
from kafkalog_spark.log.repair.damage_rows import scan_with_damage, with_damage_columns
from tests.golden_data import GoldenLog, data_dir, golden_logs
from tests.log.helpers.batch_builder import batch
from tests.log.helpers.damaged_log import AFTER, BEFORE, HONEST, NAME, log_path, patched, records, write_segments
from tests.log.helpers.random_damage import LOGS, copied, damage, undamaged
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows

COLUMNS = with_damage_columns(ALL_COLUMNS)
Row = dict[str, Any]


def read(log: PartitionLog, start: int, end: int, *, is_first: bool = True) -> tuple[list[Row], list[Row]]:
    """The rows of records, and those of damage."""
    kinds = COLUMN_TYPES | DAMAGE_COLUMN_TYPES
    schema = pa.schema([(name, kinds[name]) for name in COLUMNS])
    table = pa.Table.from_batches(scan_with_damage(log, start, end, COLUMNS, ScanRequest(), is_first=is_first), schema)
    good, bad = table.filter(table["_error"].is_null()), table.filter(table["_error"].is_valid())
    lost = [{name: row[name] for name in DAMAGE_COLUMN_TYPES} for row in bad.to_pylist()]
    return plain_rows(good.select([name for name in COLUMNS if name not in DAMAGE_COLUMN_TYPES]).to_batches()), lost


def opened(root: Path, log: GoldenLog) -> PartitionLog:
    return LogDirs.open(root).locations[log.topic, log.partition].open(pass_over_damage=True)


def read_damaged(seed: int, work: Path) -> None:
    """One random damage: every record of every undamaged batch, no wrong one, and where the rest was."""
    numbers = random.Random(seed)
    log = numbers.choice(LOGS)
    path, harmed = damage(log, copied(log, work / "source"), numbers)
    partition = opened(work / "source", log)
    start, end = partition.log_start_offset, partition.log_end_offset
    if start >= end:
        return
    rows, lost = read(partition, start, end)
    said = {row["offset"]: {name: row[name] for name in ALL_COLUMNS} for row in log.records()}
    found = {row["offset"]: row for row in rows}
    assert len(found) == len(rows), seed
    whole = [(batch.base_offset, batch.last_offset) for batch in undamaged(log, path, harmed)]
    wanted = [offset for offset in said if offset >= start and any(a <= offset <= b for a, b in whole)]
    assert [offset for offset in wanted if found.get(offset) != said[offset]] == [], seed
    # a base offset that was changed upward where nothing follows: Kafka itself would not notice
    moved = found.keys() - said.keys()
    values = {(row["key"], row["value"]) for row in said.values()}
    assert not moved or harmed, seed
    assert all((found[offset]["key"], found[offset]["value"]) in values for offset in moved), seed
    for row in lost:
        assert row["_file"] == str(path), seed
        assert row["_position"] + row["_length"] <= path.stat().st_size, seed
    for one, other in pairwise(lost):
        assert one["_position"] + one["_length"] < other["_position"], seed
    clean_cuts = {batch.position for batch in log.batches(log.directory / path.name)}
    if path.exists() and not moved and path.stat().st_size not in clean_cuts:
        missing = [offset for offset in said if start <= offset < end and offset not in found]
        covered = [(row["_first_offset"], row["_next_offset"]) for row in lost]
        assert [at for at in missing if not any(a <= at and (b is None or at < b) for a, b in covered)] == [], seed
    cuts = sorted({start, end, *(numbers.randrange(start, end) for _ in range(5))})
    pieces = [read(partition, a, b, is_first=a == start) for a, b in pairwise(cuts)]
    assert sorted((row for rows, _ in pieces for row in rows), key=lambda row: row["offset"]) == sorted(
        rows, key=lambda row: row["offset"]
    ), seed
    assert [row for _, lost in pieces for row in lost] == lost, seed


@pytest.mark.local_only("it writes to its source")
def test_damaged_sample_returns_every_whole_batch_and_a_row_for_the_rest(tmp_path: Path) -> None:
    for seed in range(20):
        read_damaged(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.local_only("it writes to its source")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(1000, 3000, 250))
def test_many_random_damages_return_every_whole_batch_and_a_row_for_the_rest(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 250):
        read_damaged(seed, tmp_path)


@pytest.mark.parametrize("log", golden_logs(crashed=None), ids=str)
def test_intact_logs_have_no_damage_row(log: GoldenLog) -> None:
    partition = LogDirs.open(data_dir(log.release, crashed=log.crashed)).partition(log.topic, log.partition)
    rows, lost = read(partition, partition.log_start_offset, partition.log_end_offset)
    assert (rows, lost) == ([{name: row[name] for name in ALL_COLUMNS} for row in log.records()], [])


def test_damage_row_has_file_position_and_offsets(tmp_path: Path) -> None:
    bad = patched(HONEST, len(HONEST) - 3, b"!")
    directory = write_segments(tmp_path, {0: BEFORE + bad + AFTER})
    rows, (row,) = read(open_permissive(directory), 0, 15)
    assert [row["offset"] for row in rows] == [*range(5), *range(10, 15)]
    assert row.pop("_error").startswith("CRC-32C does not match: the header says 0x")
    assert row == {
        "_file": str(log_path(directory)), "_position": len(BEFORE), "_length": len(bad),
        "_first_offset": 5, "_next_offset": 10,
    }  # fmt: skip
    whole = list(LogDirs.open(directory).scan("orders", damage_rows=True, columns=("offset",)))
    assert whole[0].schema.names == ["offset", *DAMAGE_COLUMN_TYPES]
    (line,) = [row for row in pa.Table.from_batches(whole).to_pylist() if row["_error"]]
    assert (line["offset"], line["_position"]) == (None, len(BEFORE))
    topic = list(LogDirs.open(directory).scan(damage_rows=True, columns=("_error", "topic", "partition")))
    assert [row["topic"] for row in pa.Table.from_batches(topic).to_pylist()] == ["orders"] * 11


def open_permissive(directory: Path, recovery_point: int | None = None) -> PartitionLog:
    topic, _, partition = NAME.rpartition("-")
    return PartitionLog(
        PartitionLocation(topic, int(partition), str(directory)), OpenHints(recovery_point, pass_over_damage=True)
    )


def test_adjacent_damaged_stretches_are_one_row_up_to_the_file_end(tmp_path: Path) -> None:
    foreign = BEFORE + HONEST  # offsets that are there already, twice
    directory = write_segments(tmp_path, {0: BEFORE + foreign + b"\1" * 70, 10: AFTER})
    rows, lost = read(open_permissive(directory), 0, 15)
    assert [row["offset"] for row in rows] == [*range(5), *range(5, 15)]
    assert [(row["_position"], row["_length"], row["_first_offset"], row["_next_offset"]) for row in lost] == [
        (len(BEFORE), len(BEFORE), 5, 5),
        (3 * len(BEFORE), 70, 10, 10),
    ]
    for cut in range(1, 15):
        log = open_permissive(directory)
        assert read(log, 0, cut)[1] + read(log, cut, 15, is_first=False)[1] == lost


def test_flushed_log_end_is_damage_and_unflushed_one_a_torn_tail(tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE + patched(HONEST, len(HONEST) - 3, b"!")})
    assert read(open_permissive(directory), 0, 5)[1] == []
    rows, (row,) = read(open_permissive(directory, recovery_point=10), 0, 5)
    assert len(rows) == 5
    assert (row["_position"], row["_length"], row["_first_offset"], row["_next_offset"]) == (
        len(BEFORE), len(HONEST), 5, None,
    )  # fmt: skip
    assert read(open_permissive(directory, recovery_point=10), 0, 3)[1] == []


def test_file_cut_between_batches_is_damage_if_another_file_proves_it(tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE, 10: AFTER})
    assert read(open_permissive(directory), 0, 15)[1] == []  # as compaction may have left it
    log_path(directory).with_suffix(".index").write_bytes(struct.pack(">ii", 9, len(BEFORE)))
    assert read(open_permissive(directory), 0, 15)[1] == []  # nor does an index of which nothing is true
    more = batch(5, records(5, 2))
    log_path(directory).write_bytes(BEFORE + more)
    log_path(directory).with_suffix(".index").write_bytes(struct.pack(">iiii", 6, len(BEFORE), 9, len(BEFORE + more)))
    rows, (row,) = read(open_permissive(directory), 0, 15)
    assert [row["offset"] for row in rows] == [*range(7), *range(10, 15)]
    assert row["_error"] == f"the file ends here, and its offset index names a batch at byte {len(BEFORE + more)}"
    assert (row["_position"], row["_length"], row["_first_offset"], row["_next_offset"]) == (
        len(BEFORE + more),
        0,
        7,
        10,
    )
    rows, (_, row) = read(open_permissive(directory, recovery_point=20), 0, 15)
    assert row["_error"].startswith("the file ends here, and the log was flushed up to offset 20 (recovery-point")
    assert (row["_position"], row["_length"], row["_first_offset"], row["_next_offset"]) == (len(AFTER), 0, 15, None)


def test_malformed_records_with_a_valid_crc_are_damage_of_their_batch(tmp_path: Path) -> None:
    from tests.log.decode.test_record_search import malformed

    bad = malformed(lambda payload: payload.append(0))
    directory = write_segments(tmp_path, {0: BEFORE + bad + AFTER})
    rows, (row,) = read(open_permissive(directory), 0, 15)
    assert [row["offset"] for row in rows] == [*range(5), *range(10, 15)]
    assert row["_error"].startswith("bytes are left after the last record")
    assert (row["_position"], row["_length"], row["_first_offset"], row["_next_offset"]) == (
        len(BEFORE), len(bad), 5, 10,
    )  # fmt: skip


def test_batch_is_damaged_from_a_timestamp_beyond_microseconds_on(tmp_path: Path) -> None:
    late = [replace(one, timestamp=1_700_000_000_000_000_000) if one.offset == 7 else one for one in records(5)]
    bad = batch(5, late)
    directory = write_segments(tmp_path, {0: BEFORE + bad + AFTER})
    rows, lost = read(open_permissive(directory), 0, 15)
    assert sorted(row["offset"] for row in rows) == [*range(7), *range(10, 15)]
    (stretch,) = lost
    assert stretch["_error"].startswith("the record's timestamp is 1700000000000000000 ms")
    assert (stretch["_position"], stretch["_length"]) == (len(BEFORE), len(bad))
    assert (stretch["_first_offset"], stretch["_next_offset"]) == (7, 10)
