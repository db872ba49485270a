"""Records that compaction keeps, and the segments that it writes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.compaction.cleaner import Cleaner
from kafkalog_broker.storage.partition import cleaned_segment
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.log.write.segment_recovery import recover_segment
from tests.broker.storage.helpers.cleaned_logs import (
    Host,
    append,
    append_transactional,
    batches_of,
    clean,
    compacted_log,
    end_transaction,
    records_of,
    replace_segments,
    request,
    transient_files,
)
from tests.broker.storage.helpers.stored_logs import NOW, read_all, sent
from tests.log.helpers.batch_builder import CODECS


def test_cleaner_keeps_the_latest_record_of_each_key_with_its_offset(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    append(log, (b"c", b"1"), (b"b", b"2"))
    append(log, (b"d", b"1"))
    end, statistics, _ = clean(log)
    assert end == 6
    assert records_of(log) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2"), (5, b"d", b"1")]
    assert statistics.bytes_written == log.segments[0].size


def test_cleaner_treats_an_empty_key_as_a_key(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"", b"1"), (b"", b"2"), (b"\0", b"3"))
    clean(log)
    assert records_of(log) == [(1, b"", b"2"), (2, b"\0", b"3")]


def test_cleaner_removes_records_without_a_key(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (None, b"1"), (b"a", b"1"), (None, None))
    append(log, (None, b"2"))
    append(log, (b"z", b"1"))
    clean(log)
    assert records_of(log) == [(1, b"a", b"1"), (4, b"z", b"1")]


def test_cleaner_ignores_the_active_segment_and_its_keys(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"))
    log.local.roll(NOW)
    append(log, (b"a", b"2"))
    before = Path(log.segments[-1].log_path).read_bytes()
    end, _, _ = clean(log, roll=False)
    assert end == 1
    assert records_of(log) == [(0, b"a", b"1")]
    assert Path(log.segments[-1].log_path).read_bytes() == before
    assert read_all(log).endswith(before)


def test_cleaner_stops_at_the_last_stable_offset(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"))
    log.local.roll(NOW)
    append_transactional(log, 7, 0, (b"a", b"2"))
    log.local.roll(NOW)
    append(log, (b"a", b"3"))
    end, _, _ = clean(log)
    assert end == 1
    assert [value for _, _, value in records_of(log)] == [b"1", b"2", b"3"]
    end_transaction(log, 7, ControlType.COMMIT)
    clean(log)
    assert [value for _, _, value in records_of(log) if value] == [b"3"]


def test_cleaner_removes_superseded_records_from_the_clean_part(tmp_path):
    log = compacted_log(tmp_path, segment_bytes=300)
    append(log, (b"a", b"1"), (b"b", b"1"))
    end, _, _ = clean(log)
    append(log, (b"a", b"2"))
    end, _, _ = clean(log, first_dirty=end)
    assert end == 3
    assert records_of(log) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_cleaner_copies_a_batch_without_removed_records_byte_for_byte(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"c", b"1"))
    log.local.roll(NOW)
    before = Path(log.segments[0].log_path).read_bytes()
    clean(log, roll=False)
    assert Path(log.segments[0].log_path).read_bytes() == before


@pytest.mark.parametrize("codec", CODECS)
def test_cleaned_batch_keeps_its_codec_offsets_sequence_and_producer(codec, tmp_path):
    log = compacted_log(tmp_path)
    records = [(b"key %d" % (i % 40), b"value %d " % i * 5) for i in range(100)]
    fields = {"codec": CODECS[codec], "producer_id": 9, "producer_epoch": 3, "base_sequence": 17}
    append(log, *records, **fields)
    clean(log)
    (found,) = batches_of(log)
    assert (found.base_offset, found.last_offset, found.codec) == (0, 99, CODECS[codec])
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.leader_epoch) == (9, 3, 17, 0)
    assert [record.offset for record in found.records] == list(range(60, 100))
    assert [(r.key, r.value) for r in found.records] == records[60:]
    assert [r.timestamp for r in found.records] == [NOW + i for i in range(60, 100)]
    assert (found.base_timestamp, found.max_timestamp) == (NOW + 60, NOW + 99)


def test_cleaned_batch_has_the_max_timestamp_of_its_remaining_records(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"1"), timestamp=NOW + 1000)
    append(log, (b"b", b"2"), timestamp=NOW)
    clean(log)
    first, second = batches_of(log)
    assert (first.max_timestamp, second.max_timestamp) == (NOW + 1000, NOW)
    assert log.segments[0].max_timestamp == (NOW + 1000, 1)


def test_cleaned_batch_keeps_its_log_append_time(tmp_path):
    log = compacted_log(tmp_path, message_timestamp_type="LogAppendTime")
    for at in range(3):
        validated = validate_batch(sent(4, key=b"k", timestamp=5), log.config, NOW + at)
        log.append(validated, NOW + at)
    clean(log)
    (found,) = batches_of(log)
    assert [(r.offset, r.timestamp, r.timestamp_type) for r in found.records] == [(11, NOW + 2, 1)]


def test_cleaner_with_a_full_offset_map_ends_the_round_early_and_loses_no_record(tmp_path):
    log = compacted_log(tmp_path, segment_bytes=400)
    for turn in range(4):
        for key in range(10):
            append(log, (b"key %d" % key, b"%d" % turn))
    log.local.roll(NOW)
    end, rounds = 0, 0
    while end < log.segments[-1].base_offset:
        before = end
        end, _, _ = clean(log, first_dirty=end, memory=24 * 6, roll=False)
        assert end > before
        rounds += 1
    assert rounds > 3
    latest = {key: value for _, key, value in records_of(log)}
    assert latest == {b"key %d" % key: b"3" for key in range(10)}


def test_cleaner_with_a_dedupe_buffer_too_small_for_one_key_names_the_property(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"))
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        clean(log, memory=23)
    assert transient_files(log.directory) == []


def test_cleaner_merges_segments_up_to_segment_bytes_with_correct_indexes(tmp_path):
    log = compacted_log(tmp_path, segment_bytes=4000, index_interval_bytes=200)
    chance = np.random.default_rng(1)
    for turn in range(300):
        append(log, (b"key %d" % chance.integers(60), b"v" * 40), timestamp=NOW + turn * 10)
    mtimes = [os.stat(segment.log_path).st_mtime_ns for segment in log.segments]
    clean(log, roll=False)
    _, _, host = clean(log, roll=False)
    assert len(host.swaps[0]) > 1
    for segment in log.segments[:-1]:
        assert segment.size <= 4000
        made = {path: Path(segment.path(path)).read_bytes() for path in (".index", ".timeindex")}
        copy = tmp_path / "copy"
        copy.mkdir(exist_ok=True)
        shutil.copy(segment.log_path, copy)
        recover_segment(copy, segment.base_offset, 200, may_truncate=False)
        for suffix, data in made.items():
            assert (copy / Path(segment.path(suffix)).name).read_bytes() == data
    assert os.stat(log.segments[-2].log_path).st_mtime_ns in mtimes


def test_cleaner_whose_output_overflows_a_segment_continues_in_a_new_one(tmp_path, monkeypatch):
    log = compacted_log(tmp_path)
    append(log, (b"k", b"superseded"))
    for number in range(4):
        append_transactional(log, 7, 2 * number, (b"aborted", b"x"), (b"aborted", b"y"))
        end_transaction(log, 7, ControlType.ABORT)
        append(log, (b"key %d" % number, b"v" * 400))
    append(log, (b"k", b"kept"))
    expected = [*((4 + 4 * number, b"key %d" % number) for number in range(4)), (17, b"k")]
    monkeypatch.setattr(cleaned_segment, "MAX_SEGMENT_SIZE", 1200)
    _, _, host = clean(log, io=600)
    assert host.swaps == [[0]]
    *cleaned, _ = log.segments
    assert len(cleaned) > 1
    assert all(segment.size <= 1200 for segment in cleaned)
    assert [(offset, key) for offset, key, _ in records_of(log)] == expected
    assert [segment.next_offset for segment in cleaned] == [segment.base_offset for segment in log.segments[1:]]
    indexed = [(one.last_offset, segment) for segment in cleaned for one in segment.aborted()]
    assert [last for last, _ in indexed] == [3, 7, 11, 15]
    assert all(segment.base_offset <= last < segment.next_offset for last, segment in indexed)
    assert transient_files(log.directory) == []
    for segment in cleaned:
        assert recover_segment(log.directory, segment.base_offset, may_truncate=False).damage is None


def test_replaced_segments_and_their_snapshots_are_renamed_to_deleted(tmp_path):
    log = compacted_log(tmp_path)
    for turn in range(3):
        append(log, (b"a", b"%d" % turn))
        log.local.roll(NOW)
    log.flush()
    gone: list[Path] = []

    class Told(Host):
        def replace(self, cleaned, old):
            gone.extend(replace_segments(self.log, old, cleaned, NOW))

    Cleaner(request(log), Told(log, NOW), 1 << 20, 0.9, 1 << 16).clean()
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert sorted(path.name for path in gone) == sorted(p.name for p in log.directory.glob("*.deleted"))
    assert len(gone) == 3 * 3 + 2  # the snapshots of 1 and 2 go, those of segments that are still there stay
    assert sorted(path.name for path in log.directory.glob("*.snapshot")) == [f"{3:020d}.snapshot"]


def test_cleaner_cleans_a_batch_larger_than_the_read_buffer(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"x" * 300_000), (b"b", b"y"))
    append(log, (b"a", b"z" * 200_000))
    clean(log, io=1000)
    assert [(offset, key, len(value or b"")) for offset, key, value in records_of(log)] == [
        (1, b"b", 1),
        (2, b"a", 200_000),
    ]


def test_cleaner_with_a_small_read_buffer_writes_the_same_bytes(tmp_path):
    chance = np.random.default_rng(2)
    history = [(b"k%d" % chance.integers(50), b"v" * int(chance.integers(0, 200))) for _ in range(600)]
    found = []
    for name, io in (("small", 700), ("large", 1 << 20)):
        log = compacted_log(tmp_path / name)
        for at in range(0, 600, 3):
            append(log, *history[at : at + 3], codec=at % 5 if at % 2 else 0)
        clean(log, io=io)
        found.append(Path(log.segments[0].log_path).read_bytes())
    assert found[0] == found[1]
