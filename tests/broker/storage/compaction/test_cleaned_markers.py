"""How long compaction keeps tombstones, empty batches and transaction markers."""

from __future__ import annotations

from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.transaction_index import AbortedTransaction
from tests.broker.storage.helpers.cleaned_logs import (
    DAY_MS,
    append,
    append_transactional,
    batches_of,
    clean,
    compacted_log,
    end_transaction,
    records_of,
)
from tests.broker.storage.helpers.stored_logs import NOW, read_all, reopened

HORIZON = 0x40


def test_cleaner_keeps_the_last_batch_of_a_round_empty_to_keep_its_offsets(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"))
    append(log, (None, b"1"), (None, b"2"))
    clean(log)
    _, last = batches_of(log)
    assert (last.base_offset, last.last_offset, last.records, last.size) == (1, 2, (), 61)
    assert (last.base_timestamp, last.max_timestamp) == (-1, NOW + 1)
    assert read_all(log, 1)[:8] == (1).to_bytes(8, "big")


def test_cleaner_keeps_the_last_batch_of_a_producer_empty_until_the_producer_expires(tmp_path):
    log = compacted_log(tmp_path)
    producer = {"producer_id": 5, "producer_epoch": 1}
    append(log, (b"a", b"1"), base_sequence=0, **producer)
    append(log, (b"a", b"2"), (b"b", b"1"), base_sequence=1, **producer)
    append(log, (b"a", b"3"), (b"b", b"2"))
    clean(log)
    kept = [
        (found.base_offset, found.last_offset, found.base_sequence, len(found.records)) for found in batches_of(log)
    ]
    assert kept == [(1, 2, 1, 0), (3, 4, -1, 2)]
    log.producer_state.expire(NOW + 2 * DAY_MS, DAY_MS)
    append(log, (b"c", b"1"))
    clean(log, NOW + 2 * DAY_MS)
    assert [found.base_offset for found in batches_of(log)] == [3, 5]


def test_producer_continues_its_sequence_after_compaction_and_recovery(tmp_path):
    log = compacted_log(tmp_path)
    producer = {"producer_id": 5, "producer_epoch": 1}
    append(log, (b"a", b"1"), (b"b", b"1"), base_sequence=0, **producer)
    append(log, (b"a", b"2"), (b"b", b"2"))
    clean(log)
    log.discard()
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    again = reopened(tmp_path, clean=False, cleanup_policy=("compact",))
    append(again, (b"a", b"3"), base_sequence=2, **producer)
    assert append(again, (b"a", b"3"), base_sequence=2, **producer) == 4  # the duplicate is known


def tombstones(log):
    return [(offset, key) for offset, key, value in records_of(log) if value is None]


def test_tombstone_gets_a_delete_horizon_and_is_removed_when_it_is_reached(tmp_path):
    log = compacted_log(tmp_path, delete_retention_ms=1000)
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", None), timestamp=NOW + 5)
    append(log, (b"z", b"1"))
    end, _, _ = clean(log, NOW)
    assert records_of(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"z", b"1")]
    marked = next(found for found in batches_of(log) if found.base_offset == 2)
    assert marked.attributes & HORIZON
    assert (marked.base_timestamp, marked.max_timestamp, marked.records[0].timestamp) == (NOW + 1000, NOW + 5, NOW + 5)
    before = read_all(log)
    append(log, (b"y", b"1"))
    end, _, _ = clean(log, NOW + 999, first_dirty=end)
    assert read_all(log).startswith(before)
    append(log, (b"x", b"1"))
    clean(log, NOW + 1000, first_dirty=end)
    assert tombstones(log) == []


def test_tombstone_with_delete_retention_0_is_removed_by_the_second_cleaning(tmp_path):
    log = compacted_log(tmp_path, delete_retention_ms=0)
    append(log, (b"a", None))
    append(log, (b"z", b"1"))
    end, _, _ = clean(log)
    assert tombstones(log) == [(0, b"a")]
    append(log, (b"y", b"1"))
    clean(log, first_dirty=end)
    assert tombstones(log) == []


def test_superseded_tombstone_is_removed_by_the_first_cleaning(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", None), (b"a", b"1"))
    clean(log)
    assert records_of(log) == [(1, b"a", b"1")]
    assert not batches_of(log)[0].attributes & HORIZON


def test_cleaner_removes_aborted_records_one_round_before_their_marker_and_index_entry(tmp_path):
    log = compacted_log(tmp_path, delete_retention_ms=1000)
    append(log, (b"a", b"1"))
    append_transactional(log, 7, 0, (b"a", b"2"), (b"b", b"2"))
    end_transaction(log, 7, ControlType.ABORT)
    append_transactional(log, 7, 2, (b"c", b"1"))
    end_transaction(log, 7, ControlType.COMMIT)
    append(log, (b"z", b"1"))
    end, _, _ = clean(log)
    assert records_of(log) == [(0, b"a", b"1"), (4, b"c", b"1"), (6, b"z", b"1")]
    assert [found.base_offset for found in batches_of(log)] == [0, 3, 4, 5, 6]
    assert log.segments[0].aborted() == [AbortedTransaction(7, 1, 3, 4)]
    assert [one[:2] for one in log.aborted_transactions(0, 7)] == [(7, 1)]

    append(log, (b"y", b"1"))
    end, _, _ = clean(log, first_dirty=end)  # no batch of it was met: the abort marker's horizon is set
    marker = next(found for found in batches_of(log) if found.base_offset == 3)
    assert marker.attributes & HORIZON
    assert marker.base_timestamp == NOW + 1000
    assert log.segments[0].aborted() == []
    append(log, (b"x", b"1"))
    end, _, _ = clean(log, NOW + 1000, first_dirty=end)
    assert [found.base_offset for found in batches_of(log)] == [0, 4, 5, 6, 7, 8]


def test_commit_marker_is_kept_while_its_transaction_has_a_record(tmp_path):
    log = compacted_log(tmp_path, delete_retention_ms=0)
    append_transactional(log, 7, 0, (b"a", b"1"))
    end_transaction(log, 7, ControlType.COMMIT)
    append_transactional(log, 8, 0, (b"b", b"1"))
    end_transaction(log, 8, ControlType.COMMIT)
    log.producer_state.expire(NOW + 2 * DAY_MS, DAY_MS)
    end = None
    for round_ in range(3):
        append(log, (b"b", b"%d" % round_))
        end, _, _ = clean(log, first_dirty=end)
    assert [found.base_offset for found in batches_of(log) if found.is_control] == [1]
    assert [offset for offset, _, _ in records_of(log)] == [0, 6]


def test_cleaner_removes_aborted_records_whose_marker_is_beyond_the_cleaned_segments(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"))
    append_transactional(log, 7, 0, (b"a", b"2"))
    log.local.roll(NOW)
    end_transaction(log, 7, ControlType.ABORT)
    append(log, (b"q", b"1"))
    end, _, _ = clean(log, roll=False)
    assert end == 2
    assert records_of(log) == [(0, b"a", b"1")]
    assert [one[:2] for one in log.aborted_transactions(0, 4)] == [(7, 1)]


def test_transaction_index_of_a_merged_segment_has_the_entries_of_all_its_sources(tmp_path):
    log = compacted_log(tmp_path, segment_bytes=1 << 20)
    for producer in (7, 8):
        append_transactional(log, producer, 0, (b"a", b"2"))
        log.local.roll(NOW)
        end_transaction(log, producer, ControlType.ABORT)
        append(log, (b"k%d" % producer, b"1"))
        log.local.roll(NOW)
    _, _, host = clean(log, roll=False)
    assert len(host.swaps) == 1
    assert log.segments[0].aborted() == [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(8, 3, 4, 5)]
    log.close()
    assert [one[:2] for one in reopened(tmp_path).aborted_transactions(0, 6)] == [(7, 0), (8, 3)]


def test_tombstone_with_the_maximum_delete_retention_is_kept(tmp_path):
    """With delete.retention.ms=2^63-1 the delete horizon exceeds int64, so it is limited to the maximum."""
    log = compacted_log(tmp_path, delete_retention_ms=2**63 - 1)
    append(log, (b"a", b"1"), (b"a", None))
    append(log, (b"b", b"1"))
    for now in (NOW, NOW + 1000 * DAY_MS):
        clean(log, now)
        append(log, (b"c", b"1"), timestamp=now)
    assert (1, b"a", None) in records_of(log)
    assert batches_of(log)[0].base_timestamp == 2**63 - 1
