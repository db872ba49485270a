"""Reads while compaction replaces segments: fetches in other threads, and the offline reader without the broker."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.compaction.cleaner import Cleaner
from kafkalog_broker.storage.partition import timestamp_lookup
from kafkalog_broker.storage.partition.file_handles import _HANDLES
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.timestamp_search import offset_for_timestamp
from tests.broker.storage.helpers.cleaned_logs import Host, append, compacted_log, request
from tests.broker.storage.helpers.stored_logs import NOW
from tests.log.helpers.plain_decoder import decode_batches
from tests.log.helpers.rows import plain_rows

SETTINGS: dict[str, Any] = {"segment_bytes": 1500, "index_interval_bytes": 100, "delete_retention_ms": 0}


def write(log: Log, batches: int, keys: int, chance: random.Random) -> dict[bytes, int]:
    """The latest offset of each key of these."""
    latest = {}
    for _ in range(batches):
        pairs = [(b"key %d" % chance.randrange(keys), b"v" * chance.randrange(40)) for _ in range(3)]
        base = append(log, *pairs, timestamp=NOW + log.log_end_offset)
        latest.update({key: base + i for i, (key, _) in enumerate(pairs)})
    return latest


def test_consumer_threads_see_every_latest_record_while_segments_are_replaced(tmp_path, monkeypatch):
    # Few handles: a reader that opens a file again must not get the one that has taken its name.
    monkeypatch.setattr(_HANDLES, "max_open", 2)
    log = compacted_log(tmp_path, **SETTINGS)
    chance = random.Random(1)
    latest = write(log, 100, 12, chance)
    done = threading.Event()
    faults: list[object] = []
    rounds = [0, 0, 0]

    def consume(number: int) -> None:
        try:
            while not done.is_set() or not rounds[number]:
                floor = dict(latest)  # a consumer that begins now sees these, or later ones
                offset, seen = 0, {}
                while offset < log.high_watermark:  # to where the log ends by then: newer records replace older ones
                    result = log.read_range(offset, 700, up_to=log.high_watermark, at_least_one=True)
                    found = list(decode_batches(b"".join(result.chunks)))
                    if not found:  # `up_to` lay in a gap: newer records are above it by now
                        continue
                    assert offset < found[-1].last_offset + 1 <= result.next_offset
                    for one in found:
                        assert one.last_offset >= offset
                        seen.update({r.key: r.offset for r in one.records if r.offset >= offset})
                    offset = found[-1].last_offset + 1  # all that a client knows
                for key, at in floor.items():
                    assert seen[key] >= at
                rounds[number] += 1
        except (AssertionError, KeyError, BrokerError, KafkalogError) as error:
            faults.append(error)

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    end = 0
    for _ in range(30):
        latest.update(write(log, 10, 12, chance))
        log.local.roll(NOW)
        log.flush()
        end, _ = Cleaner(request(log, NOW, end), Host(log, NOW), 1 << 20, 0.9, 1 << 16).clean()
    done.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert min(rounds) > 0
    log.discard()


def test_fetch_of_a_segment_replaced_during_the_read_is_retried(tmp_path, monkeypatch):
    log = compacted_log(tmp_path, **SETTINGS)
    write(log, 40, 2, random.Random(2))
    log.local.roll(NOW)
    log.flush()
    real = log.local.find_range
    calls = []

    def find_range(*arguments):
        calls.append(arguments)
        result = real(*arguments)
        if len(calls) == 1:
            Cleaner(request(log), Host(log, NOW), 1 << 20, 0.9, 1 << 16).clean()
        return result

    monkeypatch.setattr(log.local, "find_range", find_range)
    found = log.read_range(0, 10_000, up_to=log.high_watermark, at_least_one=True)
    assert len(calls) == 2
    assert next(decode_batches(found.chunks[0])).base_offset > 0
    log.discard()


def test_cached_position_of_a_replaced_segment_is_not_used_for_the_new_one(tmp_path):
    log = compacted_log(tmp_path, **{**SETTINGS, "segment_bytes": 1 << 20})
    write(log, 60, 5, random.Random(3))
    middle = log.read_range(0, 600, up_to=log.high_watermark, at_least_one=True).next_offset
    log.local.roll(NOW)
    log.flush()
    Cleaner(request(log), Host(log, NOW), 1 << 20, 0.9, 1 << 16).clean()
    data = log.read_range(middle, 10_000, up_to=log.high_watermark, at_least_one=True).chunks
    assert all(found.last_offset >= middle for found in decode_batches(b"".join(data)))
    log.discard()


class Watcher:
    """Calls `look` before every rename, so that it sees each set of names that exists during a replacement."""

    def __init__(self, look):
        self.look = look
        self.calls = 0
        self._real = os.rename

    def __call__(self, *arguments):
        self.calls += 1
        self.look()
        return self._real(*arguments)


def offline(directory: Path, start: int = 0, **fields: Any) -> list[tuple[int, bytes]]:
    log = PartitionLog(PartitionLocation("orders", 0, str(directory)))
    found = scan_partition(
        log, max(start, log.log_start_offset), last_stable_offset(log), ScanRequest(("offset", "key"), **fields)
    )
    return [(row["offset"], row["key"]) for row in plain_rows(found)]


@pytest.mark.parametrize("committed", [False, True])
def test_offline_reader_sees_every_latest_record_at_every_step_of_a_segment_replacement(committed, tmp_path):
    log = compacted_log(tmp_path, **SETTINGS)
    chance = random.Random(4)
    latest: dict[bytes, int] = {}
    end = 0

    def look():
        rows = offline(log.directory, read_committed=committed)
        assert [offset for offset, _ in rows] == sorted({offset for offset, _ in rows})
        assert {key: offset for offset, key in rows} == latest
        middle = log.log_end_offset // 2
        assert [row for row in rows if row[0] >= middle] == offline(log.directory, middle, read_committed=committed)

    for _ in range(3):
        latest.update(write(log, 25, 9, chance))
        log.local.roll(NOW)
        log.flush()
        watcher = Watcher(look)
        with mock.patch.object(os, "rename", watcher):
            end, _ = Cleaner(request(log, NOW, end), Host(log, NOW), 1 << 20, 0.9, 1 << 16).clean()
        assert watcher.calls > 8
        look()
    log.discard()


def test_offline_scan_that_began_before_a_segment_replacement_continues_after_it(tmp_path):
    """Rows read before and after: every latest record once and in order, and no record that was never written."""
    for stop in range(1, 40, 6):
        log = compacted_log(tmp_path / str(stop), **SETTINGS)
        latest = write(log, 60, 6, random.Random(stop))
        log.local.roll(NOW)
        log.flush()
        reader = PartitionLog(PartitionLocation("orders", 0, str(log.directory)))
        found = scan_partition(reader, 0, reader.log_end_offset, ScanRequest(("offset", "key"), first_batch_rows=stop))
        first = next(found)
        Cleaner(request(log), Host(log, NOW), 1 << 20, 0.9, 1 << 16).clean()
        rows = plain_rows([first, *found])
        offsets = [row["offset"] for row in rows]
        assert offsets == sorted(set(offsets))
        assert {row["key"]: row["offset"] for row in rows} == latest
        log.discard()


def test_offset_for_timestamp_in_a_cleaned_log_is_the_same_offline_and_in_the_broker(tmp_path):
    log = compacted_log(tmp_path, **SETTINGS)
    write(log, 60, 9, random.Random(5))
    log.local.roll(NOW)
    log.flush()
    Cleaner(request(log), Host(log, NOW), 1 << 20, 0.9, 1 << 16).clean()
    reader = PartitionLog(PartitionLocation("orders", 0, str(log.directory)))
    for timestamp in range(NOW, NOW + log.log_end_offset + 3, 7):
        found = timestamp_lookup.offset_for_timestamp(log, timestamp)
        assert offset_for_timestamp(reader, timestamp) == (None if found is None else found.offset)
    log.discard()
