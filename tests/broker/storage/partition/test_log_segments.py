"""Segments of a log: roll, flush, retention, preallocation."""

from __future__ import annotations

import os
import random
from pathlib import Path

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.storage.partition import local_log
from kafkalog_spark.format.producer_snapshot import read_producer_snapshot
from tests.broker.storage.helpers.stored_logs import (
    HOUR,
    NOW,
    bases,
    code_of,
    log_bytes,
    log_config,
    new_log,
    producer,
    read_all,
    reopened,
    sizes,
    three_segments,
    validated,
)


def test_roll_of_a_full_segment_writes_a_producer_snapshot_at_the_next_flush(tmp_path):
    log = new_log(tmp_path, segment_bytes=400)
    for sequence in range(8):
        log.append(producer(sequence, size=100), NOW)
    assert len(bases(log)) > 2
    for base in bases(log)[1:]:
        assert not (log.directory / f"{base:020d}.snapshot").exists(), "it is written where nobody waits for it"
    log.flush()
    for base in bases(log)[1:]:
        (entry,) = read_producer_snapshot(log.directory / f"{base:020d}.snapshot")
        assert (entry.producer_id, entry.last_sequence, entry.last_offset) == (7, base - 1, base - 1)
    assert all(segment.size <= 400 for segment in log.segments)
    old = bases(log)[0]
    assert (log.directory / f"{old:020d}.index").stat().st_size % 8 == 0
    assert (log.directory / f"{old:020d}.timeindex").stat().st_size == 12
    log.discard()


def test_segment_ms_rolls_a_segment_by_record_timestamps(tmp_path):
    log = new_log(tmp_path, segment_ms=HOUR)
    log.append(validated(1, timestamp=NOW - 100 * HOUR), NOW)
    log.append(validated(1, timestamp=NOW - 100 * HOUR + HOUR), NOW + 50 * HOUR)
    assert bases(log) == [0]
    log.append(validated(1, timestamp=NOW - 100 * HOUR + HOUR + 1), NOW + 50 * HOUR)
    assert bases(log) == [0, 2]
    log.discard()


def test_segment_jitter_ms_rolls_a_segment_earlier(tmp_path, monkeypatch):
    monkeypatch.setattr(local_log, "_JITTER", random.Random(5))
    expected = random.Random(5).randrange(HOUR // 2)
    log = new_log(tmp_path, segment_ms=HOUR, segment_jitter_ms=HOUR // 2)
    log.append(validated(1), NOW)
    log.append(validated(1, timestamp=NOW + HOUR - expected), NOW)
    assert bases(log) == [0]
    log.append(validated(1, timestamp=NOW + HOUR - expected + 1), NOW)
    assert bases(log) == [0, 2]
    log.discard()


def test_full_index_rolls_the_segment(tmp_path):
    log = new_log(tmp_path, segment_index_bytes=24, index_interval_bytes=0)
    for i in range(6):
        log.append(validated(1, timestamp=NOW + i), NOW)
    assert bases(log) == [0, 2, 4]
    assert read_all(log) == log_bytes(log)
    log.discard()


def test_flush_advances_the_recovery_point(log):
    log.append(validated(3), NOW)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 3


def test_log_with_flush_messages_1_advances_the_high_watermark_only_after_a_flush(tmp_path):
    log = new_log(tmp_path, flush_messages=1)
    woken = []
    log.subscribe(lambda: woken.append(log.high_watermark))
    log.append(validated(3), NOW)
    assert (log.high_watermark, log.log_end_offset, woken) == (0, 3, [])
    assert log.needs_flush(NOW)
    log.flush(3)
    assert (log.high_watermark, woken) == (3, [3])
    assert not log.needs_flush(NOW)
    log.update_config(log_config())
    log.append(validated(1), NOW)
    assert log.high_watermark == 4
    log.discard()


def test_flush_of_several_waiting_appends_calls_fsync_once(tmp_path, monkeypatch):
    log = new_log(tmp_path, flush_messages=1)
    log.flush()
    synced = []  # type: ignore[var-annotated]
    monkeypatch.setattr("kafkalog_broker.storage.partition.log_segment.os.fdatasync", synced.append)
    ends = [log.append(validated(1), NOW).last_offset + 1 for _ in range(5)]
    for end in ends:
        log.flush(end)
    assert len(synced) == 1
    log.discard()


def test_log_needs_a_flush_after_flush_messages_or_flush_ms(tmp_path):
    log = new_log(tmp_path, flush_messages=3, flush_ms=1000)
    log.append(validated(2), NOW)
    assert not log.needs_flush(NOW + 999)
    assert log.needs_flush(NOW + 1000)
    log.append(validated(1), NOW)
    assert log.needs_flush(NOW)
    log.flush()
    assert not log.needs_flush(NOW + 10_000)
    log.append(validated(1), NOW + 10_000)
    assert not log.needs_flush(NOW + 10_999)
    assert log.needs_flush(NOW + 11_000)
    log.discard()


def test_rolled_segment_needs_a_flush_that_closes_its_files(log):
    log.append(validated(1), NOW)
    log.local.roll(NOW)
    assert log.needs_flush(NOW)
    assert log.segments[0].writer is not None
    log.flush()
    assert not log.needs_flush(NOW)
    assert log.segments[0].writer is None


def test_flush_after_recovery_syncs_all_recovered_segments(tmp_path, monkeypatch):
    log = new_log(tmp_path)
    for _ in range(3):
        log.append(validated(1), NOW)
        log.local.roll(NOW)
    log.discard()
    again = reopened(tmp_path, clean=False)
    assert again.recovery_point == 0
    synced = []  # type: ignore[var-annotated]
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name))
    again.flush()
    files = [f"{base:020d}{suffix}" for base in range(3) for suffix in (".log", ".index", ".timeindex")]
    assert sorted(synced) == sorted([*files, again.directory.name])
    assert again.recovery_point == 3
    again.discard()


def test_delete_records_advances_the_log_start_offset_and_calls_subscribers(log):
    woken = []
    log.append(validated(10), NOW)
    log.subscribe(lambda: woken.append(log.log_start_offset))
    assert log.delete_records(4) == 4
    assert log.delete_records(2) == 4
    assert log.delete_records(-1) == 10
    assert woken == [4, 10]
    assert not log.epochs.is_flushed
    log.flush_epochs()
    assert (log.directory / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 10\n"
    assert code_of(log.delete_records, 11) == ErrorCode.offset_out_of_range
    assert code_of(log.delete_records, -2) == ErrorCode.offset_out_of_range


def test_delete_records_of_a_compacted_topic_is_policy_violation(tmp_path):
    log = new_log(tmp_path, cleanup_policy=("compact",))
    assert code_of(log.delete_records, 0) == ErrorCode.policy_violation
    log.discard()


def test_retention_ms_deletes_whole_segments_from_the_oldest_on(tmp_path):
    log = three_segments(tmp_path, retention_ms=HOUR)
    assert log.delete_old_segments(NOW + 2 * HOUR + 9) == [], "what follows is not on disk yet"
    log.flush()
    removed = log.delete_old_segments(NOW + 2 * HOUR + 9)
    assert sorted(path.name for path in removed) == [
        f"{0:020d}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")
    ]
    assert all(path.exists() for path in removed)
    assert (bases(log), log.log_start_offset) == ([10, 20], 10)
    assert code_of(log.read_range, 9, 100, up_to=30, at_least_one=True) == ErrorCode.offset_out_of_range
    assert read_all(log, 10) == log_bytes(log)
    assert all(segment.writer is None for segment in log.segments[:-1])
    log.discard()


def test_retention_of_all_segments_leaves_an_empty_one_at_the_log_end(tmp_path):
    log = three_segments(tmp_path, retention_ms=HOUR)
    log.flush()
    assert log.delete_old_segments(NOW + 100 * HOUR) == [], "the new segment is not on disk yet"
    assert bases(log) == [0, 10, 20, 30]
    log.flush()
    removed = log.delete_old_segments(NOW + 100 * HOUR)
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([30], 30, 30)
    assert f"{10:020d}.snapshot.deleted" in {path.name for path in removed}
    assert log.append(validated(1), NOW).base_offset == 30
    assert log.delete_old_segments(NOW) == []
    log.discard()


def test_retention_bytes_and_log_start_offset_delete_segments(tmp_path):
    log = three_segments(tmp_path)
    log.flush()
    log.update_config(log_config(retention_bytes=log.size_bytes - 1))
    assert log.delete_old_segments(NOW) == []
    log.update_config(log_config(retention_bytes=log.size_bytes - log.segments[0].size))
    assert log.delete_old_segments(NOW)
    assert bases(log) == [10, 20]
    log.update_config(log_config(cleanup_policy=("compact",)))
    assert log.delete_old_segments(NOW + 1000 * HOUR) == []
    log.update_config(log_config())
    log.delete_records(25)
    log.delete_old_segments(NOW)
    assert (bases(log), log.log_start_offset) == ([20], 25)
    log.discard()


def test_max_compaction_lag_rolls_the_active_segment_of_a_compacted_topic(tmp_path):
    """The cleaner does not touch the active segment (LogConfig.maxSegmentMs, KAFKA-979)."""
    for number, (policy, lag, rolls) in enumerate(
        [(("compact",), HOUR, True), (("compact", "delete"), HOUR, True), (("delete",), HOUR, False),
         (("compact",), 2**63 - 1, False)]
    ):  # fmt: skip
        log = new_log(tmp_path / str(number), cleanup_policy=policy, max_compaction_lag_ms=lag)
        for hours in range(4):
            log.append(validated(timestamp=NOW + hours * HOUR + hours), NOW)
        assert bases(log) == ([0, 1, 2, 3] if rolls else [0])
        log.discard()


def test_segment_jitter_stays_below_max_compaction_lag_ms(tmp_path):
    log = new_log(tmp_path, cleanup_policy=("compact",), max_compaction_lag_ms=1000, segment_jitter_ms=HOUR)
    assert all(segment.jitter_ms < 1000 for segment in log.segments)
    log.discard()


def test_offset_index_has_an_entry_every_megabyte_despite_a_larger_interval(tmp_path):
    """A lookup scans the batches between two entries in the event loop, so their distance is limited."""
    log = new_log(tmp_path, index_interval_bytes=2**31 - 1)
    for _ in range(34):
        log.append(validated(size=100_000), NOW)
    writer = log.segments[0].writer
    assert writer is not None
    assert writer.offset_index.entries == 3
    log.discard()


def test_preallocated_segment_has_full_size_while_active_and_is_trimmed_afterwards(tmp_path):
    log = new_log(tmp_path, preallocate=True, segment_bytes=4096)
    for _ in range(4):
        log.append(validated(size=1500), NOW)
    batch_size = log.size_bytes // 4
    assert sizes(log) == [2 * batch_size, 4096], "the rolled one is cut to its batches, as in Kafka"
    before = read_all(log)
    assert len(before) == 4 * batch_size
    log.flush()
    log.release_files()
    assert sizes(log) == [2 * batch_size] * 2, "an idle log gives its files back whole"
    log.append(validated(size=10), NOW)
    log.close()
    assert sum(sizes(log)) == log.size_bytes
    again = reopened(tmp_path, preallocate=True, segment_bytes=4096)
    assert read_all(again).startswith(before)
    again.discard()


def test_recovery_of_a_preallocated_segment_loses_no_record(tmp_path):
    log = new_log(tmp_path, preallocate=True, segment_bytes=4096)
    for _ in range(3):
        log.append(validated(size=1500), NOW)
    before = read_all(log)
    assert sizes(log)[-1] == 4096
    log.discard()
    again = reopened(tmp_path, clean=False, preallocate=True, segment_bytes=4096)
    assert read_all(again) == before
    assert sum(sizes(again)) == len(before)
    again.append(validated(size=1500), NOW)
    assert again.log_end_offset == 4
    again.close()
