"""Acknowledging many records: the state of each offset, and the number of passes over the runs."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.api.records.share_acknowledge import BATCHES_A_STEP, AckOutcome, check_batches
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.groups.modern.group_settings import Limits
from kafkalog_broker.share.acknowledgement import Acknowledgement, acknowledge
from kafkalog_broker.share.acquisition import Acquisition, Span
from kafkalog_broker.share.share_partition import SharePartition
from kafkalog_broker.share.share_state import StateBatch
from kafkalog_broker.share.state_batches import combine_batches
from kafkalog_broker.share.state_change import StateChange
from tests.broker.share.helpers.lines_run import lines_run
from tests.searches import examples

ACCEPT = 1
FEW, MANY = 100, 400
"""With four times as many acknowledgements, one pass over them runs about four times as many lines, and one pass for
each of them sixteen times as many."""


LIMITS = Limits(max_in_flight=10_000, max_deliveries=5, lock_ms=1000)


def held(offsets: int, batch_size: int = 10_000, start: int = 0) -> SharePartition:
    """All offsets acquired by "m", in batches of some size."""
    partition = SharePartition(0)
    spans = [Span(at, min(at + batch_size, offsets) - 1) for at in range(0, offsets, batch_size)]
    assert Acquisition(partition, LIMITS, "m", 0, spans, offsets, batch_size, 0).acquire()
    if start:
        partition.advance_to_log_start(start)
    return partition


def by_offset(batches: Sequence[StateBatch]) -> dict[int, tuple[int, int]]:
    """(count, state) of each offset; each is in one batch only."""
    found: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            assert offset not in found, batches
            found[offset] = batch.delivery_count, batch.delivery_state
    return found


def outcome(partition: SharePartition, said: Sequence[Acknowledgement]) -> tuple[Any, ...]:
    """Return the error, the written batches, and the state of the partition after acknowledgements."""
    refused = None
    written: dict[int, tuple[int, int]] = {}
    try:
        change: StateChange = acknowledge(partition, "m", said, 500, LIMITS)
        written = by_offset(combine_batches((), change.batches, -1))
        change.commit()
    except BrokerError as error:
        refused = error.code, error.what
    offsets = {
        offset: (run.state, run.delivery_count, run.member_id, run.lock_deadline)
        for batch in partition.batches
        for run in batch.runs
        for offset in range(run.first, run.last + 1)
    }
    return refused, written, offsets, partition.start_offset, partition.end_offset, partition.delivery_complete_count


@settings(max_examples=examples(600))
@given(
    types=st.lists(st.integers(0, 4), min_size=2, max_size=40),
    before=st.integers(0, 3), after=st.integers(0, 3), size=st.integers(1, 45), start=st.sampled_from([0, 0, 2, 7]),
    accepted=st.none() | st.integers(0, 45),
)  # fmt: skip
def test_types_for_each_offset_equal_acknowledgements_of_single_offsets(
    types: list[int], before: int, after: int, size: int, start: int, accepted: int | None
) -> None:
    """Many types take one pass over the runs, few are looked up; both must end in the same states."""
    offsets = before + len(types) + after
    outcomes = []
    first, last = before, before + len(types) - 1
    alone = [Acknowledgement(first + at, first + at, [kind]) for at, kind in enumerate(types)]
    for said in ([Acknowledgement(first, last, types)], alone):
        partition = held(offsets, size, min(start, offsets - 1))
        if accepted is not None and accepted < offsets:
            outcome(partition, [Acknowledgement(accepted, accepted, [ACCEPT])])
        outcomes.append(outcome(partition, said))
    together, by_itself = outcomes
    if together[0] is None or by_itself[0] is None:
        assert together == by_itself
    else:  # both are refused, of a batch or of its first offset; nothing counts then
        assert together[0][0] is by_itself[0][0]
        assert together[1:] == by_itself[1:]


def test_many_acknowledgements_of_one_batch_take_one_pass() -> None:
    def all_of(count: int) -> int:
        partition = held(count)
        said = [Acknowledgement(at, at, [1 + at % 2]) for at in range(count)]
        return lines_run(lambda: acknowledge(partition, "m", said, 0, LIMITS))

    few, many = all_of(FEW), all_of(MANY)
    assert many < 8 * few


RENEW = 4


def checks(batches: Sequence[tuple[int, int, list[int]]]) -> tuple[list[Acknowledgement], int]:
    """What is left of acknowledgements, and how many steps it takes to say so."""
    asked = [SimpleNamespace(first_offset=a, last_offset=b, acknowledge_types=types) for a, b, types in batches]
    steps, check = 0, check_batches(asked, may_renew=True, is_renewing=True)
    while True:
        try:
            next(check)
            steps += 1
        except StopIteration as done:
            return done.value, steps


def test_repeated_renewals_of_one_offset_are_merged_in_steps() -> None:
    left, steps = checks([(0, 0, [RENEW])] * 100_000)
    assert left == [Acknowledgement(0, 0, [RENEW])]
    assert steps == 100_000 // BATCHES_A_STEP


@settings(max_examples=examples(600))
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from([1, 2, 4, 4, 4])), max_size=12))
def test_merging_repeated_renewals_does_not_change_the_outcome(pieces: list[tuple[int, int, int]]) -> None:
    """pieces: (how much further each begins, how much further it ends, type)."""
    batches, end = list[tuple[int, int, list[int]]](), 0
    for skip, size, kind in pieces:
        batches.append((end + skip, end + skip + size, [kind]))
        end += skip + size
    left, _ = checks(batches)
    outcomes = [outcome(held(40, 7), said) for said in (left, [Acknowledgement(*batch) for batch in batches])]
    assert outcomes[0] == outcomes[1]


class Counted:
    """A request that counts how often its topics are gone through."""

    group_id, member_id, share_session_epoch, is_renew_ack = "g", "m", 1, False

    def __init__(self, partitions: int) -> None:
        self.times = 0
        acks = (SimpleNamespace(first_offset=0, last_offset=0, acknowledge_types=(ACCEPT,)),)
        named = [SimpleNamespace(partition_index=index, acknowledgement_batches=acks) for index in range(partitions)]
        self._topics = [SimpleNamespace(topic_id=UUID(int=1), partitions=named)]

    @property
    def topics(self) -> Any:
        self.times += 1
        return self._topics


def test_passes_over_a_request_do_not_depend_on_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = importlib.import_module("kafkalog_broker.api.records.share_fetch")
    partitions = 50
    said = {(UUID(int=1), index): AckOutcome() for index in range(partitions)}

    def to_fetch(*args: Any) -> Any:
        return (), None

    async def acknowledge_all(*args: Any) -> Any:
        return said

    async def fetched(*args: Any) -> Any:
        return {}

    def response(request: Any, broker: Any, answers: Any, said: Any) -> Any:
        return said

    monkeypatch.setattr(api, "_requested_partitions", to_fetch)
    monkeypatch.setattr(api, "acknowledge_all", acknowledge_all)
    monkeypatch.setattr(api, "_fetch", fetched)
    monkeypatch.setattr(api, "_response", response)
    asked = Counted(partitions)
    answer = asyncio.run(api.share_fetch(SimpleNamespace(entity=asked, version=2), None))
    assert answer == said
    assert asked.times <= 3
