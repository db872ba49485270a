"""Offset indexes as brokers before 0.11 wrote them: an entry holds the first offset inside a compressed message set."""

from __future__ import annotations

import shutil
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from kafkalog_spark.format.offset_index import OffsetPosition
from kafkalog_spark.log.read.log_end import find_log_end
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_lookup import locate, proven_entry
from tests.golden_data import KAFKA_2_8, DumpedBatch, GoldenLog, golden_logs

CODECS = ("gzip", "snappy", "lz4")
COMPRESSED = [log for log in golden_logs() if log.release == KAFKA_2_8 and log.topic.endswith(CODECS)]
every_log = pytest.mark.parametrize("golden_log", COMPRESSED, ids=str)


def with_old_entries(golden_log: GoldenLog, directory: Path, first_offsets: bool = True) -> PartitionLog:
    """A copy whose indexes have an entry for every batch of a segment but its first: the first offset inside, or the
    wrapper's own, as followers wrote it."""
    shutil.copytree(golden_log.directory, directory, copy_function=shutil.copyfile)
    for path in golden_log.segments():
        entries = [
            struct.pack(
                ">ii", (batch.base_offset if first_offsets else batch.last_offset) - int(path.stem), batch.position
            )
            for batch in golden_log.batches(path)[1:]
        ]
        (directory / f"{path.stem}.index").write_bytes(b"".join(entries))
    return PartitionLog(PartitionLocation(golden_log.topic, golden_log.partition, str(directory)))


def batches(golden_log: GoldenLog) -> list[list[DumpedBatch]]:
    return [list(golden_log.batches(path)) for path in golden_log.segments()]


@every_log
@pytest.mark.parametrize("first_offsets", [True, False], ids=["first offset", "wrapper's offset"])
def test_index_entry_of_an_old_broker_is_accepted(golden_log: GoldenLog, first_offsets: bool, tmp_path: Path) -> None:
    log = with_old_entries(golden_log, tmp_path / golden_log.directory.name, first_offsets)
    wrappers = 0
    for index, dumped in enumerate(batches(golden_log)):
        with log.open_segment(index) as file:
            for batch in dumped[1:]:
                wrappers += batch.base_offset < batch.last_offset
                entry = OffsetPosition(batch.base_offset if first_offsets else batch.last_offset, batch.position)
                header = proven_entry(file, entry)
                assert header is not None
                assert (header.position, header.last_offset) == (batch.position, batch.last_offset)
    assert wrappers > 3


@every_log
def test_read_starts_at_the_batch_of_an_offset_or_the_previous_one(golden_log: GoldenLog, tmp_path: Path) -> None:
    log = with_old_entries(golden_log, tmp_path / golden_log.directory.name)
    for index, dumped in enumerate(batches(golden_log)):
        with log.open_segment(index) as file:
            for before, batch in zip([dumped[0], *dumped], dumped, strict=False):
                for offset in range(batch.base_offset, batch.last_offset + 1):
                    assert before.position <= locate(file, offset) <= batch.position
                # its header tells that every record from its own offset on lies behind
                assert locate(file, batch.last_offset) == batch.position


@every_log
def test_read_from_every_offset_returns_every_later_record(golden_log: GoldenLog, tmp_path: Path) -> None:
    log = with_old_entries(golden_log, tmp_path / golden_log.directory.name)
    expected = [row["offset"] for row in golden_log.records()]
    for start in range(0, log.log_end_offset, 7):
        found = [o for b in scan_partition(log, start, log.log_end_offset) for o in b.column("offset").to_pylist()]
        assert found == [offset for offset in expected if offset >= start]


@every_log
def test_log_end_search_starts_after_the_last_entry(golden_log: GoldenLog, tmp_path: Path) -> None:
    log = with_old_entries(golden_log, tmp_path / golden_log.directory.name)
    last = batches(golden_log)[-1]
    with log.open_segment(len(log.segments) - 1) as file:
        index_bytes = len(file.offset_index) * 8
        end = find_log_end(file)
        assert (end.offset, end.position, end.last_batch) == (
            last[-1].last_offset + 1,
            last[-1].position + last[-1].size,
            last[-1].position,
        )
        if len(last) > 4:
            assert file.bytes_read - index_bytes < last[-3].position


@every_log
def test_index_entry_that_points_to_a_later_wrapper_is_rejected(golden_log: GoldenLog, tmp_path: Path) -> None:
    log = with_old_entries(golden_log, tmp_path / golden_log.directory.name)
    with log.open_segment(0) as file:
        dumped = batches(golden_log)[0]
        for batch, later in pairwise(dumped[1:]):
            assert proven_entry(file, OffsetPosition(batch.base_offset, later.position)) is None
