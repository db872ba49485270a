"""A share partition with the maximum of records in flight, when no acknowledgement can make room."""

from __future__ import annotations

import pytest

from kafkalog_broker.groups.modern.group_settings import Limits
from kafkalog_broker.share.acknowledgement import Acknowledgement, AcknowledgeType, acknowledge
from kafkalog_broker.share.acquisition import Acquired, Acquisition, Span, archive_aborted
from kafkalog_broker.share.lock_release import release_expired
from kafkalog_broker.share.record_state import RecordState
from kafkalog_broker.share.share_partition import SharePartition
from kafkalog_broker.share.share_state import StateBatch
from kafkalog_broker.share.state_batches import combine_batches

LIMITS = Limits(max_in_flight=100, max_deliveries=5, lock_ms=1000)


def spans(first: int, last: int, size: int = 10) -> list[Span]:
    return [Span(at, min(at + size - 1, last)) for at in range(first, last + 1, size)]


def acquire(partition: SharePartition, log: list[Span], batch_size: int = 500) -> list[Acquired]:
    offset = partition.next_fetch_offset()
    found = [span for span in log if span.last >= offset]
    return Acquisition(partition, LIMITS, "m", offset, found, 50, batch_size, 0).acquire()


def test_aborted_transaction_longer_than_the_lock_limit_is_passed() -> None:
    partition, log, aborted = SharePartition(0), spans(0, 349), spans(0, 299)
    for _ in range(len(log)):
        assert partition.can_acquire(LIMITS), (partition.start_offset, partition.end_offset)
        found = archive_aborted(partition, acquire(partition, log), aborted)
        if found:
            break
    assert found == [(300, 349, 1)]
    assert partition.start_offset == 300
    assert partition.delivery_complete_count == 0


def test_start_offset_waits_for_held_records_before_an_aborted_transaction() -> None:
    partition, log = SharePartition(0), spans(0, 49)
    assert archive_aborted(partition, acquire(partition, log), spans(10, 49)) == [(0, 9, 1)]
    assert (partition.start_offset, partition.delivery_complete_count) == (0, 40)
    change = release_expired(partition, 1000, LIMITS)
    assert change.batches == [StateBatch(0, 9, RecordState.AVAILABLE, 1)]
    change.commit()
    assert acquire(partition, log) == [(0, 9, 2)]


def test_compacted_available_records_make_room_in_a_full_partition() -> None:
    partition = SharePartition(0, [StateBatch(0, 99, RecordState.AVAILABLE, 1)])
    assert partition.in_flight_count == LIMITS.max_in_flight
    assert acquire(partition, [Span(500, 509)]) == [(500, 509, 1)]
    assert (partition.start_offset, partition.end_offset) == (500, 509)
    assert partition.delivery_complete_count == 0


def test_start_offset_advances_over_compacted_records_to_the_first_remaining_one() -> None:
    state = [StateBatch(0, 89, RecordState.AVAILABLE, 1), StateBatch(90, 99, RecordState.AVAILABLE, 2)]
    partition = SharePartition(0, state)
    assert acquire(partition, [Span(90, 99), Span(500, 509)])[0] == (90, 99, 3)
    assert (partition.start_offset, partition.delivery_complete_count) == (90, 0)


@pytest.mark.parametrize("batch_size", [1, 0, -1, -(2**31)])
def test_batch_size_below_two_yields_whole_batches_of_the_log(batch_size: int) -> None:
    """None of the in-flight batches is empty, so the batches that are written when the locks expire can be loaded."""
    partition = SharePartition(0)
    assert acquire(partition, spans(0, 29), batch_size) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]
    assert [(batch.first, batch.last) for batch in partition.batches] == [(0, 9), (10, 19), (20, 29)]
    written = combine_batches((), release_expired(partition, 1000, LIMITS).batches, 0)
    loaded = SharePartition(0, written)
    assert (loaded.next_fetch_offset(), loaded.end_offset) == (0, 29)


def test_full_partition_acquires_no_new_records_after_compaction() -> None:
    partition, log = SharePartition(0), spans(0, 99)
    assert acquire(partition, log, 50) == [(0, 49, 1)]
    assert acquire(partition, log, 50) == [(50, 99, 1)]
    acknowledge(partition, "m", [Acknowledgement(50, 99, [AcknowledgeType.RELEASE])], 0, LIMITS).commit()
    log = [*spans(0, 49), Span(500, 509)]
    assert acquire(partition, log) == []
    assert [(batch.first, batch.last) for batch in partition.batches] == [(0, 49), (50, 99)]
    assert (partition.start_offset, partition.end_offset, partition.delivery_complete_count) == (0, 99, 50)
    acknowledge(partition, "m", [Acknowledgement(0, 49, [AcknowledgeType.ACCEPT])], 0, LIMITS).commit()
    assert acquire(partition, log) == [(500, 509, 1)]
