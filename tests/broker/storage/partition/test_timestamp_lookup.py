"""Offsets by timestamp: exact in every format, with at most one decompression of a batch per lookup."""

from __future__ import annotations

import struct
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append import decompression
from kafkalog_broker.storage.partition import timestamp_lookup
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.timestamp_lookup import max_timestamp_offset, offset_for_timestamp
from kafkalog_broker.storage.recovery.log_loader import LoadRequest, load_log
from kafkalog_spark.format import layout
from kafkalog_spark.log.codecs.scratch import Scratch
from tests.broker.storage.helpers.stored_logs import IDENTITY, NOW, log_config, new_log
from tests.log.helpers.batch_builder import V2Record, batch
from tests.log.helpers.legacy_builder import GZIP, LZ4, NONE, SNAPPY, LegacyRecord, message_set, wrapper


def loaded(directory, data, **loading):
    """Load a log with these bytes in its only segment, without indexes, as an old broker left it."""
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(data)
    request = LoadRequest(directory=directory, clean=False, **loading)
    return Log(IDENTITY, log_config(), load_log(request), NOW)


def records(first, *times):
    return [LegacyRecord(first + n, b"k", b"v%d" % n, time) for n, time in enumerate(times)]


def in_format(magic, codec, made, **fields):
    return message_set(magic, made) if codec == NONE else wrapper(magic, codec, made, **fields)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
def test_timestamp_lookup_finds_the_exact_legacy_message_even_inside_a_wrapper(tmp_path, codec):
    """For a wrapper with timestamps 20 to 22, a lookup of 21 once returned the last timestamp with the first offset."""
    first, second = records(0, NOW, NOW + 5, NOW + 3), records(10, NOW + 20, NOW + 22, NOW + 21)
    log = loaded(tmp_path / "log", in_format(1, codec, first) + in_format(1, codec, second))
    told = {r.offset: r.timestamp for r in first + second}
    for wanted in range(-1, 24):
        found = offset_for_timestamp(log, NOW + wanted)
        expected = next(((t, o, -1) for o, t in told.items() if t >= NOW + wanted), None)
        assert found == expected, wanted
    assert max_timestamp_offset(log) == (NOW + 22, 11, -1)
    log.discard()


def test_timestamp_lookup_ignores_messages_below_the_log_start_offset(tmp_path):
    data = wrapper(1, GZIP, records(4, NOW, NOW + 1, NOW + 2))
    log = loaded(tmp_path / "log", data, log_start_offset=5)
    assert offset_for_timestamp(log, NOW) == (NOW + 1, 5, -1)
    log.discard()


def test_timestamp_lookup_in_a_log_append_time_wrapper_finds_its_first_message(tmp_path):
    made = wrapper(1, GZIP, records(4, 1, 2, 3), log_append_time=NOW)
    log = loaded(tmp_path / "log", made)
    assert offset_for_timestamp(log, NOW - 1) == (NOW, 4, -1)
    assert offset_for_timestamp(log, NOW + 1) is None
    assert max_timestamp_offset(log) == (NOW, 4, -1)
    log.discard()


def test_timestamp_lookup_skips_messages_without_a_timestamp(tmp_path):
    data = wrapper(0, GZIP, records(0, -1, -1)) + message_set(1, records(2, NOW))
    log = loaded(tmp_path / "log", data)
    assert offset_for_timestamp(log, 0) == (NOW, 2, -1)
    log.discard()


def test_timestamp_lookup_in_a_compacted_wrapper_keeps_the_original_offsets(tmp_path):
    made = [LegacyRecord(12, b"a", b"1", NOW), LegacyRecord(17, b"b", b"2", NOW + 9)]
    log = loaded(tmp_path / "log", wrapper(1, GZIP, made, relative_to=10))
    assert offset_for_timestamp(log, NOW) == (NOW, 12, -1)
    assert offset_for_timestamp(log, NOW + 1) == (NOW + 9, 17, -1)
    log.discard()


@pytest.fixture
def decompressions(monkeypatch):
    """Calls of decompress_records; their number is that of decompressions."""
    calls = []
    really = decompression.decompress_records

    def counted(*args):
        calls.append(args)
        return really(*args)

    monkeypatch.setattr(timestamp_lookup, "decompress_records", counted)
    return calls


def test_repeated_lookup_decompresses_a_batch_once(tmp_path, decompressions):
    made = batch(0, [V2Record(n, NOW + n, None, b"v") for n in range(50)], codec=1)
    log = loaded(tmp_path / "log", made)
    for _ in range(5):
        assert offset_for_timestamp(log, NOW + 7) == (NOW + 7, 7, 0)
        assert max_timestamp_offset(log) == (NOW + 49, 49, 0)
    assert len(decompressions) == 2
    for wanted in range(2 * timestamp_lookup.MAX_CACHED):
        offset_for_timestamp(log, NOW - wanted)
    assert len(log.segments[0].time_lookup_cache) <= timestamp_lookup.MAX_CACHED
    log.discard()


def test_batch_that_cannot_be_decompressed_is_corrupt_message_and_log_stays_online(tmp_path):
    log = new_log(tmp_path / "log", message_timestamp_after_max_ms=2**62)
    made = bytearray(batch(0, [V2Record(n, NOW + n, None, b"v") for n in range(50)], codec=1))
    made[70:] = bytes(len(made) - 70)
    log.append_batch(bytearray(made), NOW)
    with pytest.raises(BrokerError, match=r"the batch at byte 0 of .*00000000000000000000.log cannot") as caught:
        offset_for_timestamp(log, NOW + 7)
    assert caught.value.code is ErrorCode.corrupt_message
    assert log.failure is None
    log.discard()


def test_lookups_in_many_threads_decompress_one_batch_at_a_time(tmp_path, monkeypatch):
    """A batch of 60 kB may decompress to 60 MB, and ten threads read remote segments."""
    decompressing = threading.Semaphore(1)

    def decompress_records(*args):
        assert decompressing.acquire(blocking=False), "two batches are decompressed at the same time"
        time.sleep(0)  # lets another thread run
        try:
            return decompression.decompress_records(*args)
        finally:
            decompressing.release()

    monkeypatch.setattr(timestamp_lookup, "decompress_records", decompress_records)
    log = loaded(tmp_path / "log", b"".join(batch(n, [V2Record(n, NOW + n)], codec=4) for n in range(200)))
    with ThreadPoolExecutor(10) as threads:
        found = list(threads.map(partial(offset_for_timestamp, log), range(NOW, NOW + 200)))
    assert [one and one.offset for one in found] == list(range(200))
    log.discard()


class SlowRemoteSegment:
    """A segment whose batches, other than their headers, are read from a store that does not respond."""

    def __init__(self, segment, reading, responds):
        self._segment, self._reading, self._responds = segment, reading, responds

    def __getattr__(self, name):
        return getattr(self._segment, name)

    def handle(self):
        return self

    def read(self, position, size):
        if size > layout.RECORDS_AT:
            self._reading.set()
            assert self._responds.wait(60)
        return self._segment.handle().read(position, size)


def test_lookup_does_not_wait_for_the_read_of_another_lookup(tmp_path):
    log = loaded(tmp_path / "log", batch(0, [V2Record(0, NOW)], codec=4))
    remote = loaded(tmp_path / "remote", batch(0, [V2Record(0, NOW)], codec=4))
    reading, responds = threading.Event(), threading.Event()
    segment: Any = SlowRemoteSegment(remote.segments[0], reading, responds)
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(timestamp_lookup.offset_in_segment, segment, NOW, 0)
        try:
            assert reading.wait(60)
            assert threads.submit(offset_for_timestamp, log, NOW).result(timeout=10) == (NOW, 0, 0)
        finally:
            responds.set()
        assert slow.result() == (NOW, 0, 0)
    log.discard()
    remote.discard()


def test_error_of_a_malformed_record_does_not_keep_the_decompressed_batch(tmp_path, monkeypatch):
    """Errors end up in reference cycles, which live until the garbage collector runs."""
    buffers = []

    class WatchedScratch(Scratch):
        def _hold(self, data):
            super()._hold(data)
            buffers.append(weakref.ref(data))

    monkeypatch.setattr(decompression, "Scratch", WatchedScratch)
    monkeypatch.setattr(decompression, "_per_thread", threading.local())
    made = bytearray(batch(0, [V2Record(0, NOW, b"k", bytes(9 << 20)), V2Record(1, NOW + 5)], codec=4))
    struct.pack_into(">q", made, layout.MAX_TIMESTAMP_AT, NOW + 9)
    struct.pack_into(">i", made, layout.RECORD_COUNT_AT, 3)
    log = new_log(tmp_path / "log", message_timestamp_after_max_ms=2**62)
    log.append_batch(made, NOW)
    with pytest.raises(BrokerError, match="a record is malformed") as raised:
        offset_for_timestamp(log, NOW + 9)
    assert raised.value.code is ErrorCode.corrupt_message
    assert buffers
    assert all(buffer() is None for buffer in buffers)
    log.discard()
