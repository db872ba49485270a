"""Leader epoch cache of one log, with the cases of Kafka's LeaderEpochFileCacheTest."""

from __future__ import annotations

import errno

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.fetched_batches import parse_fetched_batches
from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_broker.storage.partition.leader_epoch_lookup import diverging_epoch
from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry
from tests.broker.storage.helpers.loaded_logs import records
from tests.broker.storage.helpers.stored_logs import NOW, new_log

END = 100


@pytest.fixture
def epochs(tmp_path):
    made = LeaderEpochs(tmp_path)
    for epoch, start in ((2, 10), (4, 30), (7, 60)):
        made.assign(epoch, start)
    return made


def on_disk(epochs, tmp_path):
    assert LeaderEpochs.read(tmp_path).entries == epochs.entries
    return [tuple(entry) for entry in epochs.entries]


def test_assigned_epoch_is_on_disk_on_return(epochs, tmp_path):
    assert (tmp_path / LEADER_EPOCH_CHECKPOINT).read_bytes() == b"0\n3\n2 10\n4 30\n7 60\n"
    assert epochs.latest == 7


def test_assigning_the_latest_epoch_again_writes_nothing(epochs, tmp_path):
    (tmp_path / LEADER_EPOCH_CHECKPOINT).unlink()
    epochs.assign(7, 80)
    assert not (tmp_path / LEADER_EPOCH_CHECKPOINT).exists()


def test_new_epoch_entry_replaces_later_entries(epochs, tmp_path):
    epochs.assign(8, 30)
    assert on_disk(epochs, tmp_path) == [(2, 10), (8, 30)]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (7, (7, END)),
        (8, (-1, -1)),
        (1, (1, 10)),
        (2, (2, 30)),
        (3, (2, 30)),
        (4, (4, 60)),
        (6, (4, 60)),
    ],
)
def test_end_offset_of_an_epoch_is_the_start_of_the_next_one(epochs, epoch, answer):
    assert epochs.end_offset_for(epoch, END) == answer


def test_end_offset_without_epochs_is_undefined(tmp_path):
    empty = LeaderEpochs.read(tmp_path)
    assert empty.end_offset_for(0, END) == (-1, -1)
    assert (empty.latest, empty.epoch_for_offset(5)) == (-1, -1)


def test_epoch_for_offset_is_that_of_the_entry_covering_it(epochs):
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 29, 30, 59, 60, 1000)] == [-1, 2, 2, 4, 4, 7, 7]


@pytest.mark.parametrize(
    ("end", "left"), [(61, 3), (60, 2), (31, 2), (30, 1), (10, 0)],
)  # fmt: skip
def test_truncation_from_the_end_drops_epochs_that_begin_after_it(epochs, tmp_path, end, left):
    epochs.truncate_from_end(end)
    epochs.flush()
    assert on_disk(epochs, tmp_path) == [(2, 10), (4, 30), (7, 60)][:left]


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (5, [(2, 10), (4, 30), (7, 60)]),
        (10, [(2, 10), (4, 30), (7, 60)]),
        (29, [(2, 29), (4, 30), (7, 60)]),
        (30, [(4, 30), (7, 60)]),
        (45, [(4, 45), (7, 60)]),
        (99, [(7, 99)]),
    ],
)
def test_truncation_from_the_start_moves_the_covering_epoch_entry(epochs, tmp_path, start, left):
    epochs.truncate_from_start(start)
    epochs.flush()
    assert on_disk(epochs, tmp_path) == left


def test_epoch_truncation_does_not_write_the_file_before_the_flush(epochs, tmp_path):
    """An unsynced file could be empty after a power cut: then the log would have no lineage at all."""
    before = (tmp_path / LEADER_EPOCH_CHECKPOINT).read_bytes()
    epochs.truncate_from_start(45)
    assert epochs.entries == (EpochEntry(4, 45), EpochEntry(7, 60))
    assert not epochs.is_flushed
    assert (tmp_path / LEADER_EPOCH_CHECKPOINT).read_bytes() == before
    epochs.flush()
    assert epochs.is_flushed


def test_failed_epoch_flush_remains_due(epochs, tmp_path, monkeypatch):
    def refuse(fd):
        raise OSError(errno.EIO, "Input/output error")

    epochs.truncate_from_start(45)
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            epochs.flush()
    assert not epochs.is_flushed
    epochs.flush()
    assert on_disk(epochs, tmp_path) == [(4, 45), (7, 60)]


def test_epoch_entries_out_of_order_are_dropped_on_load(tmp_path):
    made = LeaderEpochs(tmp_path, [EpochEntry(1, 5), EpochEntry(3, 9), EpochEntry(2, 7)])
    assert made.entries == (EpochEntry(1, 5), EpochEntry(2, 7))
    made.clear()
    assert made.latest == -1


@pytest.mark.parametrize(
    ("offset", "last_epoch", "expected"),
    [
        (5, 0, None),  # all of it can be common
        (10, 0, None),
        (11, 0, (0, 10)),  # epoch 0 ended earlier here
        (15, 1, (0, 10)),  # there was no epoch 1: what comes after epoch 0 is another log's
        (15, 2, None),
        (20, 2, None),
        (21, 2, (2, 20)),
        (20, 3, "unknown"),
    ],
)
def test_diverging_epoch_of_a_diverged_client_log_is_its_last_common_epoch(tmp_path, offset, last_epoch, expected):
    """Matches Kafka's Partition.readRecords; tests/interop/test_diverging_epochs.py compares with a real Kafka."""
    log = new_log(tmp_path)
    data = records(0, 10, leader_epoch=0) + records(10, 10, leader_epoch=2)
    Follower(log).append(parse_fetched_batches(memoryview(data)), NOW)
    if expected == "unknown":
        with pytest.raises(BrokerError) as caught:
            diverging_epoch(log, offset, last_epoch)
        assert caught.value.code is ErrorCode.offset_out_of_range
    else:
        assert diverging_epoch(log, offset, last_epoch) == expected
    log.discard()
