"""A share partition: no record is lost, none is given to two at once, none again that was accepted."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_settings import Limits
from kafkalog_broker.share.acquisition import Acquired, Acquisition, Span, archive_aborted, without
from kafkalog_broker.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    RecordState,
    SharePartition,
    StateChange,
)
from kafkalog_broker.share.state_records import StateBatch, combined
from tests.searches import examples

LIMITS = Limits(max_in_flight=100, max_deliveries=5, lock_ms=1000)
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def spans(first: int, *sizes: int) -> list[Span]:
    found = []
    for size in sizes:
        found.append(Span(first, first + size - 1))
        first += size
    return found


def get(
    partition: SharePartition, log: list[Span], member="m", most=50, now=0, limits=LIMITS, **also
) -> list[Acquired]:
    offset = partition.next_fetch_offset()
    some = [span for span in log if span.last >= offset]
    return Acquisition(partition, limits, member, offset, some, most, 500, now, **also).acquire()


def say(partition: SharePartition, first: int, last: int, *types: int, member="m", now=0, limits=LIMITS) -> StateChange:
    change = partition.acknowledge(member, [Acknowledgement(first, last, types)], now, limits)
    change.done()
    return change


def test_whole_batches_of_the_log_are_given():
    partition, log = SharePartition(0), spans(0, 10, 10, 10)
    assert get(partition, log, most=15) == [(0, 19, 1)]
    assert partition.next_fetch_offset() == 20
    assert get(partition, log, most=15) == [(20, 29, 1)]


def test_strictly_no_more_than_wanted():
    partition, log = SharePartition(0), spans(0, 10, 10)
    assert get(partition, log, most=4, strictly=True) == [(0, 3, 1)]
    assert get(partition, log, most=4, strictly=True) == [(4, 7, 1)]
    assert get(partition, log, most=4, strictly=True) == [(8, 9, 1), (10, 11, 1)]
    assert get(partition, log, most=4, strictly=True) == [(12, 15, 1)]


def test_accepted_records_let_the_start_move():
    partition, log = SharePartition(0), spans(0, 10, 10)
    get(partition, log)
    change = say(partition, 0, 9, ACCEPT)
    assert change.batches == [StateBatch(0, 9, RecordState.ACKNOWLEDGED, 1)]
    assert (partition.start_offset, partition.complete) == (10, 0)
    say(partition, 15, 19, ACCEPT)
    assert (partition.start_offset, partition.complete) == (10, 5)
    say(partition, 10, 14, ACCEPT)
    assert (partition.start_offset, partition.end_offset) == (20, 20)


def test_a_type_for_each_offset():
    partition, log = SharePartition(0), spans(0, 6)
    get(partition, log)
    change = say(partition, 0, 5, ACCEPT, RELEASE, REJECT, 0, ACCEPT, ACCEPT)
    assert combined((), change.batches, 0) == [
        StateBatch(0, 0, RecordState.ACKNOWLEDGED, 1), StateBatch(1, 1, RecordState.AVAILABLE, 1),
        StateBatch(2, 3, RecordState.ARCHIVED, 1), StateBatch(4, 5, RecordState.ACKNOWLEDGED, 1),
    ]  # fmt: skip
    assert partition.start_offset == 1
    assert get(partition, log, "n") == [(1, 1, 2)]
    say(partition, 1, 1, ACCEPT, member="n")
    assert partition.start_offset == 6


def test_a_lock_ends():
    partition, log = SharePartition(0), spans(0, 4)
    get(partition, log)
    assert partition.next_deadline == 1000
    assert partition.expire(999, LIMITS).batches == []
    change = partition.expire(1000, LIMITS)
    assert change.batches == [StateBatch(0, 3, RecordState.AVAILABLE, 1)]
    assert change.done()
    with pytest.raises(BrokerError) as refused:
        say(partition, 0, 3, ACCEPT)
    assert refused.value.code is ErrorCode.invalid_record_state
    assert get(partition, log, "n", now=1000) == [(0, 3, 2)]


def test_a_lock_is_renewed():
    partition, log = SharePartition(0), spans(0, 4)
    get(partition, log)
    say(partition, 0, 1, RENEW, now=900)
    partition.expire(1000, LIMITS).done()
    assert get(partition, log, "n", now=1000) == [(2, 3, 2)]
    say(partition, 0, 1, ACCEPT, now=1500)
    assert partition.start_offset == 2
    with pytest.raises(BrokerError, match="not enabled"):
        say(partition, 2, 3, RENEW, member="n", limits=LIMITS._replace(may_renew=False))


def test_what_was_delivered_often_comes_a_few_at_a_time_and_then_not_at_all():
    partition, log = SharePartition(0), spans(0, 8)
    sizes = []
    for _ in range(40):
        got = get(partition, log)
        if not got:
            break
        sizes.append(sum(last - first + 1 for first, last, _ in got))
        for first, last, count in got:
            say(partition, first, last, RELEASE)
            assert count <= LIMITS.max_deliveries
    # 8 at once until three deliveries have failed, then half of them, then a quarter, and each alone at the end
    assert sizes[:3] == [8, 8, 8]
    assert sizes[-1] == 1
    assert partition.start_offset == 8


def test_only_so_many_records_are_in_flight():
    partition, log = SharePartition(0), spans(0, *[10] * 30)
    while partition.can_acquire(LIMITS) and get(partition, log, most=30):
        pass
    assert partition.in_flight == 100
    assert not partition.can_acquire(LIMITS)
    say(partition, 50, 59, RELEASE)
    assert partition.can_acquire(LIMITS)
    assert get(partition, log, "n") == [(50, 59, 2)]


def test_compacted_offsets_are_passed_over():
    partition = SharePartition(0)
    assert get(partition, [Span(5, 9), Span(20, 29)]) == [(5, 29, 1)]
    assert partition.start_offset == 5
    say(partition, 5, 29, RELEASE)
    assert get(partition, [Span(20, 29)], "n") == [(20, 29, 2)]
    say(partition, 20, 29, ACCEPT, member="n")
    assert partition.start_offset == 30


def test_the_log_begins_later():
    partition, log = SharePartition(0), spans(0, 10, 10)
    get(partition, log, most=10)
    get(partition, log, "n", most=10)
    say(partition, 0, 9, RELEASE)
    partition.log_start_moved(15)
    assert partition.start_offset == 15
    say(partition, 10, 19, ACCEPT, member="n")
    assert partition.start_offset == 15  # as in Kafka, until the lock of those before it ends
    partition.expire(1000, LIMITS).done()
    assert partition.start_offset == 20


def test_batches_of_aborted_transactions_are_given_to_nobody():
    partition, log = SharePartition(0), spans(0, 5, 5, 5)
    got = get(partition, log)
    assert archive_aborted(partition, got, [Span(5, 9)]) == [(0, 4, 1), (10, 14, 1)]
    say(partition, 0, 4, ACCEPT)
    assert partition.start_offset == 10
    assert without([Acquired(0, 9, 1)], [Span(0, 3), Span(8, 20)]) == [(4, 7, 1)]


def test_what_was_loaded_goes_on_and_unknown_gaps_are_given():
    state = [StateBatch(10, 14, 0, 1), StateBatch(20, 24, 2, 1), StateBatch(30, 30, 0, 2)]
    partition, log = SharePartition(5, state), spans(0, *[5] * 10)
    assert partition.next_fetch_offset() == 5
    got = get(partition, log)
    assert got == [(5, 9, 1), (10, 14, 2), (15, 19, 1), (25, 29, 1), (30, 30, 3), (31, 49, 1)]
    for first, last, _ in got:
        say(partition, first, last, ACCEPT)
    assert partition.start_offset == 50


def test_the_start_moves_over_what_was_loaded_as_done_at_the_end():
    partition = SharePartition(0, [StateBatch(8, 9, RecordState.ARCHIVED, 1)])
    for first, last, _ in get(partition, spans(0, 5, 5), most=8):
        say(partition, first, last, ACCEPT)
    assert partition.start_offset == 10


@pytest.mark.parametrize(
    "batches", [[StateBatch(3, 4, 0, 1)], [StateBatch(9, 7, 0, 1)], [StateBatch(5, 9, 0, 1), StateBatch(9, 9, 2, 1)]]
)
def test_state_that_contradicts_itself_is_refused(batches):
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
def test_acknowledgements_that_are_refused_change_nothing(first, last, member, code, said):
    partition, log = SharePartition(0), spans(0, 4)
    get(partition, log)
    with pytest.raises(BrokerError, match=said) as refused:
        partition.acknowledge(
            member, [Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(first, last, [ACCEPT])][1:], 0, LIMITS
        )
    assert refused.value.code is code
    with pytest.raises(BrokerError):
        partition.acknowledge("m", [Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(1, 1, [REJECT])], 0, LIMITS)
    assert partition.complete == 0
    say(partition, 0, 3, ACCEPT)
    assert partition.start_offset == 4


class SharePartitionMachine(RuleBasedStateMachine):
    """Members, crashes and failing writes at random. The model knows only what was accepted and who holds what."""

    @initialize(sizes=st.lists(st.integers(1, 12), min_size=3, max_size=12), strictly=st.booleans())
    def begin(self, sizes: list[int], strictly: bool) -> None:
        self.log = spans(0, *sizes)
        self.strictly = strictly
        self.partition = SharePartition(0)
        self.now = 0
        self.final: set[int] = set()
        self.held: dict[int, tuple[str, int]] = {}
        self.deliveries: dict[int, int] = {}
        self.written: list[StateBatch] = []
        self.written_start = 0

    def _done(self, change: StateChange) -> None:
        self.written_start = self.partition.start_offset
        self.written = combined(self.written, change.batches, self.written_start)
        change.done()

    @rule(member=st.sampled_from("abc"), most=st.integers(1, 30))
    def fetch(self, member: str, most: int) -> None:
        for first, last, count in get(self.partition, self.log, member, most, self.now, strictly=self.strictly):
            for offset in range(first, last + 1):
                assert offset not in self.final, "delivered after it was accepted"
                assert offset not in self.held, "held by two"
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
        change = self.partition.acknowledge(member, [said], self.now, LIMITS)
        if fails:
            change.undo()
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
        self._done(self.partition.release(member, LIMITS))
        self._let_go(lambda holder, deadline: holder == member)

    @rule(ms=st.integers(1, 1500))
    def wait(self, ms: int) -> None:
        self.now += ms
        if self.now >= self.partition.next_deadline:
            self._done(self.partition.expire(self.now, LIMITS))
        self._let_go(lambda holder, deadline: deadline <= self.now)

    def _let_go(self, goes) -> None:
        for offset, (holder, deadline) in list(self.held.items()):
            if goes(holder, deadline):
                del self.held[offset]
                if self.deliveries[offset] >= LIMITS.max_deliveries:
                    self.final.add(offset)

    @rule()
    def crash(self) -> None:
        """What was written is read again. What was acquired is not: it counts as not delivered."""
        self.partition = SharePartition(self.written_start, self.written)
        known = {
            offset: batch.delivery_count
            for batch in self.written
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        self.held.clear()
        self.deliveries = {offset: known.get(offset, 0) for offset in range(self.log[-1].last + 1)}

    @invariant()
    def the_start_lies_behind_what_is_done(self) -> None:
        start = self.partition.start_offset
        assert set(range(start)) <= self.final
        complete = sum(
            len(run) for b in self.partition.batches for run in b.runs if run.is_terminal and run.first >= start
        )
        assert self.partition.complete == complete

    def teardown(self) -> None:
        """When all is accepted, everything was delivered."""
        if not hasattr(self, "log"):
            return
        self.wait(LIMITS.lock_ms)
        end = self.log[-1].last + 1
        for _ in range(10 * end):
            if self.partition.start_offset >= end:
                break
            for first, last, _ in get(self.partition, self.log, "z", 30, self.now, strictly=self.strictly):
                self._done(self.partition.acknowledge("z", [Acknowledgement(first, last, [ACCEPT])], self.now, LIMITS))
        assert self.partition.start_offset == end


SharePartitionMachine.TestCase.settings = settings(max_examples=examples(300), stateful_step_count=40)
TestSharePartitionMachine = SharePartitionMachine.TestCase
