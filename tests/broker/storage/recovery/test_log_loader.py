"""Loading a log after a clean shutdown and after a crash, compared with Kafka's recovery."""

from __future__ import annotations

import logging
import shutil

import pytest

from kafkalog_broker.storage.recovery.log_loader import bytes_to_recover, load_log
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, read_leader_epochs, write_leader_epochs
from kafkalog_spark.format.producer_snapshot import read_producer_snapshot
from kafkalog_spark.log.read import header_windows
from kafkalog_spark.log.write.segment_writer import SegmentWriter
from tests.broker.storage.helpers.loaded_logs import name, records, request, transactions, write_log
from tests.broker.storage.helpers.stored_logs import NOW, contents
from tests.golden_data import KAFKA_4_3, golden_logs
from tests.log.helpers.batch_builder import TRANSACTIONAL, V2Record, batch

DENSE = ("codec-", "java-", "out-of-order", "transactions", "compacted")


RECOVERY_POINTS = {"compacted-0": 6000, "segments-1": 4800, "transactions-0": 4, "codec-lz4-0": 0}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "swept"])
@pytest.mark.parametrize("crashed", golden_logs(release=KAFKA_4_3, crashed=True), ids=str)
def test_recovery_of_a_crashed_kafka_log_gives_the_same_files_as_kafka(crashed, tmp_path, golden, monkeypatch, plain):
    """The clean golden directory is the crashed one after its restart and clean shutdown. Only leader-epoch-checkpoint
    differs: the restarted leader had a new epoch."""
    monkeypatch.setattr(header_windows, "_PLAIN_BELOW", 1 << 40 if plain else 0)
    directory = tmp_path / crashed.name
    shutil.copytree(crashed.directory, directory)
    before = contents(directory)
    loaded = load_log(
        request(
            directory,
            recovery_point=RECOVERY_POINTS[crashed.name],
            index_interval_bytes=512 if crashed.topic.startswith(DENSE) else 4096,
        )
    )
    expected = contents(golden / crashed.name)
    expected[LEADER_EPOCH_CHECKPOINT] = before[LEADER_EPOCH_CHECKPOINT]
    assert contents(directory) == expected
    assert sum(one.truncated_bytes for one in loaded.recovered) == 0
    assert loaded.recovery_point == RECOVERY_POINTS[crashed.name]
    assert loaded.log_end_offset == max(int(file[:20]) for file in expected if file.endswith(".snapshot"))


@pytest.mark.parametrize("log", golden_logs(release=KAFKA_4_3, crashed=False), ids=str)
def test_loader_of_a_log_closed_by_kafka_changes_no_file(log, golden, golden_manifest_end, tmp_path):
    directory = tmp_path / log.name
    shutil.copytree(log.directory, directory)
    before = contents(directory)
    loaded = load_log(request(directory, clean=True))
    assert contents(directory) == before
    assert loaded.recovered == []
    assert loaded.log_end_offset == loaded.recovery_point == golden_manifest_end[log.name]
    newest = max(int(file[:20]) for file in before if file.endswith(".snapshot"))
    assert loaded.producers.entries() == read_producer_snapshot(directory / name(newest, ".snapshot"))


@pytest.mark.parametrize("log", golden_logs(release=KAFKA_4_3, crashed=False), ids=str)
def test_recovery_from_log_files_alone_rebuilds_the_indexes_and_snapshots_of_kafka(log, tmp_path):
    """All indexes, epochs and snapshots are lost, only the .log files are left. Compaction has removed batches that
    snapshots and transaction indexes still know of, so compacted topics only get the same indexes."""
    directory = tmp_path / log.name
    directory.mkdir()
    for path in log.segments():
        shutil.copyfile(path, directory / path.name)
    interval = 512 if log.topic.startswith(DENSE) else 4096
    loaded = load_log(request(directory, index_interval_bytes=interval))
    expected, found = contents(log.directory), contents(directory)
    end = name(loaded.log_end_offset, ".snapshot")
    assert [file for file in expected if file.endswith("index")] == [
        file for file in expected if file.endswith("index") and found.get(file) == expected[file]
    ]
    if not log.topic.startswith(("compacted", "__")):
        assert found[end] == expected[end]


@pytest.fixture
def golden_manifest_end(golden):
    from kafkalog_broker.storage.log_directory import LogDirectory

    points = LogDirectory(golden).recovery_points.read()
    return {f"{topic}-{partition}": offset for (topic, partition), offset in points.items()}


def test_recovery_keeps_the_files_of_valid_indexes(tmp_path):
    """Nearly all logs are intact after a crash, and writing two new files for each would delay the start."""
    directory = write_log(tmp_path / "t-0", [records(offset, 5, size=900) for offset in range(0, 60, 5)])
    load_log(request(directory))
    indexes = sorted(directory.glob("*index"))
    before = [(path.stat().st_ino, path.read_bytes()) for path in indexes]
    load_log(request(directory))
    assert [(path.stat().st_ino, path.read_bytes()) for path in indexes] == before
    for path, (_, right) in zip(indexes, before, strict=True):
        path.write_bytes(bytes(len(right)))
        load_log(request(directory))
        assert right == path.read_bytes() != bytes(len(right))


def test_recovery_of_a_log_truncated_at_any_byte_keeps_whole_batches(tmp_path):
    parts = [records(5, 2), records(7), records(8, 3, size=90)]
    whole = write_log(tmp_path / "whole", [records(0, 5)], parts)
    size = len(b"".join(parts))
    for cut in range(size + 1):
        directory = tmp_path / "cut"
        shutil.copytree(whole, directory)
        with open(directory / name(5, ".log"), "r+b") as file:
            file.truncate(cut)
        loaded = load_log(request(directory, recovery_point=5))
        kept = [sum(map(len, parts[:count])) for count in range(4)]
        count = max(count for count in range(4) if kept[count] <= cut)
        assert loaded.log_end_offset == (5, 7, 8, 11)[count]
        assert sum(one.truncated_bytes for one in loaded.recovered) == cut - kept[count]
        assert (loaded.base_offsets, loaded.recovery_point) == ([0, 5], 5)
        # What was recovered is believed by the next clean start, and by the writer.
        again = load_log(request(directory, clean=True))
        assert (again.log_end_offset, again.recovered) == (loaded.log_end_offset, [])
        with SegmentWriter.open_existing(directory, 5) as writer:
            assert writer.next_offset == loaded.log_end_offset
        shutil.rmtree(directory)


def test_recovery_removes_segments_after_a_damaged_batch(tmp_path, caplog):
    directory = write_log(tmp_path / "t-0", [records(0), records(1)], [records(2)], [records(3)])
    data = bytearray((directory / name(0, ".log")).read_bytes())
    data[-1] ^= 1
    (directory / name(0, ".log")).write_bytes(data)
    for offset in (2, 3, 4):
        (directory / name(offset, ".snapshot")).write_bytes(b"of the old log")
    with caplog.at_level(logging.WARNING):
        loaded = load_log(request(directory))
    assert (loaded.base_offsets, loaded.log_end_offset) == ([0], 1)
    assert set(contents(directory)) == {
        name(0, ".log"), name(0, ".index"), name(0, ".timeindex"), name(1, ".snapshot"), LEADER_EPOCH_CHECKPOINT
    }  # fmt: skip
    assert "CRC-32C does not match" in caplog.text
    assert f"{name(2, '.log')} follows the truncated segment and is removed" in caplog.text


def test_recovery_scans_only_segments_from_the_recovery_point_on(tmp_path):
    directory = write_log(tmp_path / "t-0", [records(0)], [records(1), records(2)], [records(3)])
    scanned: list = []
    loaded = load_log(request(directory, recovery_point=2), scanned.append)
    assert [segment.base_offset for segment in loaded.recovered] == [1, 3]
    assert sum(scanned) == bytes_to_recover(directory, 2) == 3 * len(records(0))
    assert loaded.recovery_point == 2


def test_recovery_point_beyond_the_log_end_is_reset_to_the_log_end(tmp_path):
    directory = write_log(tmp_path / "t-0", [records(0)])
    assert load_log(request(directory, recovery_point=99)).recovery_point == 1


def test_loader_creates_an_empty_log_at_the_log_start_offset_in_an_empty_directory(tmp_path):
    loaded = load_log(request(tmp_path, clean=True, log_start_offset=7))
    assert (loaded.base_offsets, loaded.log_start_offset, loaded.log_end_offset) == ([7], 7, 7)
    assert sorted(contents(tmp_path)) == [name(7, ".index"), name(7, ".log"), name(7, ".timeindex")]
    assert load_log(request(tmp_path, clean=False)).log_end_offset == 7


@pytest.mark.parametrize("clean", [True, False])
def test_log_that_ends_before_its_start_offset_is_restarted_at_the_start_offset(tmp_path, clean, caplog):
    directory = write_log(tmp_path / "t-0", [records(0)], [records(1)], padded=False)
    write_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT, [(0, 0)])
    (directory / name(2, ".snapshot")).write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        loaded = load_log(request(directory, clean=clean, log_start_offset=5))
    assert (loaded.base_offsets, loaded.log_start_offset, loaded.log_end_offset) == ([5], 5, 5)
    assert "before its log start offset 5" in caplog.text
    assert read_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT) == []
    assert not list(directory.glob("*.snapshot"))


def test_log_start_offset_within_a_segment_is_kept(tmp_path):
    directory = write_log(tmp_path / "t-0", [records(0, 5)], padded=False)
    loaded = load_log(request(directory, clean=True, log_start_offset=3))
    assert (loaded.base_offsets, loaded.log_start_offset, loaded.log_end_offset) == ([0], 3, 5)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_loader_rebuilds_a_missing_index_after_a_clean_shutdown(tmp_path, suffix):
    directory = write_log(tmp_path / "t-0", [records(0), records(1, size=5000), records(2)], [records(3)], padded=False)
    loaded = load_log(request(directory))
    assert loaded.log_end_offset == 4
    whole = contents(directory)
    (directory / name(0, suffix)).unlink()
    load_log(request(directory, clean=True))
    assert contents(directory) == whole


def test_loader_rebuilds_an_index_with_a_wrong_entry(tmp_path, caplog):
    directory = write_log(tmp_path / "t-0", [records(0), records(1, size=5000), records(2)], padded=False)
    load_log(request(directory))
    whole = contents(directory)
    entry = bytearray(whole[name(0, ".index")])
    assert len(entry) == 8
    for at, value in ((7, 1), (3, 7), (4, 0x7F)):
        damaged = bytearray(entry)
        damaged[at] ^= value
        (directory / name(0, ".index")).write_bytes(damaged)
        with caplog.at_level(logging.WARNING):
            assert load_log(request(directory, clean=True)).log_end_offset == 3
        assert "recovering the segment" in caplog.text
        assert contents(directory)[name(0, ".index")] == whole[name(0, ".index")]


def test_loader_rebuilds_a_damaged_transaction_index(tmp_path):
    directory = write_log(tmp_path / "t-0", transactions(), [records(9)])
    load_log(request(directory))
    whole = contents(directory)
    (directory / name(0, ".txnindex")).write_bytes(whole[name(0, ".txnindex")][:-1])
    load_log(request(directory, clean=True))
    assert contents(directory) == whole


def test_rebuild_of_a_missing_index_does_not_truncate_a_damaged_flushed_segment(tmp_path):
    from kafkalog_spark.errors import CorruptBatch

    directory = write_log(tmp_path / "t-0", [records(0), records(1)], [records(2)], padded=False)
    (directory / name(0, ".index")).unlink()
    with open(directory / name(0, ".log"), "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    with pytest.raises(CorruptBatch, match="CRC-32C"):
        load_log(request(directory, clean=True))
    assert len(contents(directory)[name(0, ".log")]) == 2 * len(records(0))


def test_recovery_drops_epochs_of_truncated_batches_and_adds_those_of_the_log(tmp_path):
    directory = write_log(
        tmp_path / "t-0", [records(0, leader_epoch=0), records(1, leader_epoch=3), records(2, leader_epoch=3), b"\1"]
    )
    write_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT, [(0, 0), (9, 3)])
    loaded = load_log(request(directory))
    assert loaded.epochs.entries == ((0, 0),)
    (directory / LEADER_EPOCH_CHECKPOINT).unlink()
    loaded = load_log(request(directory))
    assert loaded.epochs.entries == ((0, 0), (3, 1)) == tuple(read_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT))


@pytest.mark.parametrize("clean", [True, False])
def test_loader_rebuilds_a_damaged_epoch_checkpoint_from_the_whole_log(tmp_path, clean):
    directory = write_log(tmp_path / "t-0", [records(0, leader_epoch=0)], [records(1, leader_epoch=3)], padded=False)
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(b"0\n2\n0 0\n")
    loaded = load_log(request(directory, clean=clean, recovery_point=1))
    assert loaded.epochs.entries == ((0, 0), (3, 1))


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0\0"])
def test_recovery_truncates_at_an_unreadable_control_record(tmp_path, key, caplog):
    """The batch has a valid CRC. Kafka throws InvalidRecordException and truncates there (LogSegment.recover)."""
    unreadable = batch(
        2, [V2Record(2, NOW, key, bytes(6))], attributes=TRANSACTIONAL | 0x20, producer_id=5, producer_epoch=0
    )
    directory = write_log(tmp_path / "t-0", [records(0), records(1), unreadable, records(3)])
    loaded = load_log(request(directory))
    assert loaded.log_end_offset == 2
    assert f"a control record's key has {len(key)} bytes" in caplog.text
    assert sum(one.truncated_bytes for one in loaded.recovered) == len(unreadable) + len(records(3))
