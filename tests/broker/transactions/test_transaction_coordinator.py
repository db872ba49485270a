"""The transaction coordinator over a state log in memory: steps of a transaction, crashes between them, expiration."""

from __future__ import annotations

import pytest

from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.transactions.transaction_metadata import CLASSIC, EPOCH_BUMP, LAST_EPOCH
from kafkalog_broker.transactions.transaction_state import TransactionState
from tests.broker.transactions.helpers.ledger import ALL, ORDERS, Ledger

TIMEOUT = 60_000
ABORT_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
EXPIRY_INTERVAL = "transaction.remove.expired.transaction.cleanup.interval.ms"


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def opened(ledger: Ledger, name: str = "t", version: int = CLASSIC, timeout: int = TIMEOUT) -> ProducerIdAndEpoch:
    producer = ledger.coordinator.init_producer_id(name, timeout, None)
    ledger.coordinator.add_partitions(name, producer, ALL, version)
    return producer


def state(ledger: Ledger, name: str = "t") -> TransactionState:
    return ledger.coordinator.describe(name).state


def code(call) -> ErrorCode:  # type: ignore[no-untyped-def]
    with pytest.raises(BrokerError) as caught:
        call()
    return caught.value.code


@pytest.mark.parametrize("version", [CLASSIC, EPOCH_BUMP])
@pytest.mark.parametrize("commit", [True, False])
def test_transaction_is_completed_after_every_partition_has_its_marker(ledger, version, commit):
    producer = opened(ledger, version=version)
    after = ledger.coordinator.end("t", producer, commit=commit, client_version=version)
    assert ledger.coordinator.prepared == ["t"]
    assert ledger.markers == []
    assert ledger.complete("t")
    assert [partition for partition, _ in ledger.markers] == ORDERS
    (marker,) = {marker for _, marker in ledger.markers}
    bump = 1 if version == EPOCH_BUMP else 0
    assert marker == (producer.producer_id, producer.epoch + bump, commit, 7, version)
    assert after == (producer.producer_id, producer.epoch + bump)
    assert ledger.coordinator.prepared == []
    assert state(ledger) is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)


@pytest.mark.parametrize("version", [CLASSIC, EPOCH_BUMP])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("written", range(4))
def test_markers_are_completed_after_a_crash_between_them(ledger, version, commit, written):
    producer = opened(ledger, version=version)
    ledger.coordinator.end("t", producer, commit=commit, client_version=version)
    ledger.refuses = dict.fromkeys(ORDERS[written:], ErrorCode.kafka_storage_error)
    if written < 3:
        assert not ledger.complete("t")
    ledger.crash()
    ledger.refuses = {}
    assert ledger.coordinator.prepared == ["t"]
    ledger.complete_all()
    assert {partition for partition, _ in ledger.markers} == ALL
    assert {marker.commit for _, marker in ledger.markers} == {commit}, "the decision stays what it was"
    assert ledger.coordinator.prepared == []
    ledger.crash()
    assert ledger.coordinator.prepared == []
    assert state(ledger).may_expire


def test_crash_before_the_outcome_leaves_the_transaction_open(ledger):
    producer = opened(ledger)
    ledger.crash()
    assert state(ledger) is TransactionState.ONGOING
    assert ledger.coordinator.describe("t").partitions == ALL
    ledger.coordinator.end("t", producer, commit=True, client_version=CLASSIC)
    assert ledger.complete("t")


def test_only_partitions_without_a_marker_are_retried(ledger):
    producer = opened(ledger)
    ledger.coordinator.end("t", producer, commit=True, client_version=CLASSIC)
    ledger.refuses = {ORDERS[1]: ErrorCode.coordinator_load_in_progress}
    assert not ledger.complete("t")
    assert ledger.coordinator.describe("t").partitions == {ORDERS[1]}
    for call in (
        lambda: ledger.coordinator.init_producer_id("t", TIMEOUT, None),
        lambda: ledger.coordinator.add_partitions("t", producer, ALL, CLASSIC),
        lambda: ledger.coordinator.end("t", producer, commit=True, client_version=CLASSIC),
    ):
        assert code(call) is ErrorCode.concurrent_transactions
    ledger.refuses = {}
    assert ledger.complete("t")
    assert [partition for partition, _ in ledger.markers] == [ORDERS[0], ORDERS[2], ORDERS[1]]


@pytest.mark.parametrize(
    "why",
    [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.transaction_coordinator_fenced,
    ],
)
def test_partition_that_cannot_take_the_marker_is_skipped(ledger, why):
    producer = opened(ledger)
    ledger.refuses = {ORDERS[0]: why}
    ledger.coordinator.end("t", producer, commit=True, client_version=CLASSIC)
    assert ledger.complete("t")
    assert state(ledger) is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("failure", [ErrorCode.kafka_storage_error, ErrorCode.record_list_too_large])
def test_failed_append_leaves_the_state_unchanged(ledger, failure):
    producer = opened(ledger)
    known = ledger.coordinator.describe("t")
    ledger.state.failure = failure
    expected = ErrorCode.not_coordinator if failure is ErrorCode.kafka_storage_error else ErrorCode.unknown_server_error
    for call in (
        lambda: ledger.coordinator.end("t", producer, commit=True, client_version=CLASSIC),
        lambda: ledger.coordinator.init_producer_id("t", TIMEOUT, None),
        lambda: ledger.coordinator.init_producer_id("new", TIMEOUT, None),
    ):
        assert code(call) is expected
    assert ledger.coordinator.describe("t") == known
    assert ledger.coordinator.prepared == []
    assert code(lambda: ledger.coordinator.describe("new")) is ErrorCode.transactional_id_not_found
    ledger.state.failure = None
    ledger.coordinator.end("t", producer, commit=True, client_version=CLASSIC)
    ledger.state.failure = failure
    assert code(lambda: ledger.complete("t")) is expected
    assert ledger.coordinator.prepared == ["t"]
    ledger.state.failure = None
    assert ledger.complete("t")
    assert len(ledger.markers) == 3, "a marker that was written is not written again"


def test_timed_out_transaction_is_aborted_and_its_producer_fenced():
    ledger = Ledger({ABORT_INTERVAL: 10_000})
    slow, quick = opened(ledger, "slow", timeout=5_000), opened(ledger, "quick")
    ledger.clock.advance(5_001)
    ledger.coordinator.tick(ledger.clock.now_ms())
    assert ledger.coordinator.prepared == [], "not before the interval is over"
    ledger.clock.advance(5_000)
    ledger.coordinator.tick(ledger.clock.now_ms())
    assert ledger.coordinator.prepared == ["slow"]
    ledger.complete_all()
    assert state(ledger, "slow") is TransactionState.COMPLETE_ABORT
    late = lambda: ledger.coordinator.end("slow", slow, commit=True, client_version=CLASSIC)  # noqa: E731
    assert code(late) is ErrorCode.producer_fenced
    ledger.coordinator.end("quick", quick, commit=True, client_version=CLASSIC)


def test_transaction_times_out_after_the_clock_was_set_back():
    ledger = Ledger({ABORT_INTERVAL: 10_000})
    ledger.clock.jump(-3_600_000)
    opened(ledger, "slow", timeout=5_000)
    ledger.clock.advance(10_001)
    ledger.coordinator.tick(ledger.clock.now_ms())
    assert ledger.coordinator.prepared == ["slow"]


def test_expired_ids_without_an_open_transaction_are_removed():
    ledger = Ledger({"transactional.id.expiration.ms": 100_000, EXPIRY_INTERVAL: 1_000, ABORT_INTERVAL: 2**31 - 1})
    idle = ledger.coordinator.init_producer_id("idle", TIMEOUT, None)
    opened(ledger, "open")
    ledger.clock.advance(50_000)
    ledger.coordinator.init_producer_id("young", TIMEOUT, None)
    ledger.clock.advance(50_000)
    ledger.coordinator.tick(ledger.clock.now_ms())
    assert {found.transactional_id for found in ledger.coordinator.all_metadata()} == {"open", "young"}
    ledger.crash()
    assert {found.transactional_id for found in ledger.coordinator.all_metadata()} == {"open", "young"}
    again = ledger.coordinator.init_producer_id("idle", TIMEOUT, None)
    assert again.producer_id > idle.producer_id
    assert again.epoch == 0


def test_exhausted_epoch_gets_a_new_producer_id_also_after_a_crash(ledger):
    producer = ledger.coordinator.init_producer_id("t", TIMEOUT, None)
    while producer.epoch < LAST_EPOCH:
        producer = ledger.coordinator.init_producer_id("t", TIMEOUT, None)
    ledger.coordinator.add_partitions("t", producer, ALL, EPOCH_BUMP)
    after = ledger.coordinator.end("t", producer, commit=True, client_version=EPOCH_BUMP)
    assert after.producer_id != producer.producer_id
    assert after.epoch == 0
    ledger.crash()
    ledger.complete_all()
    assert {marker.producer_epoch for _, marker in ledger.markers} == {LAST_EPOCH + 1}
    assert ledger.coordinator.describe("t").producer == after
    assert ledger.coordinator.end("t", producer, commit=True, client_version=EPOCH_BUMP) == after, "asked again"


def test_loading_and_absent_partitions_have_their_error_codes(ledger):
    ledger.coordinator.runtime.begin_loading([0])
    asked = lambda: ledger.coordinator.init_producer_id("t", TIMEOUT, None)  # noqa: E731
    assert code(asked) is ErrorCode.coordinator_load_in_progress
    assert code(ledger.coordinator.all_metadata) is ErrorCode.coordinator_load_in_progress
    ledger.coordinator.runtime.unload(0)
    assert ledger.coordinator.init_producer_id("t", TIMEOUT, None).epoch == 0
    ledger.state._partitions = 50
    ledger.state.owned = lambda: range(0)  # type: ignore[method-assign]
    ledger.coordinator.close_all()
    assert code(asked) is ErrorCode.not_coordinator
    ledger.coordinator.shutdown()
    assert code(asked) is ErrorCode.coordinator_not_available
