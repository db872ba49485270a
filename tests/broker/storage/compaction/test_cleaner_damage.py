"""Compaction of damaged and unreadable batches, and aborted cleanings."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.compaction.cleaner import Cleaner
from kafkalog_broker.storage.compaction.cleaning_host import CleaningHost
from kafkalog_broker.storage.compaction.cleaning_request import CleaningAborted
from kafkalog_broker.storage.compaction.owner_thread import OwnerThread
from kafkalog_broker.storage.compaction.throttler import Throttler
from kafkalog_broker.storage.partition.local_log import SegmentsReplaced
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.batch_header import BatchHeader, parse_header
from tests.broker.storage.helpers.cleaned_logs import (
    Host,
    append,
    clean,
    compacted_log,
    records_of,
    request,
    transient_files,
)
from tests.broker.storage.helpers.stored_logs import NOW, contents, log_config
from tests.log.helpers.batch_builder import CODECS, V2Record, batch, sealed, varint


@pytest.mark.parametrize("where", [30, 64, 70])
def test_cleaner_at_a_damaged_batch_raises_its_position_and_leaves_the_log_unchanged(where, tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"a", b"2"))
    append(log, (b"a", b"3"))
    log.local.roll(NOW)
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


def test_aborted_cleaning_leaves_no_file(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"a", b"2"))
    log.local.roll(NOW)
    log.flush()
    calls = 0

    def check():
        nonlocal calls
        calls += 1
        if calls > 1:
            raise CleaningAborted("enough")

    before = contents(log.directory)
    with pytest.raises(CleaningAborted):
        Cleaner(request(log), Host(log, NOW, check=check), 1 << 20, 0.9, 1 << 16).clean()
    assert contents(log.directory) == before


def test_segments_deleted_by_retention_during_cleaning_are_not_restored(tmp_path):
    log = compacted_log(tmp_path, cleanup_policy=("compact", "delete"), retention_ms=1)
    append(log, (b"a", b"1"), (b"a", b"2"))
    log.local.roll(NOW)
    append(log, (b"b", b"1"))
    log.flush()
    job = request(log)

    class Late(Host):
        def replace(self, cleaned, old):
            self.log.delete_old_segments(NOW + 10_000)  # rolls
            self.log.flush()
            assert self.log.delete_old_segments(NOW + 10_000)
            super().replace(cleaned, old)

    with pytest.raises(SegmentsReplaced):
        Cleaner(job, Late(log, NOW), 1 << 20, 0.9, 1 << 16).clean()
    assert transient_files(log.directory) == []
    assert log.log_start_offset > 0


def test_cleaned_files_stay_after_an_unexpected_error_of_a_replacement_that_has_begun(tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"a", b"2"))
    log.local.roll(NOW)
    log.flush()

    def fail(path, delay_ms):
        raise KeyError(path)

    host = CleaningHost(log, OwnerThread(lambda run: run()), lambda: NOW, Throttler(1e9), fail)
    with pytest.raises(KeyError):
        Cleaner(request(log), host, 1 << 20, 0.9, 1 << 16).clean()
    assert transient_files(log.directory) == [
        "00000000000000000000.index.swap", "00000000000000000000.log.swap", "00000000000000000000.timeindex.swap",
    ]  # fmt: skip
    assert records_of(log) == [(1, b"a", b"2")]


def odd_record(place: int, key: bytes, value: bytes, *, size: bytes | None = None) -> bytes:
    """A record whose length of the value is written as `size` says."""
    body = b"\0\0" + varint(place) + varint(len(key)) + key + (size or varint(len(value))) + value + b"\0"
    return varint(len(body)) + body


LENGTH_OF_SIX_BYTES = b"\x82\x80\x80\x80\x80\x00"  # 1, in more bytes than Java reads


def append_as_it_is(log, payload: bytes, count: int, codec: int) -> None:
    """Append a batch without validation, as an earlier broker may have accepted it."""
    made = batch(0, [V2Record(0, NOW)], last_offset=count - 1, count=count, payload=payload, codec=codec)
    log.append_batch(made, NOW)


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
def test_cleaner_reads_a_value_length_below_minus_one_as_null(codec, tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"1"))
    sent = batch(0, [V2Record(0, NOW)], payload=odd_record(0, b"a", b"", size=varint(-2)), codec=codec)
    log.append(validate_batch(sent, log_config(), NOW), NOW)
    append(log, (b"c", b"1"))
    end, statistics, _ = clean(log)
    assert (end, statistics.unreadable_batches) == (4, 0)
    assert records_of(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
def test_cleaner_keeps_an_unreadable_batch_and_compacts_the_others(codec, tmp_path):
    log = compacted_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"1"))
    append_as_it_is(log, odd_record(0, b"a", b"x") + odd_record(1, b"b", b"x", size=LENGTH_OF_SIX_BYTES), 2, codec)
    append(log, (b"b", b"2"))
    log.local.roll(NOW)
    before = Path(log.segments[0].log_path).read_bytes()
    end, statistics, _ = clean(log, roll=False)
    assert end == 5
    assert (statistics.unreadable_batches, statistics.first_unreadable) == (1, 2)
    first, kept, last = headers_of(Path(log.segments[0].log_path).read_bytes())
    # a's older value stays too: what takes its place cannot be read
    assert (first.base_offset, first.record_count, kept.base_offset, last.base_offset) == (0, 1, 2, 4)
    data = Path(log.segments[0].log_path).read_bytes()
    assert data[kept.position : kept.position + kept.size] in before


def test_cleaner_keeps_a_batch_that_cannot_be_decompressed_and_compacts_the_others(tmp_path):
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
