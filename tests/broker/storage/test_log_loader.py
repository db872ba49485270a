from __future__ import annotations

import logging
import os
import shutil

import pytest

from kafkalog_broker.storage.recovery.log_loader import LoadRequest, bytes_to_recover, load_log
from kafkalog_spark.log.format.checkpoint import LEADER_EPOCH_CHECKPOINT, read_leader_epochs, write_leader_epochs
from kafkalog_spark.log.format.layout import ControlType
from kafkalog_spark.log.format.producer_snapshot import read_producer_snapshot
from kafkalog_spark.log.format.transaction_index import load_transaction_index
from kafkalog_spark.log.read import header_windows
from kafkalog_spark.log.write.encoded_batch import control_batch
from kafkalog_spark.log.write.segment_writer import SegmentWriter
from tests.golden_data import KAFKA_4_3, golden_logs
from tests.log.batch_builder import TRANSACTIONAL, V2Record, batch

DENSE = ("codec-", "java-", "out-of-order", "transactions", "compacted")
RECOVERY_POINTS = {"compacted-0": 6000, "segments-1": 4800, "transactions-0": 4, "codec-lz4-0": 0}
NOW = 1_700_000_000_000


def request(directory, **fields):
    return LoadRequest(directory=directory, **{"clean": False, **fields})


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def name(offset, suffix):
    return f"{offset:020d}{suffix}"


def records(offset, count=1, *, size=10, **fields):
    return batch(offset, [V2Record(offset + i, NOW + offset + i, None, bytes(size)) for i in range(count)], **fields)


def write_log(directory, *segments, padded=True):
    """segments: lists of batches. As a running broker leaves them: closed ones whole, the last one's indexes padded."""
    directory.mkdir(exist_ok=True)
    for number, data in enumerate(segments):
        base = int.from_bytes(data[0][:8], "big")
        writer = SegmentWriter.create(directory, base)
        writer._write(b"".join(data), 0)
        writer.close()
        if padded and number == len(segments) - 1:
            for suffix in (".index", ".timeindex"):
                (directory / name(base, suffix)).write_bytes(bytes(1200))
    return directory


# ---- what Kafka recovered


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "swept"])
@pytest.mark.parametrize("crashed", golden_logs(release=KAFKA_4_3, crashed=True), ids=str)
def test_recovery_gives_the_files_that_kafkas_recovery_gave(crashed, tmp_path, golden, monkeypatch, plain):
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
    assert loaded.truncated_bytes == 0
    assert loaded.recovery_point == RECOVERY_POINTS[crashed.name]
    assert loaded.log_end_offset == max(int(file[:20]) for file in expected if file.endswith(".snapshot"))


@pytest.mark.parametrize("log", golden_logs(release=KAFKA_4_3, crashed=False), ids=str)
def test_a_log_closed_by_kafka_is_believed_and_nothing_changes(log, golden, golden_manifest_end, tmp_path):
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
def test_everything_made_from_the_batches_alone_is_what_kafka_has(log, tmp_path):
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


# ---- crashes


def test_a_log_cut_at_every_byte_of_its_last_batches_is_whole_again(tmp_path):
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
        assert loaded.truncated_bytes == cut - kept[count]
        assert (loaded.base_offsets, loaded.recovery_point) == ([0, 5], 5)
        # What was recovered is believed by the next clean start, and by the writer.
        again = load_log(request(directory, clean=True))
        assert (again.log_end_offset, again.recovered) == (loaded.log_end_offset, [])
        with SegmentWriter.open_existing(directory, 5) as writer:
            assert writer.next_offset == loaded.log_end_offset
        shutil.rmtree(directory)


def test_segments_behind_a_bad_batch_are_removed(tmp_path, caplog):
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
    assert f"{name(2, '.log')} follows the cut and is removed" in caplog.text


def test_only_segments_from_the_recovery_point_on_are_scanned(tmp_path):
    directory = write_log(tmp_path / "t-0", [records(0)], [records(1), records(2)], [records(3)])
    scanned: list = []
    loaded = load_log(request(directory, recovery_point=2), scanned.append)
    assert [segment.base_offset for segment in loaded.recovered] == [1, 3]
    assert sum(scanned) == bytes_to_recover(directory, 2) == 3 * len(records(0))
    assert loaded.recovery_point == 2


def test_a_recovery_point_behind_the_end_falls_back_to_it(tmp_path):
    directory = write_log(tmp_path / "t-0", [records(0)])
    assert load_log(request(directory, recovery_point=99)).recovery_point == 1


# ---- beginnings


def test_an_empty_directory_becomes_an_empty_log_at_its_start_offset(tmp_path):
    loaded = load_log(request(tmp_path, clean=True, log_start_offset=7))
    assert (loaded.base_offsets, loaded.log_start_offset, loaded.log_end_offset) == ([7], 7, 7)
    assert sorted(contents(tmp_path)) == [name(7, ".index"), name(7, ".log"), name(7, ".timeindex")]
    assert load_log(request(tmp_path, clean=False)).log_end_offset == 7


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_before_its_start_offset_begins_anew_there(tmp_path, clean, caplog):
    directory = write_log(tmp_path / "t-0", [records(0)], [records(1)], padded=False)
    write_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT, [(0, 0)])
    (directory / name(2, ".snapshot")).write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        loaded = load_log(request(directory, clean=clean, log_start_offset=5))
    assert (loaded.base_offsets, loaded.log_start_offset, loaded.log_end_offset) == ([5], 5, 5)
    assert "before its log start offset 5" in caplog.text
    assert read_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT) == []
    assert not list(directory.glob("*.snapshot"))


def test_a_start_offset_in_the_middle_of_a_segment_is_kept(tmp_path):
    directory = write_log(tmp_path / "t-0", [records(0, 5)], padded=False)
    loaded = load_log(request(directory, clean=True, log_start_offset=3))
    assert (loaded.base_offsets, loaded.log_start_offset, loaded.log_end_offset) == ([0], 3, 5)


# ---- indexes


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_made_again_also_after_a_clean_shutdown(tmp_path, suffix):
    directory = write_log(tmp_path / "t-0", [records(0), records(1, size=5000), records(2)], [records(3)], padded=False)
    loaded = load_log(request(directory))
    assert loaded.log_end_offset == 4
    whole = contents(directory)
    (directory / name(0, suffix)).unlink()
    load_log(request(directory, clean=True))
    assert contents(directory) == whole


def test_an_index_that_leads_astray_is_made_again(tmp_path, caplog):
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
        assert "the segment is recovered" in caplog.text
        assert contents(directory)[name(0, ".index")] == whole[name(0, ".index")]


def test_a_damaged_transaction_index_is_made_again(tmp_path):
    directory = write_log(tmp_path / "t-0", transactions(), [records(9)])
    load_log(request(directory))
    whole = contents(directory)
    (directory / name(0, ".txnindex")).write_bytes(whole[name(0, ".txnindex")][:-1])
    load_log(request(directory, clean=True))
    assert contents(directory) == whole


def test_damage_in_a_flushed_segment_is_not_cut_for_a_missing_index(tmp_path):
    from kafkalog_spark.errors import CorruptBatch

    directory = write_log(tmp_path / "t-0", [records(0), records(1)], [records(2)], padded=False)
    (directory / name(0, ".index")).unlink()
    with open(directory / name(0, ".log"), "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    with pytest.raises(CorruptBatch, match="CRC-32C"):
        load_log(request(directory, clean=True))
    assert len(contents(directory)[name(0, ".log")]) == 2 * len(records(0))


# ---- leader epochs


def test_epochs_of_batches_that_were_cut_off_go_and_those_of_the_log_come(tmp_path):
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
def test_a_damaged_epoch_file_is_made_again_from_the_whole_log(tmp_path, clean):
    directory = write_log(tmp_path / "t-0", [records(0, leader_epoch=0)], [records(1, leader_epoch=3)], padded=False)
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(b"0\n2\n0 0\n")
    loaded = load_log(request(directory, clean=clean, recovery_point=1))
    assert loaded.epochs.entries == ((0, 0), (3, 1))


# ---- producers


def transactions():
    """Producer 5 aborts offsets 0-1 with the marker at 3, producer 6 commits 2 with 4; 7 has an open one from 5 on."""
    fields = {"attributes": TRANSACTIONAL, "producer_epoch": 0}
    return [
        records(0, 2, producer_id=5, base_sequence=0, **fields),
        records(2, producer_id=6, base_sequence=0, **fields),
        control_batch(ControlType.ABORT, 3, NOW, producer_id=5, producer_epoch=0, coordinator_epoch=1).data,
        control_batch(ControlType.COMMIT, 4, NOW, producer_id=6, producer_epoch=0, coordinator_epoch=2).data,
        records(5, producer_id=7, base_sequence=0, **fields),
    ]


def idempotent(count, first=0):
    return [records(first + n, producer_id=1, producer_epoch=0, base_sequence=first + n) for n in range(count)]


def known(loaded, producer_id):
    return [batch.last_sequence for batch in loaded.producers.producer(producer_id).batches]


def test_after_a_crash_the_last_five_batches_of_a_producer_are_known(tmp_path):
    loaded = load_log(request(write_log(tmp_path / "t-0", idempotent(9))))
    assert known(loaded, 1) == [4, 5, 6, 7, 8]
    assert loaded.producers.end_offset == 9


def test_the_newest_good_snapshot_is_taken_and_only_the_rest_is_replayed(tmp_path):
    directory = write_log(tmp_path / "t-0", idempotent(3), idempotent(3, 3), idempotent(3, 6))
    load_log(request(directory))
    assert sorted(contents(directory))[-1] == LEADER_EPOCH_CHECKPOINT
    assert {file for file in contents(directory) if file.endswith("snapshot")} == {
        name(offset, ".snapshot") for offset in (3, 6, 9)
    }
    # Kafka keeps one batch in a snapshot: the others are forgotten where the replay begins behind it.
    assert known(load_log(request(directory, recovery_point=6)), 1) == [5, 6, 7, 8]
    (directory / name(6, ".snapshot")).write_bytes(b"damaged")
    assert known(load_log(request(directory, recovery_point=6)), 1) == [4, 5, 6, 7, 8]
    assert known(load_log(request(directory, clean=True)), 1) == [8]
    (directory / name(9, ".snapshot")).unlink()
    assert known(load_log(request(directory, clean=True)), 1) == [4, 5, 6, 7, 8]


def test_without_any_snapshot_a_crashed_log_is_replayed_from_its_beginning(tmp_path):
    directory = write_log(tmp_path / "t-0", idempotent(3), idempotent(1, 3))
    assert known(load_log(request(directory, recovery_point=3)), 1) == [0, 1, 2, 3]


def test_open_and_aborted_transactions_are_found_again(tmp_path):
    directory = write_log(tmp_path / "t-0", transactions())
    loaded = load_log(request(directory))
    assert load_transaction_index(directory / name(0, ".txnindex")) == [(5, 0, 3, 2)]
    assert loaded.producers.first_unstable_offset(loaded.log_end_offset) == 5
    assert {producer.id: producer.coordinator_epoch for producer in loaded.producers.producers()} == {5: 1, 6: 2, 7: -1}
    again = load_log(request(directory, clean=True))
    assert again.producers.first_unstable_offset(again.log_end_offset) == 5


def test_snapshots_that_belong_to_nothing_are_removed(tmp_path):
    directory = write_log(tmp_path / "t-0", idempotent(3), idempotent(3, 3), padded=False)
    load_log(request(directory))
    for offset in (1, 2, 5, 8):
        shutil.copyfile(directory / name(6, ".snapshot"), directory / name(offset, ".snapshot"))
    load_log(request(directory, clean=True))
    assert sorted(int(path.stem) for path in directory.glob("*.snapshot")) == [3, 6]


def test_producers_expire(tmp_path):
    directory = write_log(tmp_path / "t-0", idempotent(3), padded=False)
    day = 24 * 3600 * 1000
    assert len(load_log(request(directory, now_ms=NOW + day)).producers) == 1
    assert len(load_log(request(directory, now_ms=NOW + day + 2)).producers) == 0


def test_many_producers_in_one_window_keep_their_last_five_batches(tmp_path, monkeypatch):
    """The shortcut of producer_replay gives what taking in every batch gives."""
    import random

    from kafkalog_broker.storage.recovery import producer_replay

    rng, sequences, data = random.Random(3), [0] * 4, []
    for offset in range(200):
        producer = rng.randrange(4)
        kind = {"attributes": TRANSACTIONAL} if producer == 3 else {}
        epoch = int(offset > 150)
        data.append(
            records(offset, producer_id=producer, producer_epoch=epoch, base_sequence=sequences[producer], **kind)
            if rng.random() < 0.8
            else records(offset)
        )
        sequences[producer] += 1
    directory = write_log(tmp_path / "t-0", data)
    quick = load_log(request(directory))
    monkeypatch.setattr(producer_replay, "_rows_that_matter", lambda table: (table[:, 10] >= 0).nonzero()[0])
    slow = load_log(request(directory))
    assert [known(quick, producer) for producer in range(4)] == [known(slow, producer) for producer in range(4)]
    assert quick.producers.entries() == slow.producers.entries()


# ---- offsets that overflow an index (LogSegmentOffsetOverflowException)

FAR = 2**31


def overflowed(directory):
    """One segment whose offsets span more than 2^32, with a transaction that ends in its second part."""
    fields = {"attributes": TRANSACTIONAL, "producer_epoch": 0}
    data = [
        records(0, 5, size=3000),
        records(5, 2, producer_id=5, base_sequence=0, **fields),
        records(FAR - 1, 1),
        records(FAR, 3, size=3000),
        control_batch(ControlType.ABORT, FAR + 3, NOW, producer_id=5, producer_epoch=0, coordinator_epoch=1).data,
        records(3 * FAR, 2),
    ]
    return write_log(directory, data), b"".join(data)


def log_of(directory):
    """The bytes of all segments by base offset."""
    paths = sorted(directory.glob("*.log"))
    return [int(path.stem) for path in paths], b"".join(path.read_bytes() for path in paths)


BASES = [0, FAR, 3 * FAR]


@pytest.mark.parametrize("recovery_point", [0, 6, FAR + 1, 3 * FAR])
def test_a_segment_whose_offsets_overflow_is_split_and_nothing_is_cut(tmp_path, recovery_point):
    directory, data = overflowed(tmp_path / "t-0")
    loaded = load_log(request(directory, recovery_point=recovery_point))
    assert (loaded.base_offsets, loaded.log_end_offset, loaded.truncated_bytes) == (BASES, 3 * FAR + 2, 0)
    assert log_of(directory) == (BASES, data)
    assert [path.name for path in directory.iterdir() if path.name.endswith((".cleaned", ".swap", ".deleted"))] == []
    again = load_log(request(directory, clean=True))
    assert (again.base_offsets, again.log_end_offset) == (BASES, 3 * FAR + 2)
    assert loaded.producers.first_unstable_offset(loaded.log_end_offset) is None, "the transaction has ended"
    if recovery_point <= FAR + 1:
        (aborted,) = load_transaction_index(directory / name(FAR, ".txnindex"), FAR)
        assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (5, 5, FAR + 3)


def test_an_overflowed_segment_without_index_is_split_after_a_clean_stop_too(tmp_path):
    directory, data = overflowed(tmp_path / "t-0")
    (directory / name(0, ".index")).unlink()
    assert load_log(request(directory, clean=True)).base_offsets == BASES
    assert log_of(directory) == (BASES, data)


def test_a_torn_end_of_an_overflowed_segment_is_cut_and_nothing_else(tmp_path):
    directory, data = overflowed(tmp_path / "t-0")
    with open(directory / name(0, ".log"), "ab") as file:
        file.write(b"torn" + bytes(3_000_000))
    loaded = load_log(request(directory))
    assert log_of(directory) == (BASES, data)
    assert loaded.truncated_bytes == 3_000_004


def test_a_first_batch_that_is_far_from_the_base_offset_gets_a_segment_of_its_own(tmp_path):
    directory = tmp_path / "t-0"
    write_log(directory, [records(0), records(FAR + 7, 2)])
    cut = (directory / name(0, ".log")).read_bytes()[len(records(0)) :]
    (directory / name(0, ".log")).write_bytes(cut)  # as compaction leaves it
    loaded = load_log(request(directory))
    assert (loaded.base_offsets, loaded.log_end_offset) == ([0, FAR + 7], FAR + 9)
    assert log_of(directory) == ([0, FAR + 7], cut)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", range(1, 60))
def test_a_kill_at_any_instant_of_a_split_loses_nothing(tmp_path, step, monkeypatch):
    directory, data = overflowed(tmp_path / "t-0")
    steps = iter(range(1, 1000))

    def counted(call):
        def made(*arguments, **named):
            if next(steps) >= step:
                raise Killed
            return call(*arguments, **named)

        return made

    with monkeypatch.context() as patched:
        for called in ("rename", "unlink", "fsync", "replace"):
            patched.setattr(os, called, counted(getattr(os, called)))
        try:
            load_log(request(directory))
        except Killed:
            pass
        else:
            assert step > 30, "there are that many steps"
    loaded = load_log(request(directory))
    assert (loaded.log_end_offset, loaded.truncated_bytes) == (3 * FAR + 2, 0)
    assert log_of(directory) == (BASES, data)


# ---- control records


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0\0"])
def test_recovery_cuts_at_a_control_record_that_cannot_be_read(tmp_path, key, caplog):
    """Its CRC is valid. Kafka throws InvalidRecordException, and cuts there (LogSegment.recover)."""
    unreadable = batch(
        2, [V2Record(2, NOW, key, bytes(6))], attributes=TRANSACTIONAL | 0x20, producer_id=5, producer_epoch=0
    )
    directory = write_log(tmp_path / "t-0", [records(0), records(1), unreadable, records(3)])
    loaded = load_log(request(directory))
    assert loaded.log_end_offset == 2
    assert f"a control record's key has {len(key)} bytes" in caplog.text
    assert loaded.truncated_bytes == len(unreadable) + len(records(3))


# ---- snapshots


def test_a_log_without_snapshots_has_them_after_the_first_start(tmp_path):
    """Not scanned, as in Kafka: it was closed cleanly. After a crash it is not scanned from its beginning either."""
    directory = write_log(tmp_path / "t-0", [records(0)], [records(1)], [records(2)], padded=False)
    load_log(request(directory, clean=True))
    assert sorted(int(path.stem) for path in directory.glob("*.snapshot")) == [1, 2, 3]
    assert read_producer_snapshot(directory / name(3, ".snapshot")) == []
