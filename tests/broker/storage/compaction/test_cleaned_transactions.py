from __future__ import annotations

from kafkalog_broker.storage.compaction.cleaned_transactions import CleanedTransactions
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.transaction_index import AbortedTransaction

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def aborted(producer_id, first, last):
    return AbortedTransaction(producer_id, first, last, last + 1)


def test_records_of_an_aborted_transaction_may_be_dropped():
    passed = CleanedTransactions([aborted(1, 10, 20)])
    assert not passed.advance_records(1, 5)
    assert not passed.advance_marker(1, 6, COMMIT)
    assert passed.advance_records(1, 10)
    assert not passed.advance_records(2, 12)
    assert passed.advance_records(1, 15)
    assert not passed.advance_marker(1, 20, ABORT)
    assert passed.take_retained() == [aborted(1, 10, 20)]
    assert passed.take_retained() == []
    assert not passed.advance_records(1, 21)


def test_marker_without_a_remaining_batch_of_its_transaction_may_be_dropped():
    passed = CleanedTransactions([aborted(1, 10, 20)])
    assert passed.advance_marker(2, 15, COMMIT)
    assert passed.advance_marker(1, 20, ABORT)
    assert passed.take_retained() == []


def test_emptied_marker_batch_may_be_dropped():
    assert CleanedTransactions([]).advance_marker(1, 20, None)


def test_records_of_an_aborted_transaction_that_began_earlier_may_be_dropped():
    passed = CleanedTransactions([aborted(1, 10, 60), aborted(1, 70, 80)])
    assert passed.advance_records(1, 50)
    assert not passed.advance_marker(1, 60, ABORT)
    assert not passed.advance_records(1, 65)
    assert not passed.advance_marker(1, 66, COMMIT)
    assert passed.advance_records(1, 75)
    assert not passed.advance_marker(1, 80, ABORT)
    assert passed.take_retained() == [aborted(1, 10, 60), aborted(1, 70, 80)]


def test_aborted_transaction_in_two_transaction_indexes_counts_once():
    passed = CleanedTransactions([aborted(1, 10, 20), aborted(1, 10, 20)])
    assert passed.advance_records(1, 10)
    assert not passed.advance_marker(1, 20, ABORT)
    assert not passed.advance_records(1, 25)
