"""A share partition: acquisition, acknowledgement and locks; no record is lost or held by two members."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_settings import Limits
from kafkalog_broker.share.acknowledgement import Acknowledgement, AcknowledgeType, acknowledge
from kafkalog_broker.share.acquisition import Acquired, Acquisition, Span, archive_aborted, exclude
from kafkalog_broker.share.lock_release import release_expired, release_member
from kafkalog_broker.share.record_state import RecordState
from kafkalog_broker.share.share_partition import SharePartition
from kafkalog_broker.share.share_state import StateBatch
from kafkalog_broker.share.state_batches import combine_batches
from kafkalog_broker.share.state_change import StateChange
from tests.searches import examples

LIMITS = Limits(max_in_flight=100, max_deliveries=5, lock_ms=1000)
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def spans(first: int, *sizes: int) -> list[Span]:
    found = []
    for size in sizes:
        found.append(Span(first, first + size - 1))
        first += size
    return found


def acquire(
    partition: SharePartition, log: list[Span], member="m", most=50, now=0, limits=LIMITS, **also
) -> list[Acquired]:
    offset = partition.next_fetch_offset()
    some = [span for span in log if span.last >= offset]
    return Acquisition(partition, limits, member, offset, some, most, 500, now, **also).acquire()


def acknowledge_and_commit(
    partition: SharePartition, first: int, last: int, *types: int, member="m", now=0, limits=LIMITS
) -> StateChange:
    change = acknowledge(partition, member, [Acknowledgement(first, last, types)], now, limits)
    change.commit()
    return change


def test_whole_batches_of_the_log_are_acquired():
    partition, log = SharePartition(0), spans(0, 10, 10, 10)
    assert acquire(partition, log, most=15) == [(0, 19, 1)]
    assert partition.next_fetch_offset() == 20
    assert acquire(partition, log, most=15) == [(20, 29, 1)]


def test_record_limit_acquires_at_most_max_records():
    partition, log = SharePartition(0), spans(0, 10, 10)
    assert acquire(partition, log, most=4, is_record_limit=True) == [(0, 3, 1)]
    assert acquire(partition, log, most=4, is_record_limit=True) == [(4, 7, 1)]
    assert acquire(partition, log, most=4, is_record_limit=True) == [(8, 9, 1), (10, 11, 1)]
    assert acquire(partition, log, most=4, is_record_limit=True) == [(12, 15, 1)]


def test_start_offset_advances_over_accepted_records():
    partition, log = SharePartition(0), spans(0, 10, 10)
    acquire(partition, log)
    change = acknowledge_and_commit(partition, 0, 9, ACCEPT)
    assert change.batches == [StateBatch(0, 9, RecordState.ACKNOWLEDGED, 1)]
    assert (partition.start_offset, partition.delivery_complete_count) == (10, 0)
    acknowledge_and_commit(partition, 15, 19, ACCEPT)
    assert (partition.start_offset, partition.delivery_complete_count) == (10, 5)
    acknowledge_and_commit(partition, 10, 14, ACCEPT)
    assert (partition.start_offset, partition.end_offset) == (20, 20)


def test_each_offset_may_have_its_own_acknowledge_type():
    partition, log = SharePartition(0), spans(0, 6)
    acquire(partition, log)
    change = acknowledge_and_commit(partition, 0, 5, ACCEPT, RELEASE, REJECT, 0, ACCEPT, ACCEPT)
    assert combine_batches((), change.batches, 0) == [
        StateBatch(0, 0, RecordState.ACKNOWLEDGED, 1), StateBatch(1, 1, RecordState.AVAILABLE, 1),
        StateBatch(2, 3, RecordState.ARCHIVED, 1), StateBatch(4, 5, RecordState.ACKNOWLEDGED, 1),
    ]  # fmt: skip
    assert partition.start_offset == 1
    assert acquire(partition, log, "n") == [(1, 1, 2)]
    acknowledge_and_commit(partition, 1, 1, ACCEPT, member="n")
    assert partition.start_offset == 6


def test_expired_lock_releases_its_records():
    partition, log = SharePartition(0), spans(0, 4)
    acquire(partition, log)
    assert partition.next_lock_deadline == 1000
    assert release_expired(partition, 999, LIMITS).batches == []
    change = release_expired(partition, 1000, LIMITS)
    assert change.batches == [StateBatch(0, 3, RecordState.AVAILABLE, 1)]
    assert change.commit()
    with pytest.raises(BrokerError) as refused:
        acknowledge_and_commit(partition, 0, 3, ACCEPT)
    assert refused.value.code is ErrorCode.invalid_record_state
    assert acquire(partition, log, "n", now=1000) == [(0, 3, 2)]


def test_renewed_lock_expires_later():
    partition, log = SharePartition(0), spans(0, 4)
    acquire(partition, log)
    acknowledge_and_commit(partition, 0, 1, RENEW, now=900)
    release_expired(partition, 1000, LIMITS).commit()
    assert acquire(partition, log, "n", now=1000) == [(2, 3, 2)]
    acknowledge_and_commit(partition, 0, 1, ACCEPT, now=1500)
    assert partition.start_offset == 2
    with pytest.raises(BrokerError, match="not enabled"):
        acknowledge_and_commit(partition, 2, 3, RENEW, member="n", limits=LIMITS._replace(may_renew=False))


def test_records_with_failed_deliveries_are_throttled_and_then_archived():
    partition, log = SharePartition(0), spans(0, 8)
    sizes = []
    for _ in range(40):
        got = acquire(partition, log)
        if not got:
            break
        sizes.append(sum(last - first + 1 for first, last, _ in got))
        for first, last, count in got:
            acknowledge_and_commit(partition, first, last, RELEASE)
            assert count <= LIMITS.max_deliveries
    # All 8 records until three deliveries have failed, then half of them, then a quarter, and single ones at the end.
    assert sizes[:3] == [8, 8, 8]
    assert sizes[-1] == 1
    assert partition.start_offset == 8


def test_records_in_flight_are_limited():
    partition, log = SharePartition(0), spans(0, *[10] * 30)
    while partition.can_acquire(LIMITS) and acquire(partition, log, most=30):
        pass
    assert partition.in_flight_count == 100
    assert not partition.can_acquire(LIMITS)
    acknowledge_and_commit(partition, 50, 59, RELEASE)
    assert partition.can_acquire(LIMITS)
    assert acquire(partition, log, "n") == [(50, 59, 2)]


def test_compacted_offsets_are_skipped():
    partition = SharePartition(0)
    assert acquire(partition, [Span(5, 9), Span(20, 29)]) == [(5, 29, 1)]
    assert partition.start_offset == 5
    acknowledge_and_commit(partition, 5, 29, RELEASE)
    assert acquire(partition, [Span(20, 29)], "n") == [(20, 29, 2)]
    acknowledge_and_commit(partition, 20, 29, ACCEPT, member="n")
    assert partition.start_offset == 30


def test_start_offset_advances_to_a_new_log_start():
    partition, log = SharePartition(0), spans(0, 10, 10)
    acquire(partition, log, most=10)
    acquire(partition, log, "n", most=10)
    acknowledge_and_commit(partition, 0, 9, RELEASE)
    partition.advance_to_log_start(15)
    assert partition.start_offset == 15
    acknowledge_and_commit(partition, 10, 19, ACCEPT, member="n")
    assert partition.start_offset == 15  # as in Kafka, until the lock of those before it ends
    release_expired(partition, 1000, LIMITS).commit()
    assert partition.start_offset == 20


def test_batches_of_aborted_transactions_are_archived():
    partition, log = SharePartition(0), spans(0, 5, 5, 5)
    got = acquire(partition, log)
    assert archive_aborted(partition, got, [Span(5, 9)]) == [(0, 4, 1), (10, 14, 1)]
    acknowledge_and_commit(partition, 0, 4, ACCEPT)
    assert partition.start_offset == 10
    assert exclude([Acquired(0, 9, 1)], [Span(0, 3), Span(8, 20)]) == [(4, 7, 1)]


def test_loaded_state_is_continued_and_its_gaps_are_acquired():
    state = [StateBatch(10, 14, 0, 1), StateBatch(20, 24, 2, 1), StateBatch(30, 30, 0, 2)]
    partition, log = SharePartition(5, state), spans(0, *[5] * 10)
    assert partition.next_fetch_offset() == 5
    got = acquire(partition, log)
    assert got == [(5, 9, 1), (10, 14, 2), (15, 19, 1), (25, 29, 1), (30, 30, 3), (31, 49, 1)]
    for first, last, _ in got:
        acknowledge_and_commit(partition, first, last, ACCEPT)
    assert partition.start_offset == 50


def test_start_offset_advances_over_loaded_archived_records():
    partition = SharePartition(0, [StateBatch(8, 9, RecordState.ARCHIVED, 1)])
    for first, last, _ in acquire(partition, spans(0, 5, 5), most=8):
        acknowledge_and_commit(partition, first, last, ACCEPT)
    assert partition.start_offset == 10


@pytest.mark.parametrize(
    "batches", [[StateBatch(3, 4, 0, 1)], [StateBatch(9, 7, 0, 1)], [StateBatch(5, 9, 0, 1), StateBatch(9, 9, 2, 1)]]
)
def test_overlapping_state_batches_are_refused(batches):
    with pytest.raises(BrokerError, match="begins at 5"):
        SharePartition(5, batches)


@pytest.mark.parametrize(
    ("first", "last", "member", "code", "said"),
    [
        (0, 3, "n", ErrorCode.invalid_record_state, "Member is not the owner of batch record"),
        (0, 9, "m", ErrorCode.invalid_request, "The last offset in request is past acquired records."),
        (9, 9, "m", ErrorCode.invalid_request, "The first offset in request is past acquired records."),
    ],
)
def test_refused_acknowledgement_changes_nothing(first, last, member, code, said):
    partition, log = SharePartition(0), spans(0, 4)
    acquire(partition, log)
    with pytest.raises(BrokerError, match=said) as refused:
        acknowledge(
            partition, member, [Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(first, last, [ACCEPT])][1:], 0, LIMITS
        )
    assert refused.value.code is code
    with pytest.raises(BrokerError):
        acknowledge(partition, "m", [Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(1, 1, [REJECT])], 0, LIMITS)
    assert partition.delivery_complete_count == 0
    acknowledge_and_commit(partition, 0, 3, ACCEPT)
    assert partition.start_offset == 4


class SharePartitionMachine(RuleBasedStateMachine):
    """Random requests of members, crashes and failing writes. The model tracks accepted and held records."""

    @initialize(sizes=st.lists(st.integers(1, 12), min_size=3, max_size=12), is_record_limit=st.booleans())
    def begin(self, sizes: list[int], is_record_limit: bool) -> None:
        self.log = spans(0, *sizes)
        self.is_record_limit = is_record_limit
        self.partition = SharePartition(0)
        self.now = 0
        self.final: set[int] = set()
        self.held: dict[int, tuple[str, int]] = {}
        self.deliveries: dict[int, int] = {}
        self.written: list[StateBatch] = []
        self.written_start = 0

    def _done(self, change: StateChange) -> None:
        self.written_start = self.partition.start_offset
        self.written = combine_batches(self.written, change.batches, self.written_start)
        change.commit()

    @rule(member=st.sampled_from("abc"), most=st.integers(1, 30))
    def fetch(self, member: str, most: int) -> None:
        for first, last, count in acquire(
            self.partition, self.log, member, most, self.now, is_record_limit=self.is_record_limit
        ):
            for offset in range(first, last + 1):
                assert offset not in self.final, "delivered after it was accepted"
                assert offset not in self.held, "held by two members"
                self.held[offset] = member, self.now + LIMITS.lock_ms
                self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
                assert count == self.deliveries[offset]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), fails=st.booleans())
    def acknowledge(self, data: st.DataObject, fails: bool) -> None:
        first = data.draw(st.sampled_from(sorted(self.held)))
        member = self.held[first][0]
        last = first
        while last + 1 in self.held and self.held[last + 1][0] == member and data.draw(st.booleans()):
            last += 1
        one = data.draw(st.booleans())
        types = data.draw(st.lists(st.integers(0, 4), min_size=last - first + 1, max_size=last - first + 1))
        said = Acknowledgement(first, last, types[:1] if one else types)
        change = acknowledge(self.partition, member, [said], self.now, LIMITS)
        if fails:
            change.rollback()
            return
        if change.batches:
            self._done(change)
        for place, offset in enumerate(range(first, last + 1)):
            kind = types[0 if one else place]
            if kind == AcknowledgeType.RENEW:
                self.held[offset] = member, self.now + LIMITS.lock_ms
                continue
            del self.held[offset]
            if kind != AcknowledgeType.RELEASE or self.deliveries[offset] >= LIMITS.max_deliveries:
                self.final.add(offset)

    @rule(member=st.sampled_from("abc"))
    def leave(self, member: str) -> None:
        self._done(release_member(self.partition, member, LIMITS))
        self._let_go(lambda holder, deadline: holder == member)

    @rule(ms=st.integers(1, 1500))
    def wait(self, ms: int) -> None:
        self.now += ms
        if self.now >= self.partition.next_lock_deadline:
            self._done(release_expired(self.partition, self.now, LIMITS))
        self._let_go(lambda holder, deadline: deadline <= self.now)

    def _let_go(self, goes) -> None:
        for offset, (holder, deadline) in list(self.held.items()):
            if goes(holder, deadline):
                del self.held[offset]
                if self.deliveries[offset] >= LIMITS.max_deliveries:
                    self.final.add(offset)

    @rule()
    def crash(self) -> None:
        """Load the written state. Records that were acquired count as not delivered."""
        self.partition = SharePartition(self.written_start, self.written)
        known = {
            offset: batch.delivery_count
            for batch in self.written
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        self.held.clear()
        self.deliveries = {offset: known.get(offset, 0) for offset in range(self.log[-1].last + 1)}

    @invariant()
    def start_offset_is_after_accepted_records_only(self) -> None:
        start = self.partition.start_offset
        assert set(range(start)) <= self.final
        complete = sum(
            len(run) for b in self.partition.batches for run in b.runs if run.is_terminal and run.first >= start
        )
        assert self.partition.delivery_complete_count == complete

    def teardown(self) -> None:
        """Accept all remaining records; then every record was delivered."""
        if not hasattr(self, "log"):
            return
        self.wait(LIMITS.lock_ms)
        end = self.log[-1].last + 1
        for _ in range(10 * end):
            if self.partition.start_offset >= end:
                break
            for first, last, _ in acquire(
                self.partition, self.log, "z", 30, self.now, is_record_limit=self.is_record_limit
            ):
                self._done(acknowledge(self.partition, "z", [Acknowledgement(first, last, [ACCEPT])], self.now, LIMITS))
        assert self.partition.start_offset == end


SharePartitionMachine.TestCase.settings = settings(max_examples=examples(300), stateful_step_count=40)
TestSharePartitionMachine = SharePartitionMachine.TestCase
