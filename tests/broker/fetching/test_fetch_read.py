from __future__ import annotations

import asyncio

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching import fetch_read
from kafkalog_broker.fetching.fetch_read import MAX_SLICES, READ_AT_ONCE_BYTES, read_partitions
from kafkalog_broker.fetching.fetch_request import FetchPartition
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.partition.file_handles import FileHandle, FileSlice
from tests.broker.storage.helpers.stored_logs import NOW, log_bytes, new_log
from tests.log.helpers.batch_builder import V2Record, batch

MB = 1 << 20


@pytest.fixture
def logs(tmp_path):
    open_logs = {}

    def log_of(partition, size):
        """The log of a partition with one batch of about `size` bytes."""
        log = open_logs[partition] = new_log(tmp_path / str(partition), message_timestamp_after_max_ms=2**62)
        log.append(validate_batch(batch(0, [V2Record(0, NOW, None, bytes(size))]), log.config, NOW), NOW)
        return log

    yield open_logs, log_of
    for log in open_logs.values():
        log.discard()


def fetch(open_logs, *, offset=0, max_bytes=50 * MB):
    partitions = [FetchPartition("t", partition, offset, MB, -1) for partition in open_logs]
    reading = read_partitions(
        partitions,
        lambda partition: open_logs[partition.partition],
        max_bytes,
        read_committed=False,
        time_slice=TimeSlice(),
    )
    return asyncio.run(reading)


def records(partition):
    return b"".join(piece.read() if isinstance(piece, FileSlice) else piece for piece in partition.records)


def test_fetch_reads_small_records_at_once_and_large_ones_when_the_response_is_sent(logs):
    open_logs, log_of = logs
    for partition, size in enumerate([100, READ_AT_ONCE_BYTES, READ_AT_ONCE_BYTES - 1000, 2000]):
        log_of(partition, size)
    result = fetch(open_logs)
    assert [type(piece) for partition in result.partitions for piece in partition.records] == [
        bytes,
        FileSlice,
        bytes,
        FileSlice,  # all that is read at once together stays within the limit
    ]
    assert [records(partition) for partition in result.partitions] == [log_bytes(log) for log in open_logs.values()]
    assert result.size == sum(log.size_bytes for log in open_logs.values())


def test_fetch_response_holds_at_most_max_slices_open_files(logs):
    open_logs, log_of = logs
    for partition in range(MAX_SLICES + 3):
        log_of(partition, READ_AT_ONCE_BYTES)
    result = fetch(open_logs)
    assert [bool(partition.records) for partition in result.partitions] == [True] * MAX_SLICES + [False] * 3
    assert result.size == sum(partition.size for partition in result.partitions)
    assert not result.must_respond


def test_fetch_at_the_open_file_limit_holds_no_open_files(logs, monkeypatch):
    """Connections that do not read their responses must not use up the file descriptors."""
    open_logs, log_of = logs
    for partition, size in enumerate([100, READ_AT_ONCE_BYTES, 100]):
        log_of(partition, size)
    held = fetch(open_logs)
    before = FileHandle.open_now
    monkeypatch.setattr(fetch_read, "MAX_OPEN_WITH_RESPONSES", before)
    result = fetch(open_logs)
    assert [bool(partition.records) for partition in result.partitions] == [True, False, True]
    result = fetch({1: open_logs[1]})
    assert [type(piece) for partition in result.partitions for piece in partition.records] == [bytes]
    assert records(result.partitions[0]) == log_bytes(open_logs[1]), "one batch is given whole, however large"
    assert FileHandle.open_now == before
    del held


def test_file_handle_open_now_counts_open_files(tmp_path):
    (tmp_path / "file").write_bytes(b"data")
    before = FileHandle.open_now
    with pytest.raises(FileNotFoundError):
        FileHandle(str(tmp_path / "none"))
    handles = [FileHandle(str(tmp_path / "file")) for _ in range(3)]
    assert FileHandle.open_now == before + 3
    del handles[1:]
    assert FileHandle.open_now == before + 1


def test_fetch_of_an_offline_log_has_an_error_for_that_partition_only(logs):
    open_logs, log_of = logs
    for partition in range(3):
        log_of(partition, 100)
    open_logs[1].take_offline(OSError(5, "Input/output error"))
    result = fetch(open_logs)
    assert [partition.error_code for partition in result.partitions] == [0, ErrorCode.kafka_storage_error, 0]
    assert result.must_respond


def test_read_error_of_a_slice_takes_the_log_offline(logs, monkeypatch):
    _, log_of = logs
    log = log_of(0, 100)
    result = log.find_range(0, MB, up_to=1, at_least_one=True)

    def broken(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("kafkalog_broker.storage.partition.log_segment.os.pread", broken)
    with pytest.raises(BrokerError) as raised:
        log.read_slice(result.slices[0])
    assert raised.value.code == ErrorCode.kafka_storage_error
    assert log.failure is not None
