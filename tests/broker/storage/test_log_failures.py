"""Errors of the disk and of system calls in one log."""

from __future__ import annotations

import errno
import os

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.timestamp_lookup import offset_for_timestamp
from tests.broker.storage.helpers.stored_logs import (
    HOUR,
    NOW,
    code_of,
    log_bytes,
    new_log,
    producer,
    read_all,
    reopened,
    three_segments,
    validated,
)


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
def test_failed_write_takes_the_log_offline_and_keeps_acknowledged_records(tmp_path, monkeypatch, after):
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
        lambda: log.read_range(0, 1, up_to=3, at_least_one=True).chunks,
        lambda: offset_for_timestamp(log, 0),
        lambda: log.flush(),
        lambda: log.delete_records(1),
        lambda: log.delete_old_segments(NOW),
    ):
        assert code_of(call) == ErrorCode.kafka_storage_error
    assert len(told) == 1
    assert not log.needs_flush(NOW)
    log.close()
    again = reopened(tmp_path, clean=False)
    assert again.append(producer(0, 3), NOW).is_duplicate
    assert again.append(producer(3, 3), NOW).base_offset == 3
    again.discard()


def test_failed_fsync_takes_the_log_offline_and_acknowledges_no_record(tmp_path, monkeypatch):
    log = new_log(tmp_path, flush_messages=1)
    log.append(validated(1), NOW)
    monkeypatch.setattr("os.fdatasync", Broken(None, error=5))
    assert code_of(log.flush) == ErrorCode.kafka_storage_error
    assert (log.high_watermark, log.recovery_point) == (0, 0)
    monkeypatch.undo()
    assert code_of(log.flush) == ErrorCode.kafka_storage_error
    log.discard()


def test_failed_segment_creation_takes_the_log_offline(tmp_path, monkeypatch):
    log = new_log(tmp_path, segment_bytes=300)
    log.append(validated(1, size=100), NOW)
    log.append(validated(1, size=50), NOW)
    (log.directory / f"{2:020d}.log").touch()
    assert code_of(log.append, validated(1, size=100), NOW) == ErrorCode.kafka_storage_error
    log.discard()
    again = reopened(tmp_path, clean=False)
    assert again.append(validated(1), NOW).base_offset == 2
    again.discard()


def test_segment_file_removed_externally_takes_the_log_offline(tmp_path):
    log = three_segments(tmp_path)
    log.segments[0].forget_handles()
    (log.directory / f"{0:020d}.log").unlink()
    assert code_of(log.read_range, 0, 1, up_to=30, at_least_one=True) == ErrorCode.kafka_storage_error
    log.discard()


@pytest.fixture
def out_of_descriptors(monkeypatch):
    """A function after whose call every open fails with EMFILE; calling it with False ends that."""
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
    "read": read_all,
    "offset of a timestamp": lambda log: offset_for_timestamp(log, NOW),
    "aborted transactions": lambda log: log.aborted_transactions(0, 2),
    "flush": lambda log: log.flush(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_without_a_free_descriptor_fails_and_keeps_the_log_online(tmp_path, operation, out_of_descriptors):
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
