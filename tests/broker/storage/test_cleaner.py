from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.compaction.cleaner import Cleaner
from kafkalog_broker.storage.compaction.cleaning_request import CleaningAborted, CleaningRequest
from kafkalog_broker.storage.partition.file_handles import FileHandles
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.format.batch_header import BatchHeader, parse_header
from kafkalog_spark.log.format.layout import ControlType
from kafkalog_spark.log.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.write.segment_recovery import recover_segment
from tests.broker.storage.cleaner_helpers import (
    Host,
    append,
    append_transactional,
    batches_of,
    clean,
    compacted_log,
    end_transaction,
    records_of,
    request,
    transient_files,
)
from tests.broker.storage.storage_helpers import NOW, log_config, read_all, reopened, sent
from tests.log import plain_decoder
from tests.log.batch_builder import CODECS, V2Record, batch, sealed, varint
from tests.log.legacy_builder import LegacyRecord, message, message_set, wrapper

DAY_MS = 24 * 3600 * 1000
HORIZON = 0x40


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# ---- which records stay


def test_the_latest_record_of_each_key_stays_with_its_offset(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    append(log, (b"c", b"1"), (b"b", b"2"))
    append(log, (b"d", b"1"))
    end, statistics, _ = clean(log)
    assert end == 6
    assert records_of(log) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2"), (5, b"d", b"1")]
    assert statistics.bytes_written == log.segments[0].size


def test_keys_that_are_empty_are_keys(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"", b"1"), (b"", b"2"), (b"\0", b"3"))
    clean(log)
    assert records_of(log) == [(1, b"", b"2"), (2, b"\0", b"3")]


def test_records_without_a_key_go(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (None, b"1"), (b"a", b"1"), (None, None))
    append(log, (None, b"2"))
    append(log, (b"z", b"1"))
    clean(log)
    assert records_of(log) == [(1, b"a", b"1"), (4, b"z", b"1")]


def test_the_active_segment_is_not_touched_and_its_keys_do_not_count(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"))
    log.roll(NOW)
    append(log, (b"a", b"2"))
    before = Path(log.segments[-1].log_path).read_bytes()
    end, _, _ = clean(log, roll=False)
    assert end == 1
    assert records_of(log) == [(0, b"a", b"1")]
    assert Path(log.segments[-1].log_path).read_bytes() == before
    assert read_all(log).endswith(before)


def test_nothing_at_or_above_the_last_stable_offset_is_cleaned(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"))
    log.roll(NOW)
    append_transactional(log, 7, 0, (b"a", b"2"))
    log.roll(NOW)
    append(log, (b"a", b"3"))
    end, _, _ = clean(log)
    assert end == 1
    assert [value for _, _, value in records_of(log)] == [b"1", b"2", b"3"]
    end_transaction(log, 7, ControlType.COMMIT)
    clean(log)
    assert [value for _, _, value in records_of(log) if value] == [b"3"]


def test_records_are_matched_against_the_clean_part_too(tmp_path):
    log = compacted_log(tmp_path, segment_bytes=300)
    append(log, (b"a", b"1"), (b"b", b"1"))
    end, _, _ = clean(log)
    append(log, (b"a", b"2"))
    end, _, _ = clean(log, first_dirty=end)
    assert end == 3
    assert records_of(log) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_what_stays_whole_is_copied_byte_for_byte(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"c", b"1"))
    log.roll(NOW)
    before = Path(log.segments[0].log_path).read_bytes()
    clean(log, roll=False)
    assert Path(log.segments[0].log_path).read_bytes() == before


@pytest.mark.parametrize("codec", CODECS)
def test_batches_keep_their_codec_offsets_sequence_and_producer(codec, tmp_path):
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


def test_the_max_timestamp_is_that_of_the_records_that_stay(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"1"), timestamp=NOW + 1000)
    append(log, (b"b", b"2"), timestamp=NOW)
    clean(log)
    first, second = batches_of(log)
    assert (first.max_timestamp, second.max_timestamp) == (NOW + 1000, NOW)
    assert log.segments[0].max_timestamp == (NOW + 1000, 1)


def test_append_time_stays_the_timestamp_of_all_records(tmp_path):
    log = compacted_log(tmp_path, message_timestamp_type="LogAppendTime")
    for at in range(3):
        validated = validate_batch(sent(4, key=b"k", timestamp=5), log.config, NOW + at)
        log.append(validated, NOW + at)
    clean(log)
    (found,) = batches_of(log)
    assert [(r.offset, r.timestamp, r.timestamp_type) for r in found.records] == [(11, NOW + 2, 1)]


# ---- batches that hold nothing any more


def test_the_last_batch_of_a_round_stays_empty_so_that_offsets_go_on(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"))
    append(log, (None, b"1"), (None, b"2"))
    clean(log)
    _, last = batches_of(log)
    assert (last.base_offset, last.last_offset, last.records, last.size) == (1, 2, (), 61)
    assert (last.base_timestamp, last.max_timestamp) == (-1, NOW + 1)
    assert read_all(log, 1)[:8] == (1).to_bytes(8, "big")


def test_the_last_batch_of_a_known_producer_stays_empty_until_it_is_forgotten(tmp_path):
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


def test_a_producer_goes_on_with_its_sequence_after_compaction_and_recovery(tmp_path):
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


# ---- tombstones


def tombstones(log):
    return [(offset, key) for offset, key, value in records_of(log) if value is None]


def test_a_tombstone_gets_a_horizon_and_goes_when_that_is_reached(tmp_path):
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


def test_delete_retention_of_zero_takes_a_tombstone_with_the_second_cleaning(tmp_path):
    log = compacted_log(tmp_path, delete_retention_ms=0)
    append(log, (b"a", None))
    append(log, (b"z", b"1"))
    end, _, _ = clean(log)
    assert tombstones(log) == [(0, b"a")]
    append(log, (b"y", b"1"))
    clean(log, first_dirty=end)
    assert tombstones(log) == []


def test_a_tombstone_that_is_superseded_goes_at_once(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", None), (b"a", b"1"))
    clean(log)
    assert records_of(log) == [(1, b"a", b"1")]
    assert not batches_of(log)[0].attributes & HORIZON


# ---- transactions


def test_records_of_an_aborted_transaction_go_at_once_its_marker_and_index_entry_stay_for_a_round(tmp_path):
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
    assert log.reader.aborted_transactions(0, 7) == [(7, 1)]

    append(log, (b"y", b"1"))
    end, _, _ = clean(log, first_dirty=end)  # no batch of it was met: the abort marker's horizon is set
    marker = next(found for found in batches_of(log) if found.base_offset == 3)
    assert marker.attributes & HORIZON
    assert marker.base_timestamp == NOW + 1000
    assert log.segments[0].aborted() == []
    append(log, (b"x", b"1"))
    end, _, _ = clean(log, NOW + 1000, first_dirty=end)
    assert [found.base_offset for found in batches_of(log)] == [0, 4, 5, 6, 7, 8]


def test_a_commit_marker_stays_as_long_as_a_record_of_its_transaction(tmp_path):
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


def test_a_transaction_whose_marker_lies_behind_what_is_cleaned_is_known_as_aborted(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"))
    append_transactional(log, 7, 0, (b"a", b"2"))
    log.roll(NOW)
    end_transaction(log, 7, ControlType.ABORT)
    append(log, (b"q", b"1"))
    end, _, _ = clean(log, roll=False)
    assert end == 2
    assert records_of(log) == [(0, b"a", b"1")]
    assert log.reader.aborted_transactions(0, 4) == [(7, 1)]


def test_the_transaction_index_of_a_merged_segment_has_the_entries_of_all(tmp_path):
    log = compacted_log(tmp_path, segment_bytes=1 << 20)
    for producer in (7, 8):
        append_transactional(log, producer, 0, (b"a", b"2"))
        log.roll(NOW)
        end_transaction(log, producer, ControlType.ABORT)
        append(log, (b"k%d" % producer, b"1"))
        log.roll(NOW)
    _, _, host = clean(log, roll=False)
    assert len(host.swaps) == 1
    assert log.segments[0].aborted() == [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(8, 3, 4, 5)]
    log.close()
    assert reopened(tmp_path).reader.aborted_transactions(0, 6) == [(7, 0), (8, 3)]


# ---- the map of keys


def test_a_map_that_is_too_small_ends_the_round_early_and_loses_nothing(tmp_path):
    log = compacted_log(tmp_path, segment_bytes=400)
    for turn in range(4):
        for key in range(10):
            append(log, (b"key %d" % key, b"%d" % turn))
    log.roll(NOW)
    end, rounds = 0, 0
    while end < log.segments[-1].base_offset:
        before = end
        end, _, _ = clean(log, first_dirty=end, memory=24 * 6, roll=False)
        assert end > before
        rounds += 1
    assert rounds > 3
    latest = {key: value for _, key, value in records_of(log)}
    assert latest == {b"key %d" % key: b"3" for key in range(10)}


def test_a_map_without_room_for_a_key_says_which_property_to_raise(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"))
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        clean(log, memory=23)
    assert transient_files(log.directory) == []


# ---- segments


def test_neighbours_are_merged_up_to_segment_bytes_and_index_as_if_written_at_once(tmp_path):
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
        recover_segment(copy, segment.base_offset, 200, may_cut=False)
        for suffix, data in made.items():
            assert (copy / Path(segment.path(suffix)).name).read_bytes() == data
    assert os.stat(log.segments[-2].log_path).st_mtime_ns in mtimes


def test_old_files_and_snapshots_wait_as_deleted(tmp_path):
    log = compacted_log(tmp_path)
    for turn in range(3):
        append(log, (b"a", b"%d" % turn))
        log.roll(NOW)
    log.flush()
    gone: list[Path] = []

    class Told(Host):
        def replace(self, cleaned, old):
            gone.extend(self.log.replace_segments(cleaned, old, NOW))

    Cleaner(1 << 20, 0.9, 1 << 16).clean(request(log), Told(log, NOW))
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert sorted(path.name for path in gone) == sorted(p.name for p in log.directory.glob("*.deleted"))
    assert len(gone) == 3 * 3 + 2  # the snapshots of 1 and 2 go, those of segments that are still there stay
    assert sorted(path.name for path in log.directory.glob("*.snapshot")) == [f"{3:020d}.snapshot"]


def test_a_batch_larger_than_the_read_buffer_is_cleaned(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"x" * 300_000), (b"b", b"y"))
    append(log, (b"a", b"z" * 200_000))
    clean(log, io=1000)
    assert [(offset, key, len(value or b"")) for offset, key, value in records_of(log)] == [
        (1, b"b", 1),
        (2, b"a", 200_000),
    ]


def test_many_windows_give_what_one_gives(tmp_path):
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


# ---- what goes wrong


@pytest.mark.parametrize("where", [30, 64, 70])
def test_damage_leaves_the_log_as_it_was_and_says_where(where, tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"a", b"2"))
    append(log, (b"a", b"3"))
    log.roll(NOW)
    log.flush()
    path = Path(log.segments[0].log_path)
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)
    before = contents(log.directory)
    with pytest.raises(CorruptBatch) as caught:
        clean(log, roll=False)
    assert caught.value.path == str(path)
    assert caught.value.position == 0
    assert contents(log.directory) == before


def test_a_cleaning_that_is_given_up_leaves_no_file(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(NOW)
    log.flush()
    calls = 0

    def check():
        nonlocal calls
        calls += 1
        if calls > 1:
            raise CleaningAborted("enough")

    before = contents(log.directory)
    with pytest.raises(CleaningAborted):
        Cleaner(1 << 20, 0.9, 1 << 16).clean(request(log), Host(log, NOW, check=check))
    assert contents(log.directory) == before


def test_segments_that_retention_has_taken_meanwhile_are_not_brought_back(tmp_path):
    log = compacted_log(tmp_path, cleanup_policy=("compact", "delete"), retention_ms=1)
    append(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(NOW)
    append(log, (b"b", b"1"))
    log.flush()
    job = request(log)

    class Late(Host):
        def replace(self, cleaned, old):
            assert self.log.delete_old_segments(NOW + 10_000)
            super().replace(cleaned, old)

    with pytest.raises(LookupError):
        Cleaner(1 << 20, 0.9, 1 << 16).clean(job, Late(log, NOW))
    assert transient_files(log.directory) == []
    assert log.log_start_offset > 0


# ---- formats v0 and v1


def legacy_segments(source: Path, target: Path, bases: list[int], end: int) -> list[LogSegment]:
    """The segments of a partition before its last cleaning, from the files that it left as `.deleted`."""
    target.mkdir()
    for path in source.iterdir():
        name = path.name.removesuffix(".deleted")
        replaced = (source / f"{name}.deleted").exists()
        if path.name.endswith(".deleted") or not replaced:
            shutil.copy2(path, target / name)
    handles = FileHandles()
    return [
        LogSegment(
            target, base, handles, size=(target / f"{base:020d}.log").stat().st_size, next_offset=behind, created_ms=0
        )
        for base, behind in zip(bases, [*bases[1:], end], strict=True)
    ]


def test_messages_v1_are_cleaned_as_kafka_2_8_cleaned_them(tmp_path, golden_legacy):
    source = golden_legacy / "v1-compacted-0"
    segments = legacy_segments(source, tmp_path / "p", [0, 1200, 1620, 1800], 1805)
    swapped = []

    class Kept(Host):
        def last_records(self):
            return {}

        def replace(self, cleaned, old):
            swapped.append(([segment.base_offset for segment in old], contents(cleaned[0].directory)))

    job = CleaningRequest(
        name="v1-compacted-0", directory=tmp_path / "p", segments=segments, config=log_config(),
        first_dirty_offset=1200, first_uncleanable_offset=1800, now_ms=NOW,
    )  # fmt: skip
    Cleaner(1 << 20, 0.9, 1 << 16).clean(job, Kept(None, NOW))  # type: ignore[arg-type]
    ((bases, files),) = swapped
    assert bases == [0, 1200, 1620]
    made = files[f"{0:020d}.log.cleaned"]
    expected = (source / f"{0:020d}.log").read_bytes()
    as_batches = [
        (b.position, b.size, b.base_offset, b.last_offset, b.max_timestamp, b.attributes, b.records)
        for b in plain_decoder.decode_batches(made)
    ]
    assert as_batches == [
        (b.position, b.size, b.base_offset, b.last_offset, b.max_timestamp, b.attributes, b.records)
        for b in plain_decoder.decode_batches(expected)
    ]
    for suffix in (".index", ".timeindex"):
        assert files[f"{0:020d}{suffix}.cleaned"] == (source / f"{0:020d}{suffix}").read_bytes()


def made_by_old_clients(tmp_path: Path, segments: dict[int, bytes], end: int) -> list[LogSegment]:
    """Closed segments and an empty active one, as files that an old broker has left."""
    directory = tmp_path / "old-0"
    directory.mkdir()
    for base, data in {**segments, end: b""}.items():
        (directory / f"{base:020d}.log").write_bytes(data)
    bases = [*segments, end]
    handles = FileHandles()
    return [
        LogSegment(directory, base, handles, size=len(segments.get(base, b"")), next_offset=behind, created_ms=0)
        for base, behind in zip(bases, [*bases[1:], end], strict=True)
    ]


def cleaned_old(segments: list[LogSegment], *, first_dirty=0) -> list[list[plain_decoder.Batch]]:
    """The batches of each cleaned segment."""
    made = []

    class Kept(Host):
        def last_records(self):
            return {}

        def replace(self, cleaned, old):
            made.append(plain_decoder.decode_log(cleaned[0].path(".log")))
            cleaned[0].discard()

    job = CleaningRequest(
        name="old-0", directory=segments[0].directory, segments=segments, config=log_config(delete_retention_ms=1000),
        first_dirty_offset=first_dirty, first_uncleanable_offset=segments[-1].base_offset, now_ms=NOW,
    )  # fmt: skip
    Cleaner(1 << 20, 0.9, 1 << 16).clean(job, Kept(None, NOW))  # type: ignore[arg-type]
    return made


def old_records(first: int, *pairs: tuple[bytes | None, bytes | None]) -> list[LegacyRecord]:
    return [LegacyRecord(first + i, key, value, NOW + first + i) for i, (key, value) in enumerate(pairs)]


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_keep_format_codec_offsets_and_timestamps(magic, codec, tmp_path):
    def written(records):
        return wrapper(magic, codec, records) if codec else message_set(magic, records)

    whole = written(old_records(0, (b"a", b"1"), (b"b", b"1")))
    mixed = written(old_records(2, (b"c", b"1"), (None, b"no key"), (b"d", b"1"), (b"c", b"2"), (b"e", b"old")))
    gone = written(old_records(7, (b"e", b"older")))
    last = written(old_records(8, (b"e", b"new")))
    ((*found,),) = cleaned_old(made_by_old_clients(tmp_path, {0: whole + mixed + gone + last}, 9))
    records = [record for one in found for record in one.records]
    assert [(r.offset, r.key, r.value) for r in records] == [
        (0, b"a", b"1"), (1, b"b", b"1"), (4, b"d", b"1"), (5, b"c", b"2"), (8, b"e", b"new"),
    ]  # fmt: skip
    assert [r.timestamp for r in records] == [NOW + r.offset if magic else -1 for r in records]
    assert {(one.magic, one.codec) for one in found} == {(magic, codec)}
    if codec:
        assert [(one.base_offset, one.last_offset) for one in found] == [(0, 1), (4, 5), (8, 8)]
        assert [one.max_timestamp for one in found] == [NOW + 1 if magic else -1, NOW + 5 if magic else -1,
                                                        NOW + 8 if magic else -1]  # fmt: skip


def test_append_time_of_a_wrapper_stays(tmp_path):
    data = wrapper(1, 1, old_records(0, (b"a", b"1"), (b"a", b"2")), log_append_time=NOW + 77)
    (((found),),) = cleaned_old(made_by_old_clients(tmp_path, {0: data}, 2))
    assert [(r.offset, r.timestamp, r.timestamp_type) for r in found.records] == [(1, NOW + 77, 1)]
    assert found.max_timestamp == NOW + 77


def test_tombstones_of_old_formats_go_by_the_age_of_their_segment(tmp_path):
    data = {base: message_set(1, old_records(base, (b"k%d" % base, None), (b"v%d" % base, b"1"))) for base in (0, 2, 4)}
    segments = made_by_old_clients(tmp_path, data, 6)
    for segment, age in zip(segments, (5000, 1000, 0, 0), strict=True):
        seconds = (NOW - age) / 1000
        os.utime(segment.log_path, (seconds, seconds))
    # The newest clean segment is 1000 ms old by its file, delete.retention.ms is 1000: what is 2000 ms old may go.
    ((*found,),) = cleaned_old(segments, first_dirty=4)
    assert [r.offset for one in found for r in one.records] == [1, 2, 3, 4, 5]


def test_a_damaged_wrapper_is_found_before_anything_is_written(tmp_path):
    inner = message_set(1, old_records(0, (b"a", b"1")))
    bad = message(1, 0, None, gzip.compress(inner[:-3]), NOW, attributes=1)
    with pytest.raises(CorruptBatch) as caught:
        cleaned_old(made_by_old_clients(tmp_path, {0: bad}, 1))
    assert caught.value.path is not None
    assert (caught.value.position, caught.value.offset) == (0, 0)
    assert transient_files(tmp_path / "old-0") == []


# ---- records that nobody can read, under a valid CRC


def odd_record(place: int, key: bytes, value: bytes, *, size: bytes | None = None) -> bytes:
    """A record whose length of the value is written as `size` says."""
    body = b"\0\0" + varint(place) + varint(len(key)) + key + (size or varint(len(value))) + value + b"\0"
    return varint(len(body)) + body


LENGTH_OF_SIX_BYTES = b"\x82\x80\x80\x80\x80\x00"  # 1, in more bytes than Java reads


def append_as_it_is(log, payload: bytes, count: int, codec: int) -> None:
    """A batch that an earlier broker took."""
    made = batch(0, [V2Record(0, NOW)], last_offset=count - 1, count=count, payload=payload, codec=codec)
    log.append_batch(made, NOW)


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
def test_a_length_below_minus_one_is_null_and_does_not_stop_compaction(codec, tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"1"))
    sent = batch(0, [V2Record(0, NOW)], payload=odd_record(0, b"a", b"", size=varint(-2)), codec=codec)
    log.append(validate_batch(sent, log_config(), NOW), NOW)
    append(log, (b"c", b"1"))
    end, statistics, _ = clean(log)
    assert (end, statistics.unreadable_batches) == (4, 0)
    assert records_of(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
def test_a_stored_batch_that_nobody_can_read_stays_and_the_others_are_compacted(codec, tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"1"))
    append_as_it_is(log, odd_record(0, b"a", b"x") + odd_record(1, b"b", b"x", size=LENGTH_OF_SIX_BYTES), 2, codec)
    append(log, (b"b", b"2"))
    log.roll(NOW)
    before = Path(log.segments[0].log_path).read_bytes()
    end, statistics, _ = clean(log, roll=False)
    assert end == 5
    assert (statistics.unreadable_batches, statistics.first_unreadable) == (1, 2)
    first, kept, last = headers_of(Path(log.segments[0].log_path).read_bytes())
    # a's older value stays too: what takes its place cannot be read
    assert (first.base_offset, first.record_count, kept.base_offset, last.base_offset) == (0, 1, 2, 4)
    data = Path(log.segments[0].log_path).read_bytes()
    assert data[kept.position : kept.position + kept.size] in before


def test_a_stored_batch_that_cannot_be_decompressed_stays_and_the_others_are_compacted(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"1"))
    broken = bytearray(batch(0, [V2Record(0, NOW, b"a", b"x" * 50)], codec=CODECS["lz4"]))
    broken[70] ^= 0xFF
    log.append_batch(sealed(bytes(broken)), NOW)
    append(log, (b"b", b"2"))
    end, statistics, _ = clean(log)
    assert (end, statistics.unreadable_batches, statistics.first_unreadable) == (4, 1, 2)
    assert [header.base_offset for header in headers_of(Path(log.segments[0].log_path).read_bytes())] == [0, 2, 3]


def headers_of(data: bytes) -> list[BatchHeader]:
    found: list[BatchHeader] = []
    at = 0
    while at < len(data):
        found.append(parse_header(data, at, at))
        at += found[-1].size
    return found


def test_tombstones_may_be_kept_for_ever(tmp_path):
    """delete.retention.ms may be 2^63-1; a time beyond int64 is never."""
    log = compacted_log(tmp_path, delete_retention_ms=2**63 - 1)
    append(log, (b"a", b"1"), (b"a", None))
    append(log, (b"b", b"1"))
    for now in (NOW, NOW + 1000 * DAY_MS):
        clean(log, now)
        append(log, (b"c", b"1"), timestamp=now)
    assert (1, b"a", None) in records_of(log)
    assert batches_of(log)[0].base_timestamp == 2**63 - 1
