"""With log.flush.interval.messages=1 no response leaves before the coordinators' records that it promises are on disk,
and the steps of a transaction reach the disk in Kafka's order."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.coordinator.record_batch import decode_batches
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.transactions.transaction_records import decode_value
from kafkalog_broker.transactions.transaction_state import TransactionState
from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC, is_internal
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.group_calls import join_values
from tests.broker.api.helpers.transaction_requests import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END,
    FIND_COORDINATOR,
    INIT,
    OFFSET_COMMIT,
    PRODUCE,
    TIMEOUT_MS,
    TOPIC,
    TXN_OFFSET_COMMIT,
    batch,
    offset_of,
    produce_fields,
)
from tests.broker.transactions.helpers import dispatched
from tests.broker.transactions.helpers.power_cut import disk_after_power_cut, everything, flushed_only, steps

JOIN, LEAVE, SYNC, DELETE_GROUPS, OFFSET_DELETE = 11, 13, 14, 42, 47
CONSUMER_HEARTBEAT, SHARE_HEARTBEAT, STREAMS_HEARTBEAT = 68, 76, 88
SHARE_STATE_INITIALIZE, SHARE_STATE_READ, SHARE_STATE_WRITE, SHARE_STATE_DELETE = 83, 84, 85, 86
STATE, OFFSETS, DATA = f"{TRANSACTION_TOPIC}-0", f"{OFFSETS_TOPIC}-0", f"{TOPIC}-0"
PROPERTIES = {
    "log.flush.interval.messages": "1", "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1", "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}  # fmt: skip


class Client(dispatched.Client):
    """unflushed: after each response, the internal logs with records that are not on disk, other than the record that
    completes a transaction, which no response promises."""

    def __init__(self, running: BrokerInProcess) -> None:
        super().__init__(running)
        self.unflushed: list[tuple[int, list[str]]] = []

    def responded(self, key: int) -> None:
        logs = self.running.broker.logs.logs()
        self.unflushed.append((key, [log.name for log in logs if _owes_records(log)]))


def _owes_records(log: Log) -> bool:
    if not is_internal(log.topic) or log.failure is not None or log.recovery_point >= log.log_end_offset:
        return False
    completed = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    return log.topic != TRANSACTION_TOPIC or _last_state(log) not in completed


def _last_state(log: Log) -> TransactionState:
    chunks = log.read_range(log.log_end_offset - 1, 1, up_to=log.log_end_offset, at_least_one=True).chunks
    (_, value), *_ = next(iter(decode_batches(chunks))).records
    assert value is not None
    return decode_value("t", value).state


@pytest.fixture
def client(tmp_path):
    with BrokerInProcess(tmp_path / "data", PROPERTIES) as running:
        running.run(running.broker.ensure_topic(TOPIC, 1, {}))
        found = Client(running)
        for key_type in (0, 1):
            found.send(FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=["any"])
        running.run(running.broker.ensure_internal_topic(SHARE_STATE_TOPIC))
        yield found


def commit_fields(**changes: Any) -> dict[str, Any]:
    return {"group_id": "g", "generation_id_or_member_epoch": -1, "generation_id": -1, "member_id": "",
            "group_instance_id": None, "topics": [offset_of(TOPIC, 0, 5)]} | changes  # fmt: skip


def transaction(client: Client) -> None:
    one = {"transactional_id": "t", **client.init()}
    v3 = {f"v3_and_below_{name}": value for name, value in one.items()}
    topics = [{"name": TOPIC, "partitions": [0]}]
    client.send(ADD_PARTITIONS, 3, **v3, v3_and_below_topics=topics, **one, topics=topics)
    client.send(ADD_OFFSETS, 3, **one, group_id="g")
    client.send(TXN_OFFSET_COMMIT, 3, **one, **commit_fields())
    client.send(END, 3, **one, committed=True)
    of_second_version = {"transactional_id": "t2", **client.init("t2")}
    client.send(TXN_OFFSET_COMMIT, 5, **of_second_version, **commit_fields(group_id="h"))
    client.send(END, 5, **of_second_version, committed=False)
    client.init()


def fencing(client: Client) -> None:
    one = {"transactional_id": "t", **client.init()}
    client.send(TXN_OFFSET_COMMIT, 5, **one, **commit_fields())
    again = {"transactional_id": "t", "transaction_timeout": TIMEOUT_MS, "producer_id": -1, "producer_epoch": -1}
    assert client.send(INIT, 5, **again)["error_code"] == "concurrent_transactions"


def classic_group(client: Client) -> None:
    first = client.send(JOIN, 7, **join_values())
    joined = client.send(JOIN, 7, **join_values(first["member_id"]))
    assert joined["error_code"] == "none"
    member = {"group_id": "g", "member_id": joined["member_id"], "group_instance_id": None}
    assigned = [{"member_id": joined["member_id"], "assignment": b"all"}]
    generation = joined["generation_id"]
    client.send(SYNC, 5, **member, generation_id=generation, protocol_type="consumer", protocol_name="range",
                assignments=assigned)  # fmt: skip
    client.send(OFFSET_COMMIT, 8, **commit_fields(generation_id_or_member_epoch=generation, **member))
    client.send(LEAVE, 5, group_id="g", members=[member | {"reason": None}])
    client.send(OFFSET_DELETE, 0, group_id="g", topics=[{"name": TOPIC, "partitions": [{"partition_index": 0}]}])
    assert client.send(DELETE_GROUPS, 2, groups_names=["g"])["results"][0]["error_code"] == "none"


def modern_groups(client: Client) -> None:
    common = {"member_epoch": 0, "rack_id": None, "subscribed_topic_names": [TOPIC]}
    consumer: dict[str, Any] = {"group_id": "c", "member_id": "m", "instance_id": None, "rebalance_timeout": 1000,
                "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": []}  # fmt: skip
    assert client.send(CONSUMER_HEARTBEAT, 1, **consumer, **common)["error_code"] == "none"
    assert client.send(SHARE_HEARTBEAT, 1, group_id="s", member_id="m", **common)["error_code"] == "none"
    client.unflushed.pop()  # meanwhile a task has begun the state of the share partitions, of which it says nothing
    leaving = common | {"member_epoch": -1, "subscribed_topic_names": None}
    client.send(CONSUMER_HEARTBEAT, 1, **consumer | {"topic_partitions": None}, **leaving)
    client.send(SHARE_HEARTBEAT, 1, group_id="s", member_id="m", **leaving)


def share_state(client: Client) -> None:
    def topics(**fields: Any) -> list[dict[str, Any]]:
        return [{"topic_id": f"$id:{TOPIC}", "partitions": [{"partition": 0, **fields}]}]

    client.send(SHARE_STATE_INITIALIZE, 0, group_id="s", topics=topics(state_epoch=1, start_offset=0))
    client.send(SHARE_STATE_READ, 0, group_id="s", topics=topics(leader_epoch=3))
    batches = [{"first_offset": 0, "last_offset": 4, "delivery_state": 2, "delivery_count": 1}]
    written = topics(state_epoch=1, leader_epoch=3, start_offset=0, state_batches=batches)
    client.send(SHARE_STATE_WRITE, 0, group_id="s", topics=written)
    client.send(SHARE_STATE_DELETE, 0, group_id="s", topics=topics())


@pytest.mark.parametrize("scenario", [transaction, fencing, classic_group, modern_groups, share_state])
def test_response_leaves_after_records_of_coordinators_are_on_disk(client, scenario):
    scenario(client)
    assert {key: logs for key, logs in client.unflushed if logs} == {}


def test_steps_of_a_transaction_reach_the_disk_one_after_the_other(client, monkeypatch):
    one = {"transactional_id": "t", **client.init()}
    with steps(monkeypatch) as found:
        records = batch(2, 0, transactional=True, producer_id=one["producer_id"], producer_epoch=one["producer_epoch"])
        client.send(PRODUCE, 12, **produce_fields("t", 0, records))
        client.send(TXN_OFFSET_COMMIT, 5, **one, **commit_fields())
        client.send(END, 5, **one, committed=True)
    both = sorted([("append", OFFSETS), ("append", DATA)])
    assert found[:8] == [
        ("append", STATE), ("flush", STATE), ("append", DATA), ("flush", DATA),  # Produce adds its partition
        ("append", STATE), ("flush", STATE), ("append", OFFSETS), ("flush", OFFSETS),  # and so do offsets
    ]  # fmt: skip
    assert found[8:10] == [("append", STATE), ("flush", STATE)], "the decision"
    assert sorted(found[10:12]) == both, "markers"
    assert sorted(found[12:14]) == sorted([("flush", OFFSETS), ("flush", DATA)])
    assert found[14:] == [("append", STATE)], "complete: flushed with the next record of the partition"


def test_markers_wait_until_a_decision_read_after_a_kill_is_on_disk(client, tmp_path, monkeypatch):
    one = {"transactional_id": "t", **client.init()}
    records = batch(2, 0, transactional=True, producer_id=one["producer_id"], producer_epoch=one["producer_epoch"])
    client.send(PRODUCE, 12, **produce_fields("t", 0, records))
    producer = ProducerIdAndEpoch(one["producer_id"], one["producer_epoch"])
    client.running.broker.transactions.end("t", producer, commit=True, client_version=2)
    disk = disk_after_power_cut(client.running, tmp_path / "data", tmp_path / "killed", everything)
    with steps(monkeypatch) as found, BrokerInProcess(disk, PROPERTIES) as again:
        while again.broker.transactions.prepared:
            again.tick()
    assert found.index(("flush", STATE)) < found.index(("append", DATA)) < found.index(("append", STATE))


@pytest.mark.parametrize("step", ["addition", "batch", "offsets", "end"])
def test_acknowledged_step_of_a_transaction_survives_the_loss_of_all_that_was_not_fsynced(client, tmp_path, step):
    one = {"transactional_id": "t", **client.init()}
    if step == "addition":
        v3 = {f"v3_and_below_{name}": value for name, value in one.items()}
        topics = [{"name": TOPIC, "partitions": [0]}]
        client.send(ADD_PARTITIONS, 3, **v3, v3_and_below_topics=topics, **one, topics=topics)
    else:
        data = batch(2, 0, transactional=True, producer_id=one["producer_id"], producer_epoch=one["producer_epoch"])
        client.send(PRODUCE, 12, **produce_fields("t", 0, data))
    if step in ("offsets", "end"):
        client.send(TXN_OFFSET_COMMIT, 5, **one, **commit_fields())
    if step == "end":
        client.send(END, 5, **one, committed=True)
    disk = disk_after_power_cut(client.running, tmp_path / "data", tmp_path / "cut", flushed_only)
    with BrokerInProcess(disk, PROPERTIES) as again:
        while again.broker.transactions.prepared:
            again.tick()
        log, found = again.broker.log(TOPIC, 0), again.broker.transactions.describe("t")
        if step == "end":
            assert found.state is TransactionState.COMPLETE_COMMIT
            assert log.last_stable_offset == log.log_end_offset >= 3
        else:
            wanted = {(TOPIC, 0), (OFFSETS_TOPIC, 0)} if step == "offsets" else {(TOPIC, 0)}
            assert found.state is TransactionState.ONGOING
            assert {tuple(partition) for partition in found.partitions} == wanted
            assert (log.last_stable_offset, log.log_end_offset) == (0, 0 if step == "addition" else 2)


class TestFailingDisk:
    """A flush of a coordinator's log that fails makes an error of every response that waits for it."""

    @pytest.fixture(autouse=True)
    def _only_this_log_fails(self, client, monkeypatch):
        self.failing = ""
        flush = Log.flush

        def failing(log, up_to=None):
            if log.name == self.failing:
                error = OSError(5, "the disk is gone")
                log.take_offline(error)
                raise BrokerError(ErrorCode.kafka_storage_error, str(error))
            return flush(log, up_to)

        monkeypatch.setattr(Log, "flush", failing)

    @pytest.mark.parametrize("step", ["init", "add partitions", "add offsets", "end"])
    def test_step_of_a_transaction_whose_flush_fails_is_refused(self, client, step):
        one = {"transactional_id": "t", **client.init()}
        if step == "end":
            client.send(TXN_OFFSET_COMMIT, 5, **one, **commit_fields())
        self.failing = STATE
        if step == "init":
            again = {"transaction_timeout": TIMEOUT_MS, "producer_id": -1, "producer_epoch": -1}
            answer = client.send(INIT, 5, transactional_id="t", **again)
        elif step == "add partitions":
            topics = [{"name": TOPIC, "partitions": [0]}]
            v3 = {f"v3_and_below_{name}": value for name, value in one.items()}
            answer = client.send(ADD_PARTITIONS, 3, **v3, v3_and_below_topics=topics, **one, topics=topics)
            answer = answer["results_by_topic_v3_and_below"][0]["results_by_partition"][0]
            answer["error_code"] = answer["partition_error_code"]
        elif step == "add offsets":
            answer = client.send(ADD_OFFSETS, 3, **one, group_id="g")
        else:
            answer = client.send(END, 5, **one, committed=True)
        assert answer["error_code"] == "not_coordinator"

    def test_batch_of_a_transaction_whose_addition_cannot_be_flushed_is_not_appended(self, client):
        one = client.init()
        self.failing = STATE
        fields = produce_fields("t", 0, batch(2, 0, transactional=True, **one))
        told = client.send(PRODUCE, 12, **fields)["responses"][0]["partition_responses"][0]
        assert told["error_code"] == "not_enough_replicas"
        assert client.running.broker.log(TOPIC, 0).log_end_offset == 0

    def test_commit_of_offsets_whose_flush_fails_is_refused(self, client):
        self.failing = OFFSETS
        told = client.send(OFFSET_COMMIT, 8, **commit_fields())["topics"][0]["partitions"][0]
        assert told["error_code"] == "not_coordinator"
