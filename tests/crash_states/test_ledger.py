"""What a ledger allows after a crash, by examples written out by hand."""

from __future__ import annotations

import pytest

from tests.crash_states.ledger import NEVER, Ledger, Register, SentBatch, SentTransaction, Trim


def register(*changes: tuple[object, int, int]) -> Register:
    made = Ledger()
    for value, sent_at, acked_at in changes:
        made.set("r", value, sent_at, acked_at)
    return made.registers["r"]


@pytest.mark.parametrize(
    ("point", "durable", "allowed"),
    [
        (10, True, [None]),  # sent at 10: not before the crash
        (11, True, [None, "a"]),
        (20, True, [None, "a"]),  # acknowledged at 20: not before the crash
        (21, True, ["a"]),
        (31, True, ["a", "b"]),
        (99, True, ["b"]),
        (99, False, [None, "a", "b"]),
    ],
)
def test_register_allows_the_last_acknowledged_value_and_those_sent_later(
    point: int, durable: bool, allowed: list[object]
) -> None:
    assert register(("a", 10, 20), ("b", 30, 40)).possible(point, durable=durable) == allowed


def test_register_of_a_transaction_changes_when_it_commits() -> None:
    ledger = Ledger()
    transaction = SentTransaction("t", commits=True, ended_at=50, acked_at=60)
    ledger.set("r", 7, 10, 20, transaction=transaction)
    allowed = [ledger.registers["r"].possible(point, durable=True) for point in (30, 50, 51, 60, 61)]
    assert allowed == [[None], [None], [None, 7], [None, 7], [7]]


def test_register_of_an_aborted_transaction_does_not_change() -> None:
    ledger = Ledger()
    ledger.set("r", 7, 10, 20, transaction=SentTransaction("t", commits=False, ended_at=50, acked_at=60))
    assert ledger.registers["r"].possible(NEVER, durable=True) == [None]


def test_transaction_may_be_visible_from_the_request_of_its_commit_on() -> None:
    transaction = SentTransaction("t", commits=True, ended_at=50, acked_at=60)
    assert [transaction.may_be_visible(point) for point in (50, 51)] == [False, True]
    assert [transaction.must_be_visible(point) for point in (60, 61)] == [False, True]


def test_log_start_offset_may_move_from_the_request_on() -> None:
    ledger = Ledger()
    ledger.trims += [Trim(("t", 0), 5, 10), Trim(("t", 0), 8, 20), Trim(("t", 1), 9, 0)]
    assert [ledger.trimmed_to(("t", 0), point) for point in (10, 11, 21)] == [0, 5, 8]


def test_batches_of_a_partition_are_in_the_order_of_offsets_without_refused_ones() -> None:
    ledger = Ledger()
    ledger.batches += [
        SentBatch(("t", 0), [b"c"], 1, 2, base_offset=2), SentBatch(("t", 0), [b"a", b"b"], 1, 3, base_offset=0),
        SentBatch(("t", 0), [b"x"], 4), SentBatch(("t", 1), [b"y"], 5, 6, base_offset=0),
    ]  # fmt: skip
    assert [batch.values for batch in ledger.of_partition(("t", 0))] == [[b"a", b"b"], [b"c"]]
