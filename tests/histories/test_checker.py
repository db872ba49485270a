"""The checker on histories written by hand: each class of anomaly is found, and a good history has none."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.histories.checker import (
    Anomaly,
    count_anomalies,
    count_producers,
    count_transactions,
    find_anomalies,
)
from tests.histories.history import (
    Ending,
    Entry,
    Error,
    GroupPartition,
    History,
    Kind,
    OffsetRead,
    Outcome,
    PositionRead,
    ProducerLedger,
    RecordId,
    Result,
    Seen,
    Send,
    Session,
    Transaction,
)
from tests.histories.table import table

KEY = GroupPartition("worker", 0)
ACKNOWLEDGED, FAILED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.FAILED, Outcome.UNKNOWN


def entries(*records: tuple[int, str, int] | tuple[int, str, int, bool]) -> list[Entry]:
    """Entries from (offset, producer, number) of committed records; a fourth value says whether it is committed."""
    return [
        Entry(record[0], RecordId(record[1], record[2]), record[3] if len(record) > 3 else True) for record in records
    ]


def producer(kind: Kind, *results: Result | None, name: str = "p", partition: int = 0) -> ProducerLedger:
    """A ledger of sends to one partition; None: no result was noted."""
    sends = [Send(number, partition) for number in range(len(results))]
    return ProducerLedger(name, kind, sends, {number: result for number, result in enumerate(results) if result})


def acknowledged(offset: int | None, after: int = 100) -> Result:
    return Result(ACKNOWLEDGED, offset, after)


def transactions(
    *groups: tuple[Ending, tuple[int, ...]], name: str = "t", offsets: dict[int, int] | None = None
) -> ProducerLedger:
    """A ledger of transactions, each with its end and the partitions of its records. offsets: committed for KEY, by
    transaction."""
    ledger = ProducerLedger(name, Kind.TRANSACTIONAL)
    for number, (ending, partitions) in enumerate(groups):
        ledger.transactions[number] = Transaction(ending)
        for partition in partitions:
            ledger.sends.append(Send(len(ledger.sends), partition, number))
    for number, offset in (offsets or {}).items():
        ledger.transactions[number].offsets[KEY] = offset
    return ledger


def session(*seen: tuple[int, str, int], committed: bool = True, at_least: int = 0, at_most: int = 0) -> Session:
    found = [Seen(offset, RecordId(name, number)) for offset, name, number in seen]
    return Session("consumer", 0, committed, at_least, at_most, found)


def anomalies(history: History) -> dict[Anomaly, int]:
    return dict(count_anomalies(find_anomalies(history)))


def of_one_producer(ledger: ProducerLedger, *records: tuple[int, str, int]) -> dict[Anomaly, int]:
    return anomalies(History([ledger], log={0: entries(*records)}))


# Records of producers.


def test_checker_of_an_empty_history_finds_nothing() -> None:
    assert anomalies(History()) == {}


@pytest.mark.parametrize("kind", [Kind.PLAIN, Kind.IDEMPOTENT])
def test_acknowledged_record_that_the_log_does_not_hold_is_lost(kind: Kind) -> None:
    ledger = producer(kind, acknowledged(0), acknowledged(1), acknowledged(2))
    assert of_one_producer(ledger, (0, "p", 0), (2, "p", 2)) == {Anomaly.LOST: 1}


def test_unknown_record_may_be_in_the_log_or_not() -> None:
    ledger = producer(Kind.IDEMPOTENT, acknowledged(0), Result(UNKNOWN), None, acknowledged(2))
    assert of_one_producer(ledger, (0, "p", 0), (1, "p", 1), (2, "p", 3)) == {}


def test_acknowledged_offset_that_holds_another_record_is_misplaced() -> None:
    ledger = producer(Kind.IDEMPOTENT, acknowledged(0), acknowledged(1))
    assert of_one_producer(ledger, (0, "p", 0), (2, "p", 1)) == {Anomaly.MISPLACED: 1}


@pytest.mark.parametrize(("kind", "expected"), [(Kind.IDEMPOTENT, {Anomaly.DUPLICATED: 1}), (Kind.PLAIN, {})])
def test_record_that_is_there_twice_is_duplicated_unless_its_producer_is_plain(
    kind: Kind, expected: dict[Anomaly, int]
) -> None:
    ledger = producer(kind, acknowledged(1), acknowledged(2))
    assert of_one_producer(ledger, (0, "p", 0), (1, "p", 0), (2, "p", 1)) == expected


def test_transactional_record_that_is_there_twice_is_duplicated() -> None:
    ledger = transactions((Ending.COMMITTED, (0,)))
    assert of_one_producer(ledger, (0, "t", 0), (1, "t", 0)) == {Anomaly.DUPLICATED: 1}


def test_record_of_an_idempotent_producer_before_an_earlier_one_is_reordered() -> None:
    ledger = producer(Kind.IDEMPOTENT, acknowledged(1), acknowledged(0), acknowledged(2))
    assert of_one_producer(ledger, (0, "p", 1), (1, "p", 0), (2, "p", 2)) == {Anomaly.REORDERED: 1}


def test_records_of_a_plain_producer_that_were_sent_together_may_change_places() -> None:
    ledger = producer(Kind.PLAIN, acknowledged(1, after=2), acknowledged(0, after=2))
    assert of_one_producer(ledger, (0, "p", 1), (1, "p", 0)) == {}


def test_record_of_a_plain_producer_before_one_that_was_acknowledged_earlier_is_reordered() -> None:
    ledger = producer(Kind.PLAIN, acknowledged(1, after=1), acknowledged(0, after=2))
    assert of_one_producer(ledger, (0, "p", 1), (1, "p", 0)) == {Anomaly.REORDERED: 1}


@pytest.mark.parametrize(
    "entry",
    [Entry(1, RecordId("p", 7), True), Entry(1, RecordId("other", 0), True), Entry(1, None, True)],
    ids=["number", "producer", "value"],
)
def test_record_that_no_producer_sent_is_unsent(entry: Entry) -> None:
    ledger = producer(Kind.PLAIN, acknowledged(0))
    history = History([ledger], log={0: [*entries((0, "p", 0)), entry]})
    assert anomalies(history) == {Anomaly.UNSENT: 1}


def test_record_in_another_partition_than_it_was_sent_to_is_unsent() -> None:
    ledger = producer(Kind.PLAIN, acknowledged(0), partition=1)
    assert of_one_producer(ledger, (0, "p", 0)) == {Anomaly.UNSENT: 1}


def test_record_whose_send_failed_locally_is_unsent() -> None:
    ledger = producer(Kind.IDEMPOTENT, Result(FAILED))
    assert of_one_producer(ledger, (0, "p", 0)) == {Anomaly.UNSENT: 1}


# Transactions.


def of_transactions(ledger: ProducerLedger, log: dict[int, list[Entry]]) -> dict[Anomaly, int]:
    return anomalies(History([ledger], log=log))


@pytest.mark.parametrize("ending", [Ending.COMMITTED, Ending.UNKNOWN])
def test_transaction_that_is_visible_in_one_of_its_partitions_is_half_visible(ending: Ending) -> None:
    ledger = transactions((ending, (0, 1)))
    log = {0: entries((0, "t", 0)), 1: entries((0, "t", 1, False))}
    assert of_transactions(ledger, log) == {Anomaly.HALF_VISIBLE: 1}


def test_transaction_of_which_a_record_is_missing_is_half_visible() -> None:
    assert of_transactions(transactions((Ending.UNKNOWN, (0, 0))), {0: entries((0, "t", 0))}) == {
        Anomaly.HALF_VISIBLE: 1
    }


def test_transaction_with_an_unknown_end_may_be_visible_or_not() -> None:
    ledger = transactions((Ending.UNKNOWN, (0, 1)), (Ending.UNKNOWN, (0, 1)))
    log = {0: entries((0, "t", 0), (1, "t", 2, False)), 1: entries((0, "t", 1), (1, "t", 3, False))}
    assert of_transactions(ledger, log) == {}


def test_visible_record_of_an_aborted_transaction_is_an_anomaly() -> None:
    ledger = transactions((Ending.ABORTED, (0, 1)))
    log = {0: entries((0, "t", 0)), 1: entries((0, "t", 1, False))}
    assert of_transactions(ledger, log) == {Anomaly.ABORTED_VISIBLE: 1}


def test_invisible_committed_transaction_is_an_anomaly() -> None:
    ledger = transactions((Ending.COMMITTED, (0, 1)))
    log = {0: entries((0, "t", 0, False)), 1: entries((0, "t", 1, False))}
    assert of_transactions(ledger, log) == {Anomaly.COMMITTED_HIDDEN: 1}


def test_transaction_that_never_ended_is_open() -> None:
    assert anomalies(History(open_transactions=["partition 0: the last stable offset is 1, the end 2"])) == {
        Anomaly.OPEN: 1
    }


def with_offsets(offset: int | None, *endings: Ending, records: bool = True, visible: bool = True) -> History:
    """Transactions with the consumed offsets 10, 20 ... of KEY, after which `offset` was found as committed."""
    ledger = transactions(
        *((ending, (0,) if records else ()) for ending in endings),
        offsets={number: 10 * (number + 1) for number in range(len(endings))},
    )
    log = [
        Entry(number, RecordId("t", number), ending is Ending.COMMITTED or (ending is Ending.UNKNOWN and visible))
        for number, ending in enumerate(endings)
        if records
    ]
    read = PositionRead(KEY, "t", ("t", len(endings) - 1), offset)
    return History([ledger], log={0: log}, lineage={"worker": ["t"]}, position_reads=[read])


def test_offsets_of_the_last_visible_transaction_are_committed() -> None:
    assert anomalies(with_offsets(10, Ending.COMMITTED, Ending.ABORTED)) == {}
    assert anomalies(with_offsets(20, Ending.COMMITTED, Ending.UNKNOWN)) == {}
    assert anomalies(with_offsets(10, Ending.COMMITTED, Ending.UNKNOWN, visible=False)) == {}
    assert anomalies(with_offsets(None, Ending.ABORTED)) == {}


@pytest.mark.parametrize(
    "history",
    [
        with_offsets(20, Ending.COMMITTED, Ending.ABORTED),
        with_offsets(20, Ending.COMMITTED, Ending.UNKNOWN, visible=False),
        with_offsets(10, Ending.ABORTED),
    ],
    ids=["aborted", "unknown", "first"],
)
def test_committed_offsets_of_a_transaction_without_visible_records_make_it_half_visible(history: History) -> None:
    assert anomalies(history) == {Anomaly.HALF_VISIBLE: 1}


@pytest.mark.parametrize(
    "history",
    [
        with_offsets(10, Ending.COMMITTED, Ending.COMMITTED),
        with_offsets(10, Ending.COMMITTED, Ending.UNKNOWN),
        with_offsets(None, Ending.COMMITTED),
    ],
    ids=["committed", "unknown", "first"],
)
def test_visible_transaction_without_its_committed_offsets_is_an_anomaly(history: History) -> None:
    assert anomalies(history) == {Anomaly.OFFSET_BACK: 1}


def test_transaction_of_offsets_alone_with_an_unknown_end_may_be_committed_or_not() -> None:
    for offset in (10, 20):
        assert anomalies(with_offsets(offset, Ending.COMMITTED, Ending.UNKNOWN, records=False)) == {}
    assert anomalies(with_offsets(30, Ending.COMMITTED, Ending.UNKNOWN, records=False)) == {Anomaly.HALF_VISIBLE: 1}


def test_position_of_a_later_producer_depends_on_the_transactions_before_it_alone() -> None:
    first = transactions((Ending.COMMITTED, (0,)), offsets={0: 10}, name="t.0")
    second = transactions((Ending.COMMITTED, (0,)), offsets={0: 20}, name="t.1")
    reads = [
        PositionRead(KEY, "t.0", None, None),
        PositionRead(KEY, "t.1", ("t.0", 0), 10),
        PositionRead(KEY, "t.1", ("t.1", 0), 20),
    ]
    log = {0: entries((0, "t.0", 0), (2, "t.1", 0))}
    lineage = {"t": ["t.0", "t.1"]}
    assert anomalies(History([first, second], log=log, lineage=lineage, position_reads=reads)) == {}
    reads[1] = PositionRead(KEY, "t.1", ("t.0", 0), None)
    assert anomalies(History([first, second], log=log, lineage=lineage, position_reads=reads)) == {
        Anomaly.OFFSET_BACK: 1
    }


# Consumers.

SENT = producer(Kind.IDEMPOTENT, *(acknowledged(number) for number in range(5)))
LOG = [(number, "p", number) for number in range(5)]


def of_session(found: Session) -> dict[Anomaly, int]:
    return anomalies(History([SENT], [found], log={0: entries(*LOG)}))


def test_consumer_that_returned_a_beginning_of_the_log_is_right() -> None:
    for count in range(6):
        assert of_session(session(*LOG[:count])) == {}


def test_consumer_that_returned_a_record_the_log_does_not_hold_saw_a_phantom() -> None:
    assert of_session(session(*LOG, (5, "p", 5))) == {Anomaly.PHANTOM: 1}


def test_consumer_that_returned_another_record_at_an_offset_saw_a_phantom() -> None:
    assert of_session(session(LOG[0], (1, "p", 3))) == {Anomaly.PHANTOM: 1}


def test_consumer_that_left_out_a_visible_record_skipped_it() -> None:
    assert of_session(session(LOG[0], LOG[2])) == {Anomaly.SKIPPED: 1}
    assert of_session(session(LOG[1])) == {Anomaly.SKIPPED: 1}


def test_consumer_that_returned_an_offset_again_was_rewound() -> None:
    assert of_session(session(LOG[0], LOG[1], LOG[1])) == {Anomaly.REWOUND: 1}


def test_consumer_of_committed_records_that_returned_an_aborted_one_is_unstable() -> None:
    ledger = transactions((Ending.ABORTED, (0,)))
    log = {0: entries((0, "t", 0, False))}
    assert anomalies(History([ledger], [session((0, "t", 0))], log=log)) == {Anomaly.UNSTABLE: 1}
    assert anomalies(History([ledger], [session((0, "t", 0), committed=False)], log=log)) == {}


def test_consumer_of_committed_records_may_pass_over_aborted_ones() -> None:
    ledger = transactions((Ending.ABORTED, (0,)), (Ending.COMMITTED, (0,)))
    log = {0: entries((0, "t", 0, False), (2, "t", 1))}
    assert anomalies(History([ledger], [session((2, "t", 1))], log=log)) == {}
    assert anomalies(History([ledger], [session((2, "t", 1), committed=False)], log=log)) == {Anomaly.SKIPPED: 1}


def test_member_may_resume_between_the_acknowledged_and_the_requested_commit() -> None:
    for first in (2, 3, 4):
        assert of_session(session(*LOG[first:], at_least=2, at_most=4)) == {}


def test_member_that_resumes_below_an_acknowledged_commit_went_back() -> None:
    assert of_session(session(*LOG[1:], at_least=2, at_most=4)) == {Anomaly.OFFSET_BACK: 1}


def test_member_that_resumes_beyond_every_requested_commit_skipped_records() -> None:
    assert of_session(session(LOG[4], at_least=2, at_most=3)) == {Anomaly.SKIPPED: 1}


def test_committed_offset_is_held_to_its_bounds() -> None:
    for offset, expected in ((4, {Anomaly.OFFSET_BACK: 1}), (5, {}), (7, {}), (8, {Anomaly.OFFSET_UNASKED: 1})):
        assert anomalies(History(offset_reads=[OffsetRead(KEY, offset, 5, 7)])) == expected


@pytest.mark.parametrize(
    ("history", "anomaly"),
    [
        (History(stalled=["reader, partition 0: 5 of 7"]), Anomaly.STALLED),
        (History(disagreements=["partition 0: 1 records differ"]), Anomaly.DISAGREEMENT),
        (History(broker_errors=["ERROR the log went offline"]), Anomaly.BROKER_FAULT),
        (History(errors=Counter({Error("producer", "OUT_OF_ORDER_SEQUENCE_NUMBER", True): 2})), Anomaly.BROKER_FAULT),
        (History(errors=Counter({Error("consumer", "_AUTO_OFFSET_RESET", False): 1})), Anomaly.BROKER_FAULT),
    ],
    ids=["stalled", "disagreement", "log", "code", "reset"],
)
def test_errors_noted_by_the_run_are_anomalies(history: History, anomaly: Anomaly) -> None:
    assert anomalies(history) == {anomaly: 1}


def test_time_outs_of_clients_and_codes_of_restarts_are_no_broker_faults() -> None:
    errors = Counter(
        {
            Error("producer", "_MSG_TIMED_OUT", False): 100,
            Error("producer", "_TRANSPORT", False): 3,
            Error("group member", "COORDINATOR_LOAD_IN_PROGRESS", True): 3,
            Error("transactional producer", "_TIMED_OUT", False): 1,
            Error("transactional producer", "INVALID_TXN_STATE without a registered transaction", True): 1,
        }
    )
    assert anomalies(History(errors=errors)) == {}


# Counts.


def test_counts_sum_the_outcomes_of_sends_and_transactions() -> None:
    plain = producer(Kind.PLAIN, acknowledged(1), Result(UNKNOWN), Result(UNKNOWN), Result(FAILED))
    ledger = transactions((Ending.COMMITTED, (0,)), (Ending.ABORTED, (0,)), (Ending.UNKNOWN, (0,)), offsets={0: 9})
    log = entries((0, "p", 0), (1, "p", 0), (2, "p", 2), (3, "t", 0), (5, "t", 1, False), (7, "t", 2))
    history = History([plain, ledger], log={0: log})
    assert anomalies(history) == {}
    assert count_producers(history, Kind.PLAIN) == (4, 1, 1, 2, 1, 1)
    assert count_transactions(history) == (1, 1, 1, 1, 1)
    assert "| plain | 4 | 1 | 1 | 2 | 1 | 1 |" in table(history, [])


def test_every_class_of_anomaly_is_in_the_table() -> None:
    text = table(History(stalled=["reader"]), find_anomalies(History(stalled=["reader"])))
    assert all(f"| {anomaly.value} | {int(anomaly is Anomaly.STALLED)} |" in text for anomaly in Anomaly)
