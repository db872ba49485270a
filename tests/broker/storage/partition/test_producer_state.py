from __future__ import annotations

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.producer_state import Marker, ProducerState
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import MAX_INT32, MAX_PRODUCER_EPOCH, ControlType
from kafkalog_spark.format.producer_snapshot import ProducerEntry
from kafkalog_spark.format.transaction_index import AbortedTransaction

NOW = 1_700_000_000_000
DAY = 86_400_000


def data(sequence, offset, *, count=1, pid=7, epoch=0, transactional=False, timestamp=NOW, attributes=0):
    """Return the header of a data batch and None, as it has no marker."""
    attributes |= layout.ATTRIBUTE_TRANSACTIONAL if transactional else 0
    last = offset + count - 1
    return BatchHeader(
        0, 99, offset, last, 2, attributes, 0, 0, timestamp, timestamp, pid, epoch, sequence, count
    ), None


def marker(kind, offset, *, coordinator_epoch=0, version=0, **fields):
    header, _ = data(-1, offset, transactional=True, attributes=layout.ATTRIBUTE_CONTROL, **fields)
    return header, Marker(kind, coordinator_epoch, version)


def append(state, batch):
    """Check and apply a batch as `Log.append` does; return the duplicate or the aborted transaction, if any."""
    known = state.check_append(*batch)
    return known if known is not None else state.apply(*batch)


def code_of(state, batch):
    with pytest.raises(BrokerError) as caught:
        state.check_append(*batch)
    return caught.value.code


@pytest.fixture
def state():
    return ProducerState()


def test_duplicate_is_detected_among_the_last_five_batches_only(state):
    for i in range(6):
        append(state, data(10 * i, 100 * i, count=10))
    for i in range(1, 6):
        duplicate = state.check_append(*data(10 * i, 999, count=10))
        assert (duplicate.base_offset, duplicate.last_offset) == (100 * i, 100 * i + 9)
    assert code_of(state, data(0, 999, count=10)) == ErrorCode.out_of_order_sequence_number


def test_batch_is_a_duplicate_only_with_the_same_first_and_last_sequence(state):
    append(state, data(0, 0, count=10))
    for sequence, count in ((0, 9), (1, 9), (0, 11), (5, 5)):
        assert code_of(state, data(sequence, 10, count=count)) == ErrorCode.out_of_order_sequence_number


def test_sequence_gap_is_refused_and_changes_nothing(state):
    append(state, data(0, 0))
    assert code_of(state, data(2, 1)) == ErrorCode.out_of_order_sequence_number
    assert append(state, data(1, 1)) is None


def test_sequence_after_the_maximum_is_zero(state):
    append(state, data(MAX_INT32, 0))
    assert append(state, data(0, 1)) is None
    assert append(state, data(1, 2)) is None


def test_sequence_may_wrap_around_within_a_batch(state):
    append(state, data(MAX_INT32 - 2, 0, count=5))
    assert [(one.id, one.last_sequence) for one in state.producers()] == [(7, 1)]
    assert state.check_append(*data(MAX_INT32 - 2, 99, count=5)).base_offset == 0
    assert append(state, data(2, 5)) is None


def test_unknown_producer_may_begin_with_any_sequence(state):
    assert append(state, data(1234, 0)) is None
    assert append(state, data(1235, 1)) is None


def test_new_producer_epoch_begins_at_sequence_zero_and_drops_earlier_batches(state):
    append(state, data(0, 0))
    assert code_of(state, data(1, 1, epoch=1)) == ErrorCode.out_of_order_sequence_number
    append(state, data(0, 1, epoch=1))
    assert state.check_append(*data(0, 9, epoch=1)).base_offset == 1
    assert [(one.id, len(one.batches)) for one in state.producers()] == [(7, 1)]


def test_older_producer_epoch_is_fenced(state):
    append(state, data(0, 0, epoch=3))
    assert code_of(state, data(0, 1, epoch=2)) == ErrorCode.invalid_producer_epoch


def test_batch_not_from_a_client_is_not_checked_for_its_sequence(state):
    state.apply(*data(0, 0))
    assert state.check_append(*data(7, 1), is_from_client=False) is None


def test_producers_have_independent_sequences(state):
    append(state, data(0, 0, pid=1))
    assert append(state, data(0, 1, pid=2)) is None


def test_producers_expire_unless_their_transaction_is_open(state):
    append(state, data(0, 0, pid=1))
    append(state, data(0, 1, pid=2, transactional=True))
    append(state, data(0, 2, pid=3, timestamp=NOW + 1))
    state.expire(NOW + DAY, DAY)
    assert [producer.id for producer in state.producers()] == [2, 3]


def test_producer_snapshot_keeps_only_the_last_batch(state):
    for i in range(3):
        append(state, data(2 * i, 2 * i, count=2, timestamp=NOW + i))
    assert state.entries() == [ProducerEntry(7, 0, 5, 5, 1, NOW + 2, -1, -1)]
    loaded = ProducerState()
    loaded.load(state.entries(), 6)
    assert loaded.end_offset == 6
    assert loaded.check_append(*data(4, 99, count=2)).base_offset == 4  # type: ignore[union-attr]
    assert code_of(loaded, data(2, 99, count=2)) == ErrorCode.out_of_order_sequence_number


def test_open_transaction_is_restored_from_a_producer_snapshot(state):
    append(state, data(0, 5, transactional=True))
    loaded = ProducerState()
    loaded.load(state.entries(), 6)
    assert loaded.first_unstable_offset(6) == 5
    assert append(loaded, marker(ControlType.ABORT, 6)) == AbortedTransaction(7, 5, 6, 7)


def test_first_unstable_offset_is_that_of_the_oldest_open_transaction(state):
    assert state.first_unstable_offset(0) is None
    append(state, data(0, 3, pid=1, transactional=True))
    append(state, data(0, 4, pid=2, transactional=True))
    append(state, data(1, 5, pid=1, transactional=True))
    assert state.first_unstable_offset(6) == 3
    append(state, marker(ControlType.COMMIT, 6, pid=1))
    assert state.first_unstable_offset(7) == 4
    append(state, marker(ControlType.ABORT, 7, pid=2))
    assert state.first_unstable_offset(8) is None


def test_transaction_is_unstable_until_its_marker_is_below_the_high_watermark(state):
    append(state, data(0, 3, transactional=True))
    append(state, marker(ControlType.COMMIT, 4))
    assert state.first_unstable_offset(4) == 3
    assert state.first_unstable_offset(5) is None


def test_aborted_transaction_has_the_last_stable_offset_after_its_marker(state):
    append(state, data(0, 3, pid=1, transactional=True))
    append(state, data(0, 4, pid=2, transactional=True))
    assert append(state, marker(ControlType.ABORT, 5, pid=2)) == AbortedTransaction(2, 4, 5, 3)
    assert append(state, marker(ControlType.ABORT, 6, pid=1)) == AbortedTransaction(1, 3, 6, 7)


def test_marker_without_a_transaction_only_raises_the_epoch(state):
    append(state, data(0, 0))
    assert append(state, marker(ControlType.ABORT, 1, epoch=4)) is None
    assert state.first_unstable_offset(2) is None
    assert code_of(state, data(1, 2, epoch=0)) == ErrorCode.invalid_producer_epoch
    assert append(state, data(0, 2, epoch=4)) is None


def test_marker_with_an_older_producer_or_coordinator_epoch_is_fenced(state):
    append(state, marker(ControlType.COMMIT, 0, epoch=2, coordinator_epoch=5))
    assert code_of(state, marker(ControlType.COMMIT, 1, epoch=1)) == ErrorCode.invalid_producer_epoch
    old = marker(ControlType.COMMIT, 1, epoch=2, coordinator_epoch=4)
    assert code_of(state, old) == ErrorCode.transaction_coordinator_fenced


def test_non_transactional_batch_in_an_open_transaction_is_invalid_txn_state(state):
    append(state, data(0, 0, transactional=True))
    assert code_of(state, data(1, 1)) == ErrorCode.invalid_txn_state


def test_control_batch_without_a_marker_changes_no_producer(state):
    assert append(state, data(-1, 0, attributes=layout.ATTRIBUTE_CONTROL)) is None
    assert state.producers() == []
    assert state.end_offset == 1


def second_version_marker(kind, offset, *, epoch, coordinator_epoch=0):
    return marker(kind, offset, epoch=epoch, coordinator_epoch=coordinator_epoch, version=2)


def test_version_2_marker_needs_a_higher_epoch_than_its_transaction(state):
    append(state, data(0, 0, transactional=True))
    assert code_of(state, second_version_marker(ControlType.COMMIT, 1, epoch=0)) == ErrorCode.invalid_producer_epoch
    assert state.first_unstable_offset(1) == 0, "a refused marker changes nothing"
    append(state, second_version_marker(ControlType.COMMIT, 1, epoch=1))
    assert state.first_unstable_offset(2) is None


def test_version_2_marker_with_the_maximum_epoch_ends_a_transaction_of_that_epoch(state):
    """Kafka brokers could leave such transactions open (KAFKA-20090); the last stable offset never moved on."""
    append(state, data(0, 0, epoch=MAX_PRODUCER_EPOCH, transactional=True))
    aborted = append(state, second_version_marker(ControlType.ABORT, 1, epoch=MAX_PRODUCER_EPOCH))
    assert aborted == AbortedTransaction(7, 0, 1, 2)
    assert state.first_unstable_offset(2) is None


def test_version_2_marker_may_be_repeated_without_an_open_transaction(state):
    append(state, data(0, 0, transactional=True))
    append(state, second_version_marker(ControlType.ABORT, 1, epoch=1))
    assert append(state, second_version_marker(ControlType.ABORT, 2, epoch=1)) is None
    assert code_of(state, second_version_marker(ControlType.ABORT, 3, epoch=0)) == ErrorCode.invalid_producer_epoch


def test_coordinator_batch_is_checked_for_its_epoch_but_not_its_sequence(state):
    append(state, data(0, 0, epoch=3, transactional=True))
    assert state.check_append(*data(0, 1, epoch=3, transactional=True), is_from_client=False) is None
    with pytest.raises(BrokerError) as caught:
        state.check_append(*data(0, 1, epoch=2, transactional=True), is_from_client=False)
    assert caught.value.code is ErrorCode.invalid_producer_epoch


def test_lowest_sequence_pending_verification_is_appended_first(state):
    state.verifications.begin(7, 0, 5, NOW, adds_partitions=False)
    state.verifications.begin(7, 0, 8, NOW, adds_partitions=False)
    assert code_of(state, data(8, 0, transactional=True)) == ErrorCode.out_of_order_sequence_number
    append(state, data(5, 0, count=3, transactional=True))
    assert state.verifications._entries == {}
    append(state, data(8, 3, transactional=True))


def test_pending_verification_of_a_higher_epoch_has_its_own_sequence(state):
    state.verifications.begin(7, 0, 5, NOW, adds_partitions=False)
    state.verifications.begin(7, 1, 9, NOW, adds_partitions=False)
    state.verifications.begin(7, 0, 1, NOW, adds_partitions=False)
    assert state.check_append(*data(9, 0, epoch=1, transactional=True)) is None


def test_verification_of_an_older_epoch_does_not_change_the_transaction_version(state):
    state.verifications.begin(7, 1, 4, NOW, adds_partitions=True)
    state.verifications.begin(7, 0, 4, NOW, adds_partitions=False)
    assert code_of(state, data(4, 0, epoch=1, transactional=True)) == ErrorCode.out_of_order_sequence_number


def test_version_2_transaction_begins_with_sequence_0(state):
    state.verifications.begin(7, 0, 4, NOW, adds_partitions=True)
    assert code_of(state, data(4, 0, transactional=True)) == ErrorCode.out_of_order_sequence_number
    append(state, data(0, 0, transactional=True))


def test_pending_verification_of_a_producer_without_batches_expires(state):
    state.verifications.begin(7, 0, 4, NOW, adds_partitions=True)
    state.expire(NOW + DAY - 1, DAY)
    assert list(state.verifications._entries) == [7]
    state.expire(NOW + DAY, DAY)
    assert state.verifications._entries == {}


def test_ended_transactions_are_dropped_without_a_read(state):
    for number in range(100):
        append(state, data(number, 2 * number, transactional=True))
        append(state, marker(ControlType.COMMIT, 2 * number + 1))
        state.forget_ended(2 * number + 2)
    assert state._ended == []
