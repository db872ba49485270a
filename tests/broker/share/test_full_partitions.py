"""A share partition whose locks are all given goes on when nobody can acknowledge what holds them."""

from __future__ import annotations

import pytest

from kafkalog_broker.groups.modern.group_settings import Limits
from kafkalog_broker.share.acquisition import Acquired, Acquisition, Span, archive_aborted
from kafkalog_broker.share.share_partition import Acknowledgement, AcknowledgeType, RecordState, SharePartition
from kafkalog_broker.share.state_records import StateBatch, combined

LIMITS = Limits(max_in_flight=100, max_deliveries=5, lock_ms=1000)


def spans(first: int, last: int, size: int = 10) -> list[Span]:
    return [Span(at, min(at + size - 1, last)) for at in range(first, last + 1, size)]


def get(partition: SharePartition, log: list[Span], batch_size: int = 500) -> list[Acquired]:
    offset = partition.next_fetch_offset()
    found = [span for span in log if span.last >= offset]
    return Acquisition(partition, LIMITS, "m", offset, found, 50, batch_size, 0).acquire()


def test_a_read_committed_partition_goes_past_an_aborted_transaction_longer_than_its_locks() -> None:
    partition, log, aborted = SharePartition(0), spans(0, 349), spans(0, 299)
    for _ in range(len(log)):
        assert partition.can_acquire(LIMITS), (partition.start_offset, partition.end_offset)
        found = archive_aborted(partition, get(partition, log), aborted)
        if found:
            break
    assert found == [(300, 349, 1)]
    assert partition.start_offset == 300
    assert partition.complete == 0


def test_an_aborted_transaction_after_records_that_somebody_holds_waits_for_them() -> None:
    partition, log = SharePartition(0), spans(0, 49)
    assert archive_aborted(partition, get(partition, log), spans(10, 49)) == [(0, 9, 1)]
    assert (partition.start_offset, partition.complete) == (0, 40)
    change = partition.expire(1000, LIMITS)
    assert change.batches == [StateBatch(0, 9, RecordState.AVAILABLE, 1)]
    change.done()
    assert get(partition, log) == [(0, 9, 2)]


def test_available_records_that_were_compacted_away_make_room_with_the_locks_full() -> None:
    partition = SharePartition(0, [StateBatch(0, 99, RecordState.AVAILABLE, 1)])
    assert partition.in_flight == LIMITS.max_in_flight
    assert get(partition, [Span(500, 509)]) == [(500, 509, 1)]
    assert (partition.start_offset, partition.end_offset) == (500, 509)
    assert partition.complete == 0


def test_compacted_records_among_those_in_flight_make_room_up_to_the_first_that_is_left() -> None:
    state = [StateBatch(0, 89, RecordState.AVAILABLE, 1), StateBatch(90, 99, RecordState.AVAILABLE, 2)]
    partition = SharePartition(0, state)
    assert get(partition, [Span(90, 99), Span(500, 509)])[0] == (90, 99, 3)
    assert (partition.start_offset, partition.complete) == (90, 0)


@pytest.mark.parametrize("batch_size", [1, 0, -1, -(2**31)])
def test_a_batch_size_of_nothing_gives_whole_batches_of_the_log(batch_size: int) -> None:
    """No empty batch among them: what is written when the lock ends can be loaded."""
    partition = SharePartition(0)
    assert get(partition, spans(0, 29), batch_size) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]
    assert [(batch.first, batch.last) for batch in partition.batches] == [(0, 9), (10, 19), (20, 29)]
    written = combined((), partition.expire(1000, LIMITS).batches, 0)
    loaded = SharePartition(0, written)
    assert (loaded.next_fetch_offset(), loaded.end_offset) == (0, 29)


def test_nothing_after_the_end_is_given_while_others_hold_all_locks_that_compaction_has_left() -> None:
    partition, log = SharePartition(0), spans(0, 99)
    assert get(partition, log, 50) == [(0, 49, 1)]
    assert get(partition, log, 50) == [(50, 99, 1)]
    partition.acknowledge("m", [Acknowledgement(50, 99, [AcknowledgeType.RELEASE])], 0, LIMITS).done()
    log = [*spans(0, 49), Span(500, 509)]
    assert get(partition, log) == []
    assert [(batch.first, batch.last) for batch in partition.batches] == [(0, 49), (50, 99)]
    assert (partition.start_offset, partition.end_offset, partition.complete) == (0, 99, 50)
    partition.acknowledge("m", [Acknowledgement(0, 49, [AcknowledgeType.ACCEPT])], 0, LIMITS).done()
    assert get(partition, log) == [(500, 509, 1)]
