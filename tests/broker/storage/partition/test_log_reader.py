"""Reads at any offset and limit return the appended batches; timestamp lookups equal a full scan."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.partition.file_handles import _HANDLES
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.timestamp_lookup import max_timestamp_offset, offset_for_timestamp
from kafkalog_broker.storage.recovery.log_loader import LoadRequest, load_log
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition
from tests.broker.storage.helpers.stored_logs import (
    NOW,
    TOPIC_ID,
    log_bytes,
    log_config,
    new_log,
    read_all,
    reopened,
    validated,
)
from tests.golden_data import golden_logs
from tests.log.helpers.batch_builder import CODECS, V2Record, batch
from tests.log.helpers.plain_decoder import decode_batches, decode_records
from tests.searches import examples

appends = st.lists(
    st.tuples(
        st.lists(st.integers(0, 500), min_size=1, max_size=8),  # timestamps above NOW
        st.integers(0, 300),  # bytes of a value
        st.sampled_from(sorted(CODECS.values())),
        st.booleans(),  # roll before it
    ),
    min_size=1,
    max_size=25,
)
configs = st.fixed_dictionaries(
    {
        "segment_bytes": st.sampled_from([3000, 10_000, 1 << 20]),
        "index_interval_bytes": st.sampled_from([0, 300, 4096]),
        "message_timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime"]),
    }
)


def written(directory, batches, config):
    log = new_log(Path(directory), message_timestamp_after_max_ms=2**62, **config)
    for slot, (timestamps, size, codec, roll) in enumerate(batches):
        if roll and log.local.active.size:
            log.local.roll(NOW)
        records = [V2Record(i, NOW + t, b"k", bytes(size)) for i, t in enumerate(timestamps)]
        log.append(validate_batch(batch(0, records, codec=codec), log.config, NOW + slot % 7), NOW)
    return log


@settings(max_examples=examples(40))
@given(batches=appends, config=configs, max_bytes=st.integers(1, 5000), released=st.booleans(), data=st.data())
def test_fetch_at_any_offset_returns_whole_batches_from_the_one_containing_it(
    batches, config, max_bytes, released, data
):
    with tempfile.TemporaryDirectory() as directory:
        log = written(directory, batches, config)
        if released:
            log.release_files()
        told = list(decode_batches(log_bytes(log)))
        raw = log_bytes(log)
        bounds = sorted({0, *(one.last_offset + 1 for one in told)})
        up_to = data.draw(st.sampled_from(bounds), label="up_to")
        for offset in range(log.log_end_offset):
            result = log.read_range(offset, max_bytes, up_to=up_to, at_least_one=True)
            wanted = [one for one in told if one.last_offset >= offset and one.last_offset < up_to]
            got = list(decode_batches(b"".join(result.chunks)))
            assert bool(got) == bool(wanted and offset < up_to)
            assert [one.base_offset for one in got] == [one.base_offset for one in wanted[: len(got)]]
            assert all(chunk in raw for chunk in result.chunks)
            assert sum(one.size for one in got) <= max_bytes or len(got) == 1
            assert result.next_offset == (got[-1].last_offset + 1 if got else offset)
        assert read_all(log, max_bytes=max_bytes) == raw
        log.discard()


@settings(max_examples=examples(40))
@given(batches=appends, config=configs, start=st.integers(0, 40), closed=st.booleans())
def test_offset_for_timestamp_equals_a_full_scan(batches, config, start, closed):
    with tempfile.TemporaryDirectory() as directory:
        log = written(directory, batches, config)
        start = min(start, log.log_end_offset)
        log.delete_records(start)
        if closed:
            log.close()
            log = reopened(Path(directory), log_start_offset=start, **config)
        records = decode_records(log_bytes(log))
        for timestamp in range(NOW - 1, NOW + 502, 3):
            expected = next(
                ((r.timestamp, r.offset, 0) for r in records if r.offset >= start and r.timestamp >= timestamp), None
            )
            assert offset_for_timestamp(log, timestamp) == expected
        latest = max(records, key=lambda r: r.timestamp)
        assert max_timestamp_offset(log) == (latest.timestamp, latest.offset, 0)
        log.discard()


@pytest.mark.parametrize("golden", golden_logs(crashed=False), ids=str)
def test_kafka_log_is_read_from_every_offset(golden, tmp_path, golden_copy):
    """The logs have legacy formats, offset gaps of compaction, several segments, or a start offset within one."""
    directory = golden_copy(golden.release, golden.name) / golden.name
    request = LoadRequest(directory=directory, clean=True, log_start_offset=golden.log_start_offset)
    log = Log(TopicIdPartition(golden.topic, TOPIC_ID, golden.partition), log_config(), load_log(request), NOW)
    assert (log.log_start_offset, log.log_end_offset) == (golden.log_start_offset, golden.high_watermark)
    rows = golden.records()
    step = max(1, len(rows) // 40)
    for row in rows[::step]:
        result = log.read_range(row["offset"], 10_000, up_to=log.high_watermark, at_least_one=True)
        first = next(
            record for record in decode_records(b"".join(result.chunks)) if record.offset >= row["offset"]
        )  # fmt: skip
        assert (first.offset, first.key, first.value) == (row["offset"], row["key"], row["value"])
    raw = log_bytes(log)
    assert raw.endswith(read_all(log, log.log_start_offset, max_bytes=50_000))
    log.discard()


@pytest.mark.parametrize("golden", golden_logs("kafka-4.3.0", crashed=False), ids=str)
def test_offset_for_timestamp_of_a_kafka_log_is_the_first_record_at_or_after_it(golden, golden_copy):
    directory = golden_copy(golden.release, golden.name) / golden.name
    request = LoadRequest(directory=directory, clean=True, log_start_offset=golden.log_start_offset)
    log = Log(TopicIdPartition(golden.topic, TOPIC_ID, golden.partition), log_config(), load_log(request), NOW)
    rows = golden.records()
    for row in rows[:: max(1, len(rows) // 25)]:
        expected = next(r["offset"] for r in rows if r["timestamp"] >= row["timestamp"])
        found = offset_for_timestamp(log, row["timestamp"])
        if golden.topic in ("transactions", "compacted"):
            # markers are records to ListOffsets too, and lie before the next record that a consumer returns
            assert found.offset <= expected  # type: ignore[union-attr]
        else:
            assert found.offset == expected  # type: ignore[union-attr]
    log.discard()


def test_consecutive_fetches_need_no_index_search(tmp_path, monkeypatch):
    log = new_log(tmp_path)
    for _ in range(50):
        log.append(validated(5), NOW)
    offset = log.read_range(0, 1000, up_to=log.high_watermark, at_least_one=True).next_offset
    monkeypatch.setattr("kafkalog_broker.storage.partition.log_segment.LogSegment.locate", None)
    while offset < log.high_watermark:
        offset = log.read_range(offset, 1000, up_to=log.high_watermark, at_least_one=True).next_offset
    log.discard()


def test_missing_or_wrong_index_loses_no_records(tmp_path):
    log = new_log(tmp_path, index_interval_bytes=0)
    for _ in range(20):
        log.append(validated(5), NOW)
    log.local.roll(NOW)
    log.flush()
    index = log.directory / f"{0:020d}.index"
    whole = index.read_bytes()
    for damaged in (b"", whole[:-3], bytes(len(whole)), whole + bytes(800)):
        index.write_bytes(damaged)
        log.segments[0].forget_handles()
        for offset in range(0, 100, 7):
            data = log.read_range(offset, 1, up_to=100, at_least_one=True).chunks[0]
            first = next(decode_batches(data))
            assert first.base_offset <= offset <= first.last_offset
    log.discard()


def test_reader_threads_see_whole_batches_while_segments_are_rolled_and_deleted(tmp_path):
    log = new_log(tmp_path, segment_bytes=2000, retention_bytes=6000)
    done = threading.Event()
    faults = []

    def follow():
        offset = 0
        try:
            while not done.is_set() or offset < log.high_watermark:
                start, end = log.log_start_offset, log.high_watermark
                offset = max(offset, start)
                try:
                    result = log.read_range(offset, 900, up_to=end, at_least_one=True)
                except BrokerError as error:  # retention was faster
                    if error.code == ErrorCode.offset_out_of_range and log.log_start_offset > offset:
                        continue
                    raise
                batches = list(decode_batches(b"".join(result.chunks)))
                if batches:
                    assert batches[0].base_offset <= offset <= batches[0].last_offset
                    assert batches[-1].last_offset + 1 == result.next_offset
                offset = result.next_offset
        except (AssertionError, BrokerError) as error:
            faults.append(error)

    threads = [threading.Thread(target=follow) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(400):
        log.append(validated(1 + i % 3, size=40), NOW)
        if i % 20 == 0:
            log.delete_old_segments(NOW)
    done.set()
    for thread in threads:
        thread.join()
    assert faults == []
    log.discard()


def test_number_of_files_open_for_reading_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(_HANDLES, "max_open", 3)
    log = new_log(tmp_path)
    for _ in range(6):
        log.append(validated(2), NOW)
        log.local.roll(NOW)
    for _ in range(3):
        assert read_all(log) == log_bytes(log)
        assert len(_HANDLES._open) == 3
    log.discard()
