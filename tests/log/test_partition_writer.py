from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.errors import CorruptBatch, CorruptLog, InvalidRecord
from kafkalog_spark.log.format.checkpoint import EpochEntry, read_leader_epochs
from kafkalog_spark.log.format.layout import Codec
from kafkalog_spark.log.write import partition_writer
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, batches_of
from kafkalog_spark.log.write.partition_writer import PartitionWriter
from kafkalog_spark.log.write.record_encoder import BatchParams, encode_batches
from kafkalog_spark.log.write.rolling import SegmentConfig
from kafkalog_spark.log.write.segment_writer import SegmentWriter
from tests.golden_data import KAFKA_4_3, GoldenLog, golden_logs
from tests.log.plain_decoder import decode_log

SMALL = SegmentConfig(segment_bytes=1000)


def batches(count: int, *, offset: int = 0, timestamp: int = 1000, **params: Any) -> list[EncodedBatch]:
    """`count` batches of one record each."""
    records = pa.record_batch({"value": [b"value-%04d" % i for i in range(count)]})
    return list(encode_batches(records, offset, BatchParams(batch_size=62, **params), timestamp))


def size_of_one() -> int:
    return len(batches(1)[0].data)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def segments(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def offsets(directory: Path) -> list[int]:
    return [r.offset for path in sorted(directory.glob("*.log")) for b in decode_log(path) for r in b.records]


# ---- what Kafka wrote


@pytest.mark.parametrize("log", golden_logs(release=KAFKA_4_3, topic="segments", crashed=False), ids=str)
def test_replaying_a_golden_partition_gives_kafkas_directory(log: GoldenLog, tmp_path: Path) -> None:
    """Segments rolled at the same offsets, logs, both indexes, empty producer snapshots: every byte of every file."""
    with PartitionWriter(tmp_path / "p", SegmentConfig(segment_bytes=64 * 1024)) as writer:
        for path in log.segments():
            for encoded in batches_of(path.read_bytes()):
                writer.append(encoded)
    ours, theirs = files(tmp_path / "p"), files(log.directory)
    # The broker was restarted after its crash, and led again in epoch 2, from the log end on. partition.metadata holds
    # the topic's id, which whoever makes the directory knows.
    assert ours.pop("leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert theirs.pop("leader-epoch-checkpoint") == b"0\n2\n0 0\n2 6000\n"
    del theirs["partition.metadata"]
    assert ours == theirs


# ---- segments


def test_a_segment_is_rolled_before_it_would_grow_too_large_and_named_after_the_first_offset(tmp_path: Path) -> None:
    per_segment = 1000 // size_of_one()
    with PartitionWriter(tmp_path, SMALL) as writer:
        for batch in batches(3 * per_segment + 1):
            writer.append(batch)
    assert segments(tmp_path) == [0, per_segment, 2 * per_segment, 3 * per_segment]
    assert offsets(tmp_path) == list(range(3 * per_segment + 1))


def test_a_new_segment_begins_with_the_offset_of_its_first_batch_not_of_the_gap_before(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path, SMALL) as writer:
        writer.append_all(batches(1000 // size_of_one()))
        writer.append(batches(1, offset=5000)[0])
    assert segments(tmp_path) == [0, 5000]


def test_old_records_roll_by_their_own_time(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path, SegmentConfig(segment_ms=100), now_ms=lambda: 10**13) as writer:
        for offset, timestamp in enumerate((5000, 5100, 5101, 4000, 5202)):
            writer.append_all(batches(1, offset=offset, timestamp=timestamp))
    assert segments(tmp_path) == [0, 2, 4]


def test_a_full_index_rolls_the_segment(tmp_path: Path) -> None:
    config = SegmentConfig(index_interval_bytes=0, max_index_size=36)  # 4 offset entries, 3 time entries
    with PartitionWriter(tmp_path, config) as writer:
        for offset in range(7):
            writer.append_all(batches(1, offset=offset, timestamp=offset))
    # the first batch has no entry, the next two fill what the time index offers: one of its slots is kept
    assert segments(tmp_path) == [0, 3, 6]


def test_an_offset_far_from_the_base_gets_a_segment_of_its_own(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path) as writer:
        writer.append_all(batches(1, offset=2**31))
        writer.append_all(batches(1, offset=2**33))
    assert segments(tmp_path) == [0, 2**31, 2**33]


def test_rolling_by_hand_begins_at_the_log_end_and_leaves_an_empty_segment_alone(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path, base_offset=7) as writer:
        writer.roll()
        assert segments(tmp_path) == [7]
        writer.append_all(batches(2, offset=9))
        writer.roll()
        writer.roll()
        assert writer.next_offset == 11
    assert segments(tmp_path) == [7, 11]


def test_rolled_segments_have_trimmed_indexes_and_the_active_one_is_preallocated(tmp_path: Path) -> None:
    writer = PartitionWriter(tmp_path, SMALL)
    writer.append_all(batches(20))
    first, *_, last = segments(tmp_path)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert (sizes[f"{first:020d}.index"], sizes[f"{first:020d}.timeindex"]) == (0, 12)
    assert (sizes[f"{last:020d}.index"], sizes[f"{last:020d}.timeindex"]) == (10 << 20, (10 << 20) // 12 * 12)
    writer.close()
    assert (tmp_path / f"{last:020d}.index").stat().st_size == 0


# ---- snapshots


def test_rolls_and_the_clean_close_leave_empty_snapshots_named_after_the_next_offset(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path, SMALL) as writer:
        writer.append_all(batches(20))
    _, *rolled = segments(tmp_path)
    (golden,) = [log for log in golden_logs(topic="segments", crashed=False) if log.partition == 0]
    empty = (golden.directory / f"{600:020d}.snapshot").read_bytes()
    snapshots = {path.stem: path.read_bytes() for path in tmp_path.glob("*.snapshot")}
    assert snapshots == {f"{offset:020d}": empty for offset in [*rolled, 20]}


def test_an_empty_log_gets_no_snapshot(tmp_path: Path) -> None:
    PartitionWriter(tmp_path).close()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".index", ".log", ".timeindex"]


def test_no_empty_snapshot_is_written_once_a_producer_has_state(tmp_path: Path) -> None:
    """An empty one would make a broker forget the producer; without one it reads the log."""
    with PartitionWriter(tmp_path, SMALL) as writer:
        writer.append_all(batches(20, producer_id=5, producer_epoch=0, base_sequence=0))
    assert len(segments(tmp_path)) > 1
    assert not list(tmp_path.glob("*.snapshot"))


@pytest.mark.parametrize("recover", [False, True])
def test_no_empty_snapshot_is_written_to_a_log_that_had_producers_when_it_was_opened(
    tmp_path: Path, recover: bool
) -> None:
    (log,) = [log for log in golden_logs(topic="idempotent", crashed=False) if log.partition == 0]
    for name, data in files(log.directory).items():
        (tmp_path / name).write_bytes(data)
    with PartitionWriter(tmp_path, recover=recover) as writer:
        writer.append_all(batches(3, offset=300, leader_epoch=2))
        writer.roll()
        writer.append_all(batches(3, offset=303, leader_epoch=2))
    assert [path.stem for path in tmp_path.glob("*.snapshot")] == [f"{300:020d}"]


def test_a_log_closed_without_producers_goes_on_with_empty_snapshots(tmp_path: Path) -> None:
    for start in (0, 3):
        with PartitionWriter(tmp_path) as writer:
            writer.append_all(batches(3, offset=start))
    assert sorted(path.stem for path in tmp_path.glob("*.snapshot")) == [f"{3:020d}", f"{6:020d}"]


def test_snapshots_of_records_that_recovery_cut_off_are_removed(tmp_path: Path) -> None:
    for start in (0, 3):
        with PartitionWriter(tmp_path) as writer:
            writer.append_all(batches(3, offset=start))
    path = tmp_path / f"{0:020d}.log"
    os.truncate(path, path.stat().st_size - 1)
    PartitionWriter(tmp_path).abandon()
    assert [path.stem for path in tmp_path.glob("*.snapshot")] == [f"{3:020d}"]


def test_the_snapshot_hook_is_told_every_roll_and_the_close(tmp_path: Path) -> None:
    told: list[int] = []
    with PartitionWriter(tmp_path, SMALL, on_roll=told.append) as writer:
        writer.append_all(batches(20))
    assert told == [*segments(tmp_path)[1:], 20]
    assert not list(tmp_path.glob("*.snapshot"))


# ---- leader epochs


def test_the_epoch_checkpoint_is_written_when_an_epoch_begins(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path) as writer:
        assert writer.leader_epoch == -1
        for offset, epoch in enumerate((0, 0, 3, 3, 4)):
            writer.append_all(batches(1, offset=offset, leader_epoch=epoch))
        assert writer.leader_epoch == 4
        assert read_leader_epochs(tmp_path / "leader-epoch-checkpoint") == [(0, 0), (3, 2), (4, 4)]


def test_an_epoch_that_never_wrote_gives_its_place_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 1\n")
    with PartitionWriter(tmp_path) as writer:
        writer.append_all(batches(1, leader_epoch=2))
        writer.append_all(batches(1, offset=1, leader_epoch=5))
    assert read_leader_epochs(tmp_path / "leader-epoch-checkpoint") == [(0, 0), (5, 1)]


def test_an_epoch_that_goes_back_is_refused(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path) as writer:
        writer.append_all(batches(1, leader_epoch=2))
        with pytest.raises(InvalidRecord, match="epoch 1 cannot follow epoch 2"):
            writer.append_all(batches(1, offset=1, leader_epoch=1))
        assert writer.next_offset == 1


# ---- opening again


@pytest.mark.parametrize("recover", [False, True])
def test_a_log_closed_cleanly_goes_on(tmp_path: Path, recover: bool) -> None:
    for start in (0, 17):
        with PartitionWriter(tmp_path, SMALL, recover=recover) as writer:
            assert (writer.next_offset, writer.truncated_bytes) == (start, 0)
            writer.append_all(batches(17, offset=start))
    assert offsets(tmp_path) == list(range(34))


def test_after_a_crash_the_torn_end_is_cut_and_the_log_goes_on(tmp_path: Path) -> None:
    writer = PartitionWriter(tmp_path, SMALL)
    writer.append_all(batches(17))
    path = writer.active.path
    writer.abandon()
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(CorruptBatch):
        PartitionWriter(tmp_path, SMALL, recover=False)
    with PartitionWriter(tmp_path, SMALL) as writer:
        assert (writer.next_offset, writer.truncated_bytes) == (16, size_of_one() - 1)
        writer.append_all(batches(2, offset=16))
    assert offsets(tmp_path) == list(range(18))


def test_epochs_that_recovery_cut_off_are_forgotten(tmp_path: Path) -> None:
    writer = PartitionWriter(tmp_path)
    writer.append_all(batches(2, leader_epoch=0))
    writer.append_all(batches(1, offset=2, leader_epoch=1))
    writer.abandon()
    path = tmp_path / f"{0:020d}.log"
    os.truncate(path, path.stat().st_size - 1)
    with PartitionWriter(tmp_path) as writer:
        assert writer.leader_epochs == [EpochEntry(0, 0)]


def test_a_log_that_kafka_wrote_goes_on(tmp_path: Path) -> None:
    """Of the golden compacted log, with its gaps: the last segment is the one that grows."""
    (log,) = golden_logs(topic="compacted", crashed=False)
    for name, data in files(log.directory).items():
        (tmp_path / name).write_bytes(data)
    with PartitionWriter(tmp_path) as writer:
        assert writer.next_offset == log.high_watermark
        writer.append_all(batches(3, offset=writer.next_offset, leader_epoch=writer.leader_epoch))
    assert offsets(tmp_path)[-4:] == [log.high_watermark + i for i in (-1, 0, 1, 2)]


def test_a_directory_with_an_unfinished_cleaning_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log.swap").touch()
    with pytest.raises(CorruptLog, match="let a broker load"):
        PartitionWriter(tmp_path)


def test_files_of_deleted_segments_and_strangers_do_not_matter(tmp_path: Path) -> None:
    for name in (f"{9:020d}.log.deleted", f"{8:020d}.log.cleaned", f"{7:020d}.index", "notes.log"):
        (tmp_path / name).touch()
    with PartitionWriter(tmp_path) as writer:
        assert writer.active.base_offset == 0


# ---- errors


def test_offsets_that_go_back_and_batches_larger_than_a_segment_are_refused(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path, SMALL) as writer:
        writer.append_all(batches(3))
        with pytest.raises(InvalidRecord, match="cannot follow the log end offset 3") as caught:
            writer.append_all(batches(1, offset=2))
        assert caught.value.offset == 2
        large = encode_batches(pa.record_batch({"value": [bytes(1000)]}), 3, BatchParams(), 0)
        with pytest.raises(InvalidRecord, match="does not fit into a segment of 1000"):
            writer.append_all(list(large))
        assert segments(tmp_path) == [0]
        writer.append_all(batches(1, offset=3))
    assert offsets(tmp_path) == [0, 1, 2, 3]


def test_a_roll_that_fails_is_tried_again_by_the_next_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    per_segment = 1000 // size_of_one()
    with PartitionWriter(tmp_path, SMALL) as writer:
        writer.append_all(batches(per_segment))
        with monkeypatch.context() as patch:
            patch.setattr(SegmentWriter, "create", full)
            with pytest.raises(OSError, match="No space left"):
                writer.append_all(batches(1, offset=per_segment))
        assert segments(tmp_path) == [0]
        writer.append_all(batches(1, offset=per_segment))
    assert segments(tmp_path) == [0, per_segment]
    assert offsets(tmp_path) == list(range(per_segment + 1))


def test_an_error_inside_the_block_leaves_a_log_that_recovery_opens(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), PartitionWriter(tmp_path) as writer:  # noqa: PT012
        writer.append_all(batches(3))
        raise RuntimeError
    with PartitionWriter(tmp_path) as writer:
        assert writer.next_offset == 3


# ---- flushing


def test_flush_syncs_every_segment_written_and_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        fsync(fd)

    with PartitionWriter(tmp_path / "p", SMALL) as writer:
        writer.append_all(batches(20))
        assert writer.recovery_point == 0
        monkeypatch.setattr(os, "fsync", note)
        writer.flush()
        monkeypatch.undo()
        assert writer.recovery_point == 20
    names = {f"{base:020d}{suffix}" for base in segments(tmp_path / "p") for suffix in (".log", ".index", ".timeindex")}
    assert len(segments(tmp_path / "p")) > 1
    assert set(synced) == names | {"p"}
    assert synced[-1] == "p"


def test_many_rolled_segments_do_not_keep_their_files_open(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path, SegmentConfig(segment_bytes=100)) as writer:
        writer.append_all(batches(40))
        opened = [name for fd in os.listdir("/proc/self/fd") if str(tmp_path) in (name := _target(fd))]
        assert len(opened) <= 3 * (partition_writer._MAX_UNFLUSHED + 1)
    assert len(segments(tmp_path)) == 40


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # the one that lists the directory
        return ""


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_what_is_written_is_read_back(tmp_path: Path, codec: Codec) -> None:
    records = pa.record_batch({"value": [b"%d" % i * (i % 50) for i in range(3000)]})
    with PartitionWriter(tmp_path, SegmentConfig(segment_bytes=20_000)) as writer:
        for batch in encode_batches(records, 0, BatchParams(codec=codec, batch_size=5000), 1000):
            writer.append(batch)
    values = [r.value for path in sorted(tmp_path.glob("*.log")) for b in decode_log(path) for r in b.records]
    assert values == records["value"].to_pylist()
