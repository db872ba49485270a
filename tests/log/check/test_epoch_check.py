"""Comparison of a leader-epoch-checkpoint with batch headers."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.check.epoch_check import EpochCheck


def headers(*batches: tuple[int, int]) -> np.ndarray:
    """Header rows with the given base offsets and leader epochs."""
    table = np.zeros((len(batches), len(HeaderColumn)), np.int64)
    table[:, HeaderColumn.BASE_OFFSET] = [base_offset for base_offset, _ in batches]
    table[:, HeaderColumn.LEADER_EPOCH] = [epoch for _, epoch in batches]
    return table


def test_entries_out_of_order_are_reported_once_and_not_again_for_each_batch():
    check = EpochCheck([EpochEntry(0, 0), EpochEntry(2, 200), EpochEntry(1, 100)], 0)
    (fault,) = check.check_order()
    assert fault.what == "the entry of epoch 1 is out of order"
    assert list(check.check_batches(headers((50, 0), (100, 1), (150, 1), (200, 2), (250, 2)))) == []


def test_batch_with_another_epoch_than_its_entry_is_reported():
    check = EpochCheck([EpochEntry(0, 0), EpochEntry(1, 100)], 0)
    assert list(check.check_order()) == []
    (fault,) = check.check_batches(headers((50, 0), (100, 3)))
    assert fault.what == "the checkpoint's leader epoch for the batch at offset 100"
    assert (fault.offset, fault.expected, fault.got) == (100, "3", "1")


def test_entries_with_equal_start_offsets_are_in_order():
    """A leader that wrote nothing leaves such an entry, and the next one begins at the same offset."""
    check = EpochCheck([EpochEntry(0, 0), EpochEntry(1, 100), EpochEntry(2, 100)], 0)
    assert list(check.check_order()) == []
    assert list(check.check_batches(headers((50, 0), (100, 2)))) == []
