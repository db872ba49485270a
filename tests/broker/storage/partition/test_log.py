"""One log: appends, transactions, reads, leader epochs, subscribers and close."""

from __future__ import annotations

import struct

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.partition.leader_epoch_lookup import check_leader_epoch, end_offset_for_epoch
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import parse_header
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.producer_snapshot import read_producer_snapshot
from tests.broker.storage.helpers.stored_logs import (
    NOW,
    append_records,
    code_of,
    log_bytes,
    new_log,
    producer,
    read_all,
    reopened,
    sent,
    validated,
)
from tests.log.helpers.batch_builder import TRANSACTIONAL


def test_new_log_has_the_files_of_a_kafka_log(log):
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


def test_append_assigns_the_next_offsets_and_the_leader_epoch(log):
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


def test_append_returns_the_log_append_time(tmp_path):
    log = new_log(tmp_path, message_timestamp_type="LogAppendTime")
    batch = validate_batch(sent(2), log.config, NOW + 5)
    assert log.append(batch, NOW + 5).log_append_time_ms == NOW + 5
    log.discard()


def test_append_of_a_batch_larger_than_a_segment_is_refused_and_changes_nothing(tmp_path):
    log = new_log(tmp_path, segment_bytes=500)
    assert code_of(log.append, validated(1, size=1000), NOW) == ErrorCode.record_list_too_large
    assert log.log_end_offset == 0
    log.append(validated(1), NOW)
    log.discard()


def test_append_of_a_duplicate_returns_the_first_offsets_and_writes_nothing(log):
    for sequence in range(0, 10, 2):
        log.append(producer(sequence, 2), NOW)
    before = log_bytes(log)
    info = log.append(producer(4, 2), NOW)
    assert (info.base_offset, info.last_offset, info.is_duplicate) == (4, 5, True)
    assert (log_bytes(log), log.log_end_offset) == (before, 10)


def test_append_with_an_out_of_order_sequence_leaves_the_log_unchanged(log):
    log.append(producer(0), NOW)
    assert code_of(log.append, producer(5), NOW) == ErrorCode.out_of_order_sequence_number
    assert log.log_end_offset == 1
    assert log.append(producer(1), NOW).base_offset == 1


def test_duplicate_batch_is_detected_after_a_clean_restart(tmp_path):
    log = new_log(tmp_path)
    log.append(producer(0, 3), NOW)
    log.close()
    again = reopened(tmp_path)
    assert again.append(producer(0, 3), NOW).is_duplicate
    assert again.append(producer(3), NOW).base_offset == 3
    again.discard()


def test_log_appends_internal_records_given_as_pairs_or_as_a_batch(log):
    assert append_records(log, [(b"k", b"v"), (b"k2", None), (None, b"")], NOW) == (0, 2, -1, 0, False)
    assert log.append_batch(sent(2), NOW).base_offset == 3
    from tests.log.helpers.plain_decoder import decode_records

    rows = [(row.offset, row.key, row.value) for row in decode_records(log_bytes(log))]
    assert rows[:3] == [(0, b"k", b"v"), (1, b"k2", None), (2, None, b"")]
    assert [offset for offset, _, _ in rows[3:]] == [3, 4]


def test_last_stable_offset_stays_at_an_open_transaction_until_its_marker(log):
    log.append(validated(2), NOW)
    log.append(producer(0, 2, attributes=TRANSACTIONAL), NOW)
    log.append(validated(1), NOW)
    assert (log.high_watermark, log.last_stable_offset) == (5, 2)
    assert read_all(log, up_to=2) == log_bytes(log)[: parse_header(log_bytes(log), 0, 0).size]
    log.append_control(ControlType.ABORT, 7, 0, 0, NOW)
    assert log.last_stable_offset == log.high_watermark == 6
    assert [one[:2] for one in log.aborted_transactions(0, 6)] == [(7, 2)]
    assert [one[:2] for one in log.aborted_transactions(0, 2)] == []


def test_open_and_aborted_transactions_are_restored_after_a_clean_restart(tmp_path):
    log = new_log(tmp_path)
    log.append(producer(0, attributes=TRANSACTIONAL), NOW)
    log.append_control(ControlType.ABORT, 7, 0, 0, NOW)
    log.append(producer(1, attributes=TRANSACTIONAL), NOW)
    log.close()
    again = reopened(tmp_path)
    assert (again.last_stable_offset, again.high_watermark) == (2, 3)
    assert [one[:2] for one in again.aborted_transactions(0, 3)] == [(7, 0)]
    again.append_control(ControlType.ABORT, 7, 0, 0, NOW)
    assert [one[:2] for one in again.aborted_transactions(0, 4)] == [(7, 0), (7, 2)]
    again.discard()


def test_read_from_the_middle_of_a_batch_returns_the_whole_batch(log):
    log.append(validated(10), NOW)
    data = log_bytes(log)
    for offset in range(10):
        assert log.read_range(offset, 1 << 20, up_to=10, at_least_one=False).chunks == [data]


def test_first_batch_above_max_bytes_is_returned_only_with_at_least_one(log):
    log.append(validated(10), NOW)
    log.append(validated(10), NOW)
    size = log.size_bytes // 2
    assert log.read_range(0, size - 1, up_to=20, at_least_one=False).chunks == []
    assert len(log.read_range(0, size - 1, up_to=20, at_least_one=True).chunks[0]) == size
    assert len(log.read_range(0, size, up_to=20, at_least_one=False).chunks[0]) == size
    assert len(log.read_range(0, 2 * size - 1, up_to=20, at_least_one=False).chunks[0]) == size
    assert len(log.read_range(0, 2 * size, up_to=20, at_least_one=False).chunks[0]) == 2 * size


def test_read_outside_the_log_is_offset_out_of_range(log):
    log.append(validated(10), NOW)
    assert log.read_range(10, 100, up_to=10, at_least_one=True).chunks == []
    assert code_of(log.read_range, 11, 100, up_to=10, at_least_one=True) == ErrorCode.offset_out_of_range
    log.delete_records(4)
    assert code_of(log.read_range, 3, 100, up_to=10, at_least_one=True) == ErrorCode.offset_out_of_range
    assert log.read_range(4, 1000, up_to=10, at_least_one=True).chunks


def test_read_returns_no_batch_at_or_above_the_upper_bound(log):
    for _ in range(4):
        log.append(validated(5), NOW)
    data = log_bytes(log)
    assert log.read_range(0, 1 << 20, up_to=10, at_least_one=True).chunks == [data[: len(data) // 2]]
    assert log.read_range(10, 1 << 20, up_to=10, at_least_one=True).chunks == []
    assert log.read_range(12, 1 << 20, up_to=10, at_least_one=True).chunks == []


def test_subscriber_is_called_by_appends_until_it_unsubscribes(log):
    woken = []

    def wake():
        woken.append(log.high_watermark)

    log.subscribe(wake)
    log.subscribe(wake)
    log.append(validated(2), NOW)
    log.unsubscribe(wake)
    log.append(validated(2), NOW)
    assert woken == [2]


def test_closed_log_wakes_subscribers_and_raises_unknown_partition(log):
    woken = []
    log.append(validated(2), NOW)
    log.subscribe(lambda: woken.append(1))
    log.discard()
    assert woken == [1]
    assert code_of(log.append, validated(1), NOW) == ErrorCode.unknown_topic_or_partition
    assert code_of(log.read_range, 0, 1, up_to=2, at_least_one=True) == ErrorCode.unknown_topic_or_partition


def test_clean_close_trims_indexes_and_writes_a_producer_snapshot_at_the_log_end(tmp_path):
    log = new_log(tmp_path)
    log.append(producer(0, 3), NOW)
    log.close()
    log.close()
    sizes = {path.name: path.stat().st_size for path in log.directory.iterdir()}
    assert sizes[f"{0:020d}.index"] == 0
    assert sizes[f"{0:020d}.timeindex"] == 12
    assert len(read_producer_snapshot(log.directory / f"{3:020d}.snapshot")) == 1
    assert log.recovery_point == 3


def test_close_of_an_unused_log_opens_no_segment(tmp_path):
    log = new_log(tmp_path)
    log.append(validated(3), NOW)
    log.close()
    again = reopened(tmp_path)
    assert again.segments[-1].writer is None
    assert read_all(again) == log_bytes(again)
    assert again.segments[-1].writer is None
    again.close()


def test_append_after_release_files_opens_the_files_again(log):
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


def test_older_leader_epoch_of_a_client_is_fenced_and_a_newer_one_unknown(log):
    check_leader_epoch(log, -1)
    check_leader_epoch(log, 0)
    assert code_of(check_leader_epoch, log, 1) == ErrorCode.unknown_leader_epoch
    log.epochs.assign(3, 0)
    assert code_of(check_leader_epoch, log, 2) == ErrorCode.fenced_leader_epoch
    assert end_offset_for_epoch(log, 3) == (3, 0)


def test_log_of_another_broker_continues_in_its_latest_epoch(tmp_path):
    log = new_log(tmp_path, options={"leader_epoch": 5})
    log.append(validated(1), NOW)
    log.close()
    again = reopened(tmp_path)
    again.append(validated(1), NOW)
    epochs = struct.unpack_from(">i", log_bytes(again)[again.size_bytes // 2 :], layout.LEADER_EPOCH_AT)
    assert epochs == (5,)
    assert (again.epochs.epoch_for_offset(1), end_offset_for_epoch(again, 5)) == (5, (5, 2))
    again.discard()
