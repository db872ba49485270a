"""Segments whose offsets overflow an index (LogSegmentOffsetOverflowException) are split when they are loaded."""

from __future__ import annotations

import os

import pytest

from kafkalog_broker.storage.recovery.log_loader import load_log
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.transaction_index import load_transaction_index
from kafkalog_spark.log.write.encoded_batch import control_batch
from tests.broker.storage.helpers.loaded_logs import name, records, request, write_log
from tests.broker.storage.helpers.stored_logs import NOW
from tests.log.helpers.batch_builder import TRANSACTIONAL

FAR = 2**31


def overflowed(directory):
    """One segment whose offsets span more than 2^32, with a transaction that ends in its second part."""
    fields = {"attributes": TRANSACTIONAL, "producer_epoch": 0}
    data = [
        records(0, 5, size=3000),
        records(5, 2, producer_id=5, base_sequence=0, **fields),
        records(FAR - 1, 1),
        records(FAR, 3, size=3000),
        control_batch(ControlType.ABORT, FAR + 3, NOW, producer_id=5, producer_epoch=0, coordinator_epoch=1).data,
        records(3 * FAR, 2),
    ]
    return write_log(directory, data), b"".join(data)


def log_of(directory):
    """The bytes of all segments by base offset."""
    paths = sorted(directory.glob("*.log"))
    return [int(path.stem) for path in paths], b"".join(path.read_bytes() for path in paths)


BASES = [0, FAR, 3 * FAR]


@pytest.mark.parametrize("recovery_point", [0, 6, FAR + 1, 3 * FAR])
def test_overflowed_segment_is_split_without_losing_records(tmp_path, recovery_point):
    directory, data = overflowed(tmp_path / "t-0")
    loaded = load_log(request(directory, recovery_point=recovery_point))
    assert (loaded.base_offsets, loaded.log_end_offset) == (BASES, 3 * FAR + 2)
    assert sum(one.truncated_bytes for one in loaded.recovered) == 0
    assert log_of(directory) == (BASES, data)
    assert [path.name for path in directory.iterdir() if path.name.endswith((".cleaned", ".swap", ".deleted"))] == []
    again = load_log(request(directory, clean=True))
    assert (again.base_offsets, again.log_end_offset) == (BASES, 3 * FAR + 2)
    assert loaded.producers.first_unstable_offset(loaded.log_end_offset) is None, "the transaction has ended"
    if recovery_point <= FAR + 1:
        (aborted,) = load_transaction_index(directory / name(FAR, ".txnindex"), FAR)
        assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (5, 5, FAR + 3)


def test_overflowed_segment_without_an_index_is_split_after_a_clean_shutdown(tmp_path):
    directory, data = overflowed(tmp_path / "t-0")
    (directory / name(0, ".index")).unlink()
    assert load_log(request(directory, clean=True)).base_offsets == BASES
    assert log_of(directory) == (BASES, data)


def test_recovery_of_an_overflowed_segment_truncates_only_its_torn_end(tmp_path):
    directory, data = overflowed(tmp_path / "t-0")
    with open(directory / name(0, ".log"), "ab") as file:
        file.write(b"torn" + bytes(3_000_000))
    loaded = load_log(request(directory))
    assert log_of(directory) == (BASES, data)
    assert sum(one.truncated_bytes for one in loaded.recovered) == 3_000_004


def test_overflowed_segment_with_a_distant_first_batch_gets_a_segment_for_that_batch(tmp_path):
    directory = tmp_path / "t-0"
    write_log(directory, [records(0), records(FAR + 7, 2)])
    cut = (directory / name(0, ".log")).read_bytes()[len(records(0)) :]
    (directory / name(0, ".log")).write_bytes(cut)  # as compaction leaves it
    loaded = load_log(request(directory))
    assert (loaded.base_offsets, loaded.log_end_offset) == ([0, FAR + 7], FAR + 9)
    assert log_of(directory) == ([0, FAR + 7], cut)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", range(1, 60))
def test_kill_at_any_step_of_a_segment_split_loses_no_record(tmp_path, step, monkeypatch):
    directory, data = overflowed(tmp_path / "t-0")
    steps = iter(range(1, 1000))

    def counted(call):
        def made(*arguments, **named):
            if next(steps) >= step:
                raise Killed
            return call(*arguments, **named)

        return made

    with monkeypatch.context() as patched:
        for called in ("rename", "unlink", "fsync", "replace"):
            patched.setattr(os, called, counted(getattr(os, called)))
        try:
            load_log(request(directory))
        except Killed:
            pass
        else:
            assert step > 30, "there are that many steps"
    loaded = load_log(request(directory))
    assert (loaded.log_end_offset, sum(one.truncated_bytes for one in loaded.recovered)) == (3 * FAR + 2, 0)
    assert log_of(directory) == (BASES, data)
