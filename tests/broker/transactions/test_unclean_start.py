"""After a power cut that removed different tails from __transaction_state and from partitions, every transaction ends
with the right outcome."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic_registry_file import TOPICS_FILE
from kafkalog_broker.transactions.transaction_state import TransactionState
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkalog_spark.log.write.encoded_batch import split_batches
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.transaction_requests import (
    FIND_COORDINATOR,
    OFFSET_FETCH,
    TOPIC,
    Producer,
    offset_fetch_fields,
)
from tests.broker.transactions.helpers.dispatched import Client
from tests.broker.transactions.helpers.power_cut import cut, disk_after_power_cut, everything

PROPERTIES = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
OF_EPOCH, CLASSIC = (12, 5), (11, 3)  # versions of Produce and EndTxn: transaction versions 2 and 0
COMMIT, ABORT = True, False


class Crashing:
    """A broker that can lose power."""

    def __init__(self, directory: Path) -> None:
        self._directories = iter(directory / str(number) for number in range(100))
        self.directory = next(self._directories)
        self._start()
        self.run(self.broker.ensure_topic(TOPIC, 3, {}))
        for key_type in (0, 1):
            self.client.send(FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=["any"])

    def _start(self) -> None:
        self._running = BrokerInProcess(self.directory, PROPERTIES)
        self._running.__enter__()
        self.clock = self._running.clock
        self.client: Any = Client(self._running)

    @property
    def broker(self) -> Any:
        return self._running.broker

    def run(self, coroutine: Any) -> Any:
        return self._running.run(coroutine)

    def log(self, partition: int = 0, topic: str = TOPIC) -> Log:
        return self.broker.log(topic, partition)  # type: ignore[no-any-return]

    @property
    def state(self) -> int:
        """Number of records in __transaction_state."""
        return self.log(0, TRANSACTION_TOPIC).log_end_offset

    def lose_power(self, **ends: int) -> None:
        disk = disk_after_power_cut(self._running, self.directory, next(self._directories), cut(**ends))
        self.stop()
        self.directory = disk
        self.start()

    def start(self) -> None:
        """Start in the present directory and complete what was prepared."""
        self._start()
        while self.broker.transactions.prepared:
            self._running.tick()

    def stop(self) -> None:
        self._running.__exit__()

    def producer(self, transactional_id: str = "t") -> Producer:
        return Producer(self.client, transactional_id, self.client.init(transactional_id))

    def produce(self, producer: Producer, version: int, *partitions: int) -> None:
        for partition in partitions:
            if version < 12:
                answer = producer.add("", 3, partition)
                assert not _errors(answer)
            assert not _errors(producer.produce("", version, partition))

    def outcome(self, partition: int = 0, topic: str = TOPIC) -> list[bool]:
        """Outcomes of the transactions in a log, which holds none open."""
        log = self.log(partition, topic)
        assert log.last_stable_offset == log.log_end_offset, f"{log.name} holds an open transaction"
        batches = (one for chunk in log.chunks(1 << 20) for one in split_batches(chunk))
        return [control_type(data) == ControlType.COMMIT for data, header in batches if header.is_control]

    def describe(self, transactional_id: str = "t") -> Any:
        return self.broker.transactions.describe(transactional_id)


def _errors(answer: Any) -> list[str]:
    if isinstance(answer, dict):
        return [one for key, value in answer.items() for one in (
            [value] if key.endswith("error_code") and value != "none" else _errors(value))]  # fmt: skip
    return [one for value in answer for one in _errors(value)] if isinstance(answer, list) else []


@pytest.fixture
def crashing(tmp_path):
    found = Crashing(tmp_path)
    yield found
    found.stop()


@contextmanager
def unchanged_state(crashing: Crashing) -> Iterator[None]:
    before = crashing.state
    yield
    assert crashing.state == before


versions = pytest.mark.parametrize("versions", [OF_EPOCH, CLASSIC], ids=["epoch bump", "classic"])


@versions
def test_transaction_whose_addition_was_lost_is_aborted_and_its_producer_fenced(crashing, versions):
    producer = crashing.producer()
    known = crashing.state
    crashing.produce(producer, versions[0], 0)
    crashing.lose_power(transaction_state_0=known)
    assert crashing.outcome() == [ABORT]
    producer.asked = crashing.client
    assert _errors(producer.produce("", 12, 0)) == ["invalid_producer_epoch"]
    next_one = crashing.producer()
    assert (next_one.id, next_one.epoch) == (producer.id, producer.epoch + 2)


@versions
@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_transaction_whose_marker_was_lost_gets_its_outcome(crashing, versions, commit):
    produce, end = versions
    producer = crashing.producer()
    crashing.produce(producer, produce, 0, 1)
    before_marker = crashing.log().log_end_offset
    producer.end("", end, commit)
    crashing.lose_power(accounts_0=before_marker)
    assert crashing.describe().state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    assert crashing.outcome(0) == crashing.outcome(1) == [commit]


def test_start_without_file_descriptors_fails_and_the_next_one_settles(crashing, monkeypatch):
    """Otherwise read_committed consumers would wait for the open transaction until the next unclean start."""
    producer = crashing.producer()
    crashing.produce(producer, OF_EPOCH[0], 0)
    before_marker = crashing.log().log_end_offset
    producer.end("", OF_EPOCH[1], COMMIT)

    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("kafkalog_broker.transactions.unclean_start_plan.read_outcomes", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            crashing.lose_power(accounts_0=before_marker)
    crashing.start()
    assert crashing.outcome(0) == [COMMIT]


@versions
def test_open_transaction_after_a_committed_one_of_the_same_producer_is_aborted(crashing, versions):
    produce, end = versions
    producer = crashing.producer()
    crashing.produce(producer, produce, 0)
    producer.end("", end, COMMIT)
    known = crashing.state
    crashing.clock.advance(5)
    crashing.produce(producer, produce, 0)
    crashing.lose_power(transaction_state_0=known)
    assert crashing.outcome() == [COMMIT, ABORT]


@versions
@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_partition_whose_addition_was_lost_is_added_again(crashing, versions, commit):
    produce, end = versions
    producer = crashing.producer()
    crashing.produce(producer, produce, 0)
    known = crashing.state
    crashing.produce(producer, produce, 1)
    crashing.lose_power(transaction_state_0=known)
    producer.asked = crashing.client
    assert not _errors(producer.end("", end, commit))
    assert crashing.outcome(0) == crashing.outcome(1) == [commit]


@versions
@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_transaction_with_a_marker_in_one_partition_gets_it_in_the_others(crashing, versions, commit):
    produce, end = versions
    producer = crashing.producer()
    crashing.clock.advance(5)
    crashing.produce(producer, produce, 0, 1)
    crashing.clock.advance(5)
    known, before_marker = crashing.state, crashing.log(1).log_end_offset
    producer.end("", end, commit)
    crashing.lose_power(transaction_state_0=known, accounts_1=before_marker)
    assert crashing.outcome(0)[-1] == crashing.outcome(1)[-1] == commit
    assert crashing.describe().state.may_expire


@pytest.mark.parametrize("partition", [0, 1], ids=["named", "not named"])
def test_open_transaction_after_one_whose_end_was_lost_is_aborted(crashing, partition):
    """Both have one epoch. The coordinator has the first one as open; a marker shows that it was committed."""
    producer = crashing.producer()
    crashing.clock.advance(5)
    crashing.produce(producer, 11, 0, 2)
    crashing.clock.advance(5)
    known = crashing.state
    producer.end("", 3, COMMIT)
    crashing.clock.advance(5)
    crashing.produce(producer, 11, partition)
    crashing.lose_power(transaction_state_0=known)
    assert crashing.outcome(partition)[-1] == ABORT if partition else crashing.outcome(0)[:2] == [COMMIT, ABORT]
    assert set(crashing.outcome(2)) == {COMMIT}
    assert crashing.describe().state.may_expire


def test_transaction_in_a_new_segment_with_old_timestamps_gets_its_outcome(crashing):
    """The last marker lies in the segment before, and clients choose the timestamps of records."""
    producer = crashing.producer()
    crashing.clock.advance(5)
    crashing.produce(producer, 11, 0)
    crashing.clock.advance(5)
    producer.end("", 3, ABORT)
    crashing.clock.advance(5)
    crashing.log().local.roll(crashing.clock.now_ms())
    crashing.clock.advance(-1_000_000)
    crashing.produce(producer, 11, 0)  # with the timestamp of this moment
    crashing.clock.advance(1_000_005)
    before_marker = crashing.log().log_end_offset
    producer.end("", 3, COMMIT)
    crashing.lose_power(accounts_0=before_marker)
    assert crashing.outcome() == [ABORT, COMMIT]


@pytest.mark.parametrize("is_completed", [True, False], ids=["completed", "prepared"])
def test_aborted_transaction_whose_log_lost_a_later_committed_one_is_aborted(crashing, is_completed):
    """Both have one epoch and one partition; __transaction_state lost nothing, or only the end of the second one."""
    producer = crashing.producer()
    crashing.clock.advance(5)
    crashing.produce(producer, 11, 0)
    lost_from = crashing.log().log_end_offset
    crashing.clock.advance(5)
    producer.end("", 3, ABORT)
    crashing.clock.advance(5)
    crashing.produce(producer, 11, 0)
    crashing.clock.advance(5)
    producer.end("", 3, COMMIT)
    crashing.lose_power(accounts_0=lost_from, transaction_state_0=crashing.state - (not is_completed))
    assert crashing.outcome()[0] == ABORT


@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_transaction_known_only_by_a_marker_gets_it_in_other_partitions(crashing, commit):
    producer = crashing.producer()
    known = crashing.state
    crashing.produce(producer, 12, 0, 1)
    before_marker = crashing.log(1).log_end_offset
    producer.end("", 5, commit)
    crashing.lose_power(transaction_state_0=known, accounts_1=before_marker)
    assert crashing.outcome(0) == crashing.outcome(1) == [commit]


def test_epochs_that_the_coordinator_lost_are_not_assigned_again(crashing):
    producer = crashing.producer()
    known = crashing.state
    for _ in range(3):
        crashing.produce(producer, 12, 0)
        producer.end("", 5, COMMIT)
    crashing.lose_power(transaction_state_0=known)
    assert crashing.describe().producer_epoch == producer.epoch
    end = crashing.log().log_end_offset
    following = crashing.producer()
    crashing.produce(following, 12, 0)
    assert crashing.log().log_end_offset == end + 2, "the batch was taken for a duplicate"
    following.end("", 5, COMMIT)
    assert crashing.outcome() == [COMMIT] * 4


def test_producer_continues_if_only_records_of_the_coordinator_were_lost(crashing):
    producer = crashing.producer()
    known = crashing.state
    crashing.produce(producer, 12, 0)
    producer.end("", 5, COMMIT)
    crashing.lose_power(transaction_state_0=known)
    producer.asked = crashing.client
    crashing.produce(producer, 12, 0)
    assert not _errors(producer.end("", 5, COMMIT))
    assert crashing.outcome() == [COMMIT, COMMIT]


def test_second_power_cut_does_not_turn_an_abort_into_a_commit(crashing):
    """The record that raises the epoch may survive alone. It says nothing of the epoch before."""
    producer = crashing.producer()
    crashing.produce(producer, 12, 1)
    producer.end("", 5, COMMIT)
    known = crashing.state
    crashing.produce(producer, 12, 0)
    before_marker = crashing.log().log_end_offset
    crashing.lose_power(transaction_state_0=known)
    assert crashing.outcome(0) == [ABORT]
    crashing.lose_power(accounts_0=before_marker)
    assert crashing.outcome(0) == [ABORT]


@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_offsets_of_a_transaction_whose_marker_was_lost_get_its_outcome(crashing, commit):
    producer = crashing.producer()
    assert not _errors(producer.commit_offsets("", 5, "g", 7))
    offsets = crashing.log(0, OFFSETS_TOPIC)
    before_marker = offsets.log_end_offset
    producer.end("", 5, commit)
    crashing.lose_power(consumer_offsets_0=before_marker)
    assert crashing.outcome(0, OFFSETS_TOPIC) == [commit]
    answer = crashing.client.send(OFFSET_FETCH, 8, **offset_fetch_fields("g", stable=True))
    committed = answer["groups"][0]["topics"][0]["partitions"][0]
    assert (committed["committed_offset"], committed["error_code"]) == (7 if commit else -1, "none")


@versions
def test_transactions_are_left_to_the_coordinator_after_a_kill_without_power_cut(crashing, versions, caplog):
    """Everything is in the page cache: the coordinator knows all."""
    produce, end = versions
    other = crashing.producer("other")
    crashing.produce(other, produce, 2)
    other.end("", end, COMMIT)
    producer = crashing.producer()
    crashing.produce(producer, produce, 0)
    producer.end("", end, COMMIT)
    crashing.produce(producer, produce, 0)
    producer.add("", 3, 1)
    with unchanged_state(crashing):
        crashing.lose_power()
    assert crashing.describe().state is TransactionState.ONGOING
    assert crashing.log().last_stable_offset < crashing.log().log_end_offset
    assert not [record for record in caplog.records if "unclean_start" in record.name]
    producer.asked = crashing.client
    assert not _errors(producer.end("", end, COMMIT))
    assert crashing.outcome() == [COMMIT, COMMIT]


def test_open_transactions_without_transaction_state_topic_are_only_logged(crashing, tmp_path, caplog):
    producer = crashing.producer()
    crashing.produce(producer, 12, 0)
    disk = disk_after_power_cut(crashing._running, crashing.directory, tmp_path / "taken", everything)
    for path in disk.iterdir():
        if path.name.startswith(TRANSACTION_TOPIC):
            shutil.rmtree(path)
    (disk / TOPICS_FILE).unlink()  # it names the topic, whose partitions would be made again
    with BrokerInProcess(disk, PROPERTIES) as running:
        log = running.broker.log(TOPIC, 0)
        assert log.last_stable_offset == 0
        assert log.log_end_offset == 2
    assert "kafka-transactions.sh" in caplog.text
    assert "abort --topic accounts --partition 0 --start-offset 0" in caplog.text
