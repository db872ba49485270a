from __future__ import annotations

from kafkalog_broker.storage.compaction.cleaned_transactions import CleanedTransactions
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.transaction_index import AbortedTransaction

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def aborted(producer_id, first, last):
    return AbortedTransaction(producer_id, first, last, last + 1)


def test_records_go_when_their_transaction_was_aborted():
    passed = CleanedTransactions([aborted(1, 10, 20)])
    assert not passed.may_drop_records(1, 5)
    assert not passed.may_drop_marker(1, 6, COMMIT)
    assert passed.may_drop_records(1, 10)
    assert not passed.may_drop_records(2, 12)
    assert passed.may_drop_records(1, 15)
    assert not passed.may_drop_marker(1, 20, ABORT)
    assert passed.take_retained() == [aborted(1, 10, 20)]
    assert passed.take_retained() == []
    assert not passed.may_drop_records(1, 21)


def test_a_marker_goes_when_no_batch_of_its_transaction_was_met():
    passed = CleanedTransactions([aborted(1, 10, 20)])
    assert passed.may_drop_marker(2, 15, COMMIT)
    assert passed.may_drop_marker(1, 20, ABORT)
    assert passed.take_retained() == []


def test_a_marker_that_was_emptied_may_go():
    assert CleanedTransactions([]).may_drop_marker(1, 20, None)


def test_a_transaction_that_begins_before_what_is_passed_is_known():
    passed = CleanedTransactions([aborted(1, 10, 60), aborted(1, 70, 80)])
    assert passed.may_drop_records(1, 50)
    assert not passed.may_drop_marker(1, 60, ABORT)
    assert not passed.may_drop_records(1, 65)
    assert not passed.may_drop_marker(1, 66, COMMIT)
    assert passed.may_drop_records(1, 75)
    assert not passed.may_drop_marker(1, 80, ABORT)
    assert passed.take_retained() == [aborted(1, 10, 60), aborted(1, 70, 80)]


def test_an_entry_that_two_segments_name_counts_once():
    passed = CleanedTransactions([aborted(1, 10, 20), aborted(1, 10, 20)])
    assert passed.may_drop_records(1, 10)
    assert not passed.may_drop_marker(1, 20, ABORT)
    assert not passed.may_drop_records(1, 25)
