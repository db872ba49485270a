"""The log of one partition: offsets, rolling, flushing, the log's beginning and end."""

from __future__ import annotations

import errno
import os
import random
import struct

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.batch_header import parse_header
from kafkalog_spark.log.format.layout import ControlType
from kafkalog_spark.log.format.producer_snapshot import read_producer_snapshot
from tests.broker.storage.storage_helpers import (
    NOW,
    log_bytes,
    log_config,
    new_log,
    read_all,
    reopened,
    sent,
    validated,
)
from tests.log.batch_builder import TRANSACTIONAL

HOUR = 3_600_000


@pytest.fixture
def log(tmp_path):
    made = new_log(tmp_path)
    yield made
    made.discard()


def bases(log):
    return [segment.base_offset for segment in log.segments]


def producer(sequence, how_many=1, *, epoch=0, pid=7, **fields):
    return validated(how_many, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **fields)


def code_of(call, *arguments, **named):
    with pytest.raises(BrokerError) as caught:
        call(*arguments, **named)
    return caught.value.code


# ---- appending


def test_a_new_log_has_the_files_that_kafka_makes(log):
    assert sorted(path.name for path in log.directory.iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert (log.directory / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
    assert (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.log_end_offset) == (0, 0, 0, 0)
    assert (log.leader_epoch, log.size_bytes) == (0, 0)


def test_batches_get_the_next_offsets_and_the_leader_epoch(log):
    assert log.append(validated(3), NOW) == (0, 2, -1, 0, False)
    assert log.append(validated(2), NOW) == (3, 4, -1, 0, False)
    data = log_bytes(log)
    first = parse_header(data, 0, 0)
    second = parse_header(data, first.end, first.end)
    assert [(header.base_offset, header.last_offset, header.leader_epoch) for header in (first, second)] == [
        (0, 2, 0),
        (3, 4, 0),
    ]
    assert log.high_watermark == log.last_stable_offset == log.log_end_offset == 5


def test_the_answer_tells_the_log_append_time(tmp_path):
    log = new_log(tmp_path, message_timestamp_type="LogAppendTime")
    batch = validate_batch(sent(2), log.config, NOW + 5)
    assert log.append(batch, NOW + 5).log_append_time_ms == NOW + 5
    log.discard()


def test_a_batch_larger_than_a_segment_is_refused_and_changes_nothing(tmp_path):
    log = new_log(tmp_path, segment_bytes=500)
    assert code_of(log.append, validated(1, size=1000), NOW) == ErrorCode.record_list_too_large
    assert log.log_end_offset == 0
    log.append(validated(1), NOW)
    log.discard()


def test_a_duplicate_gets_the_offsets_of_the_first_time_and_is_not_written(log):
    for sequence in range(0, 10, 2):
        log.append(producer(sequence, 2), NOW)
    before = log_bytes(log)
    info = log.append(producer(4, 2), NOW)
    assert (info.base_offset, info.last_offset, info.duplicate) == (4, 5, True)
    assert (log_bytes(log), log.log_end_offset) == (before, 10)


def test_a_refused_sequence_leaves_the_log_as_it_was(log):
    log.append(producer(0), NOW)
    assert code_of(log.append, producer(5), NOW) == ErrorCode.out_of_order_sequence_number
    assert log.log_end_offset == 1
    assert log.append(producer(1), NOW).base_offset == 1


def test_duplicates_are_known_after_a_clean_restart(tmp_path):
    log = new_log(tmp_path)
    log.append(producer(0, 3), NOW)
    log.close()
    again = reopened(tmp_path)
    assert again.append(producer(0, 3), NOW).duplicate
    assert again.append(producer(3), NOW).base_offset == 3
    again.discard()


def test_records_of_the_broker_itself_are_appended_as_pairs_and_as_a_batch(log):
    assert log.append_records([(b"k", b"v"), (b"k2", None), (None, b"")], NOW) == (0, 2, -1, 0, False)
    assert log.append_batch(sent(2), NOW).base_offset == 3
    from tests.log.plain_decoder import decode_records

    rows = [(row.offset, row.key, row.value) for row in decode_records(log_bytes(log))]
    assert rows[:3] == [(0, b"k", b"v"), (1, b"k2", None), (2, None, b"")]
    assert [offset for offset, _, _ in rows[3:]] == [3, 4]


# ---- transactions


def test_the_last_stable_offset_waits_for_the_marker(log):
    log.append(validated(2), NOW)
    log.append(producer(0, 2, attributes=TRANSACTIONAL), NOW)
    log.append(validated(1), NOW)
    assert (log.high_watermark, log.last_stable_offset) == (5, 2)
    assert read_all(log, up_to=2) == log_bytes(log)[: parse_header(log_bytes(log), 0, 0).size]
    log.append_control(ControlType.ABORT, 7, 0, 0, NOW)
    assert log.last_stable_offset == log.high_watermark == 6
    assert log.reader.aborted_transactions(0, 6) == [(7, 2)]
    assert log.reader.aborted_transactions(0, 2) == []


def test_an_open_transaction_and_aborts_survive_a_clean_restart(tmp_path):
    log = new_log(tmp_path)
    log.append(producer(0, attributes=TRANSACTIONAL), NOW)
    log.append_control(ControlType.ABORT, 7, 0, 0, NOW)
    log.append(producer(1, attributes=TRANSACTIONAL), NOW)
    log.close()
    again = reopened(tmp_path)
    assert (again.last_stable_offset, again.high_watermark) == (2, 3)
    assert again.reader.aborted_transactions(0, 3) == [(7, 0)]
    again.append_control(ControlType.ABORT, 7, 0, 0, NOW)
    assert again.reader.aborted_transactions(0, 4) == [(7, 0), (7, 2)]
    again.discard()


# ---- rolling


def test_a_full_segment_is_rolled_with_a_producer_snapshot_of_the_new_base(tmp_path):
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


def test_message_time_and_not_the_clock_rolls_a_segment(tmp_path):
    log = new_log(tmp_path, segment_ms=HOUR)
    log.append(validated(1, timestamp=NOW - 100 * HOUR), NOW)
    log.append(validated(1, timestamp=NOW - 100 * HOUR + HOUR), NOW + 50 * HOUR)
    assert bases(log) == [0]
    log.append(validated(1, timestamp=NOW - 100 * HOUR + HOUR + 1), NOW + 50 * HOUR)
    assert bases(log) == [0, 2]
    log.discard()


def test_the_jitter_makes_segments_roll_earlier(tmp_path):
    jitter = random.Random(5)
    expected = random.Random(5).randrange(HOUR // 2)
    log = new_log(tmp_path, segment_ms=HOUR, segment_jitter_ms=HOUR // 2, options={"jitter": jitter})
    log.append(validated(1), NOW)
    log.append(validated(1, timestamp=NOW + HOUR - expected), NOW)
    assert bases(log) == [0]
    log.append(validated(1, timestamp=NOW + HOUR - expected + 1), NOW)
    assert bases(log) == [0, 2]
    log.discard()


def test_a_full_index_rolls_the_segment(tmp_path):
    log = new_log(tmp_path, segment_index_bytes=24, index_interval_bytes=0)
    for i in range(6):
        log.append(validated(1, timestamp=NOW + i), NOW)
    assert bases(log) == [0, 2, 4]
    assert read_all(log) == log_bytes(log)
    log.discard()


def test_an_empty_segment_is_not_rolled(log):
    assert not log.roll(NOW)
    log.append(validated(1), NOW)
    assert log.roll(NOW)
    assert not log.roll(NOW)
    assert bases(log) == [0, 1]


# ---- flushing


def test_flush_moves_the_recovery_point(log):
    log.append(validated(3), NOW)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 3


def test_with_flush_messages_1_nothing_is_shown_before_it_is_on_disk(tmp_path):
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


def test_one_fsync_serves_all_that_wait(tmp_path, monkeypatch):
    log = new_log(tmp_path, flush_messages=1)
    log.flush()
    synced = []  # type: ignore[var-annotated]
    monkeypatch.setattr("kafkalog_broker.storage.partition.log_segment.os.fdatasync", synced.append)
    ends = [log.append(validated(1), NOW).last_offset + 1 for _ in range(5)]
    for end in ends:
        log.flush(end)
    assert len(synced) == 1
    log.discard()


def test_flush_messages_and_flush_ms_ask_for_a_flush(tmp_path):
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


def test_a_rolled_segment_asks_for_a_flush_and_gives_its_files_back(log):
    log.append(validated(1), NOW)
    log.roll(NOW)
    assert log.needs_flush(NOW)
    assert log.segments[0].writer is not None
    log.flush()
    assert not log.needs_flush(NOW)
    assert log.segments[0].writer is None


def test_a_flush_covers_segments_that_recovery_left_unflushed(tmp_path, monkeypatch):
    log = new_log(tmp_path)
    for _ in range(3):
        log.append(validated(1), NOW)
        log.roll(NOW)
    log.discard()
    again = reopened(tmp_path, clean=False)
    assert again.recovery_point == 0
    synced = []  # type: ignore[var-annotated]
    monkeypatch.setattr("kafkalog_broker.storage.partition.log_segment.os.fsync", synced.append)
    again.flush()
    assert len(synced) == 3 * 3 + 1  # .log, .index and .timeindex of the closed segments, and the directory
    assert again.recovery_point == 3
    again.discard()


# ---- reading


def test_a_fetch_inside_a_batch_gets_the_whole_batch(log):
    log.append(validated(10), NOW)
    data = log_bytes(log)
    for offset in range(10):
        assert log.reader.read_range(offset, 1 << 20, up_to=10, at_least_one=False).chunks == [data]


def test_the_first_batch_comes_whole_only_when_it_is_asked_for(log):
    log.append(validated(10), NOW)
    log.append(validated(10), NOW)
    size = log.size_bytes // 2
    assert log.reader.read_range(0, size - 1, up_to=20, at_least_one=False).chunks == []
    assert len(log.reader.read_range(0, size - 1, up_to=20, at_least_one=True).chunks[0]) == size
    assert len(log.reader.read_range(0, size, up_to=20, at_least_one=False).chunks[0]) == size
    assert len(log.reader.read_range(0, 2 * size - 1, up_to=20, at_least_one=False).chunks[0]) == size
    assert len(log.reader.read_range(0, 2 * size, up_to=20, at_least_one=False).chunks[0]) == 2 * size


def test_offsets_outside_of_the_log_are_out_of_range(log):
    log.append(validated(10), NOW)
    assert log.reader.read_range(10, 100, up_to=10, at_least_one=True).chunks == []
    assert code_of(log.reader.read_range, 11, 100, up_to=10, at_least_one=True) == ErrorCode.offset_out_of_range
    log.delete_records(4)
    assert code_of(log.reader.read_range, 3, 100, up_to=10, at_least_one=True) == ErrorCode.offset_out_of_range
    assert log.reader.read_range(4, 1000, up_to=10, at_least_one=True).chunks


def test_nothing_at_or_above_the_bound_is_read(log):
    for _ in range(4):
        log.append(validated(5), NOW)
    data = log_bytes(log)
    assert log.reader.read_range(0, 1 << 20, up_to=10, at_least_one=True).chunks == [data[: len(data) // 2]]
    assert log.reader.read_range(10, 1 << 20, up_to=10, at_least_one=True).chunks == []
    assert log.reader.read_range(12, 1 << 20, up_to=10, at_least_one=True).chunks == []


# ---- the log's beginning


def test_delete_records_moves_the_log_start_offset_and_wakes(log):
    woken = []
    log.append(validated(10), NOW)
    log.subscribe(lambda: woken.append(log.log_start_offset))
    assert log.delete_records(4) == 4
    assert log.delete_records(2) == 4
    assert log.delete_records(-1) == 10
    assert woken == [4, 10]
    assert (log.directory / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 10\n"
    assert code_of(log.delete_records, 11) == ErrorCode.offset_out_of_range
    assert code_of(log.delete_records, -2) == ErrorCode.offset_out_of_range


def test_records_of_a_compacted_topic_are_not_deleted(tmp_path):
    log = new_log(tmp_path, cleanup_policy=("compact",))
    assert code_of(log.delete_records, 0) == ErrorCode.policy_violation
    log.discard()


def three_segments(tmp_path, **config):
    log = new_log(tmp_path, **config)
    for i in range(3):
        log.append(validated(10, timestamp=NOW + i * HOUR), NOW)
        if i < 2:
            log.roll(NOW)
    return log


def test_retention_by_time_drops_whole_segments_from_the_oldest_on(tmp_path):
    log = three_segments(tmp_path, retention_ms=HOUR)
    removed = log.delete_old_segments(NOW + 2 * HOUR + 9)
    assert sorted(path.name for path in removed) == [
        f"{0:020d}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")
    ]
    assert all(path.exists() for path in removed)
    assert (bases(log), log.log_start_offset) == ([10, 20], 10)
    assert code_of(log.reader.read_range, 9, 100, up_to=30, at_least_one=True) == ErrorCode.offset_out_of_range
    assert read_all(log, 10) == log_bytes(log)
    log.flush()
    assert all(segment.writer is None for segment in log.segments[:-1])
    log.discard()


def test_when_all_segments_go_an_empty_one_stays_at_the_log_end(tmp_path):
    log = three_segments(tmp_path, retention_ms=HOUR)
    log.flush()
    removed = log.delete_old_segments(NOW + 100 * HOUR)
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([30], 30, 30)
    assert f"{10:020d}.snapshot.deleted" in {path.name for path in removed}
    assert log.append(validated(1), NOW).base_offset == 30
    assert log.delete_old_segments(NOW) == []
    log.discard()


def test_retention_by_size_and_by_log_start_offset(tmp_path):
    log = three_segments(tmp_path)
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


# ---- wake-ups and the end


def test_subscribers_are_woken_by_appends_until_they_leave(log):
    woken = []

    def wake():
        woken.append(log.high_watermark)

    log.subscribe(wake)
    log.subscribe(wake)
    log.append(validated(2), NOW)
    log.unsubscribe(wake)
    log.append(validated(2), NOW)
    assert woken == [2]


def test_a_log_that_goes_away_wakes_and_answers_that_it_is_gone(log):
    woken = []
    log.append(validated(2), NOW)
    log.subscribe(lambda: woken.append(1))
    log.discard()
    assert woken == [1]
    assert code_of(log.append, validated(1), NOW) == ErrorCode.unknown_topic_or_partition
    assert code_of(log.reader.read_range, 0, 1, up_to=2, at_least_one=True) == ErrorCode.unknown_topic_or_partition


def test_a_clean_close_leaves_trimmed_indexes_and_a_snapshot_of_the_log_end(tmp_path):
    log = new_log(tmp_path)
    log.append(producer(0, 3), NOW)
    log.close()
    log.close()
    sizes = {path.name: path.stat().st_size for path in log.directory.iterdir()}
    assert sizes[f"{0:020d}.index"] == 0
    assert sizes[f"{0:020d}.timeindex"] == 12
    assert len(read_producer_snapshot(log.directory / f"{3:020d}.snapshot")) == 1
    assert log.recovery_point == 3


def test_a_log_that_was_not_touched_is_closed_without_opening_its_segment(tmp_path):
    log = new_log(tmp_path)
    log.append(validated(3), NOW)
    log.close()
    again = reopened(tmp_path)
    assert again.segments[-1].writer is None
    assert read_all(again) == log_bytes(again)
    assert again.segments[-1].writer is None
    again.close()


def test_files_are_released_and_opened_again_by_the_next_append(log):
    log.append(validated(3, timestamp=NOW + 50), NOW)
    log.release_files()
    assert log.segments[-1].writer is None
    assert log.segments[-1].max_timestamp == (NOW + 52, 2)
    assert log.append(validated(3), NOW).base_offset == 3
    assert log.segments[-1].max_timestamp == (NOW + 52, 2)
    assert read_all(log) == log_bytes(log)
    log.release_files()
    log.flush()
    assert log.recovery_point == 6


def test_leader_epochs_of_clients_are_fenced_or_unknown(log):
    log.reader.check_leader_epoch(-1)
    log.reader.check_leader_epoch(0)
    assert code_of(log.reader.check_leader_epoch, 1) == ErrorCode.unknown_leader_epoch
    log._epochs.assign(3, 0)
    assert code_of(log.reader.check_leader_epoch, 2) == ErrorCode.fenced_leader_epoch
    assert log.reader.end_offset_for_epoch(3) == (3, 0)


def test_a_log_of_another_broker_goes_on_in_its_latest_epoch(tmp_path):
    log = new_log(tmp_path, options={"leader_epoch": 5})
    log.append(validated(1), NOW)
    log.close()
    again = reopened(tmp_path)
    again.append(validated(1), NOW)
    epochs = struct.unpack_from(">i", log_bytes(again)[again.size_bytes // 2 :], layout.LEADER_EPOCH_AT)
    assert epochs == (5,)
    assert (again.reader.epoch_of(1), again.reader.end_offset_for_epoch(5)) == (5, (5, 2))
    again.discard()


# ---- failures


class Broken:
    """A system call that fails from the n-th time on."""

    def __init__(self, original, after=0, error=28):
        self.original, self.left, self.error = original, after, error

    def __call__(self, *arguments):
        if self.left <= 0:
            raise OSError(self.error, "broken on purpose")
        self.left -= 1
        return self.original(*arguments)


@pytest.mark.parametrize("after", range(3))
def test_after_a_failed_write_the_log_is_offline_and_its_files_hold_what_was_acknowledged(tmp_path, monkeypatch, after):
    told = []
    log = new_log(tmp_path, index_interval_bytes=0, options={"on_failure": lambda *args: told.append(args)})
    log.append(producer(0, 3), NOW)
    acknowledged = log_bytes(log)
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", Broken(os.pwrite, after))
        code = code_of(log.append, producer(3, 3, timestamp=NOW + 10), NOW)
    assert code == ErrorCode.kafka_storage_error
    assert log_bytes(log) == acknowledged
    assert [(failed, error.errno) for failed, error in told] == [(log, 28)]
    for call in (
        lambda: log.append(validated(1), NOW),
        lambda: log.reader.read_range(0, 1, up_to=3, at_least_one=True).chunks,
        lambda: log.reader.offset_for_timestamp(0),
        lambda: log.flush(),
        lambda: log.delete_records(1),
        lambda: log.delete_old_segments(NOW),
    ):
        assert code_of(call) == ErrorCode.kafka_storage_error
    assert len(told) == 1
    assert not log.needs_flush(NOW)
    log.close()
    again = reopened(tmp_path, clean=False)
    assert again.append(producer(0, 3), NOW).duplicate
    assert again.append(producer(3, 3), NOW).base_offset == 3
    again.discard()


def test_a_failed_fsync_acknowledges_nothing(tmp_path, monkeypatch):
    log = new_log(tmp_path, flush_messages=1)
    log.append(validated(1), NOW)
    monkeypatch.setattr("os.fdatasync", Broken(None, error=5))
    assert code_of(log.flush) == ErrorCode.kafka_storage_error
    assert (log.high_watermark, log.recovery_point) == (0, 0)
    monkeypatch.undo()
    assert code_of(log.flush) == ErrorCode.kafka_storage_error
    log.discard()


def test_a_segment_that_cannot_be_made_takes_the_log_offline(tmp_path, monkeypatch):
    log = new_log(tmp_path, segment_bytes=300)
    log.append(validated(1, size=100), NOW)
    log.append(validated(1, size=50), NOW)
    (log.directory / f"{2:020d}.log").touch()
    assert code_of(log.append, validated(1, size=100), NOW) == ErrorCode.kafka_storage_error
    log.discard()
    again = reopened(tmp_path, clean=False)
    assert again.append(validated(1), NOW).base_offset == 2
    again.discard()


def test_a_segment_that_somebody_removed_takes_the_log_offline(tmp_path):
    log = three_segments(tmp_path)
    log.segments[0].forget_handles()
    (log.directory / f"{0:020d}.log").unlink()
    assert code_of(log.reader.read_range, 0, 1, up_to=30, at_least_one=True) == ErrorCode.kafka_storage_error
    log.discard()


# ---- too many open files


@pytest.fixture
def out_of_descriptors(monkeypatch):
    """From its call on nothing can be opened; undone by another call."""
    open_file = os.open
    lacking: list[int] = []

    def refuse(*arguments, **named):
        if lacking:
            raise OSError(errno.EMFILE, "Too many open files")
        return open_file(*arguments, **named)

    monkeypatch.setattr(os, "open", refuse)
    return lambda on=True: lacking.append(1) if on else lacking.clear()


OPERATIONS = {
    "append to a log whose files are closed": lambda log: log.append(validated(), NOW),
    "append that rolls": lambda log: log.append(validated(timestamp=NOW + 8 * 24 * HOUR), NOW),
    "roll": lambda log: log.roll(NOW),
    "read": read_all,
    "offset of a timestamp": lambda log: log.reader.offset_for_timestamp(NOW),
    "aborted transactions": lambda log: log.reader.aborted_transactions(0, 2),
    "flush": lambda log: log.flush(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_too_many_open_files_refuse_an_operation_and_leave_the_log_online(tmp_path, operation, out_of_descriptors):
    log = new_log(tmp_path)
    log.append(validated(2, size=5000), NOW)
    log.append(producer(0), NOW)
    if operation != "append that rolls":
        log.release_files()
    for segment in log.segments:
        segment.forget_handles()
    before = log_bytes(log), log.log_end_offset, log.recovery_point
    out_of_descriptors()
    if operation != "aborted transactions":  # there are none, and nothing to open
        with pytest.raises(BrokerError, match="ulimit -n") as refused:
            OPERATIONS[operation](log)
        assert refused.value.code is ErrorCode.kafka_storage_error
    out_of_descriptors(False)
    assert (log_bytes(log), log.log_end_offset, log.recovery_point) == before
    assert log.failure is None
    OPERATIONS[operation](log)
    log.append(producer(1), NOW)
    log.flush()
    assert log.recovery_point == log.log_end_offset
    log.close()
    again = reopened(tmp_path)
    assert again.log_end_offset == log.log_end_offset
    again.discard()


# ---- settings of segments


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


def test_the_jitter_stays_below_what_max_compaction_lag_allows(tmp_path):
    log = new_log(tmp_path, cleanup_policy=("compact",), max_compaction_lag_ms=1000, segment_jitter_ms=HOUR)
    assert all(segment.jitter_ms < 1000 for segment in log.segments)
    log.discard()


def test_an_index_has_an_entry_every_megabyte_whatever_the_interval(tmp_path):
    """A look-up goes through what lies between two entries, while others wait."""
    log = new_log(tmp_path, index_interval_bytes=2**31 - 1)
    for _ in range(34):
        log.append(validated(size=100_000), NOW)
    writer = log.segments[0].writer
    assert writer is not None
    assert writer.offset_index.entries == 3
    log.discard()


def sizes(log):
    return [(log.directory / f"{base:020d}.log").stat().st_size for base in bases(log)]


def test_preallocate_gives_the_active_segment_its_size_and_takes_it_back(tmp_path):
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


def test_a_crash_of_a_log_with_preallocated_segments_loses_nothing(tmp_path):
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
