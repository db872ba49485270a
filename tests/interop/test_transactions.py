"""Transactions: Kafka's own producer and tools with our broker, and a directory that goes from Kafka to us and back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalog_broker.testing import RunningBroker, running_broker
from tests.interop.consume import consume
from tests.interop.real_kafka import RealKafka, available, run_tool

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

WAIT = 60
INTERNAL = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({"group.initial.rebalance.delay.ms": 0, **INTERNAL}) as running:
        yield running


def producer(bootstrap: str, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id,
                     "transaction.timeout.ms": 900_000})  # fmt: skip
    made.init_transactions(WAIT)
    return made


def transfer(bootstrap: str, transactional_id: str, values: range, how: str) -> None:
    """Records in both partitions of `moves` and an offset, `how`: commit, abort or leave open."""
    one = producer(bootstrap, transactional_id)
    one.begin_transaction()
    for value in values:
        one.produce("moves", b"%s %d" % (how.encode(), value), partition=value % 2)
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group of {how}"})
    one.send_offsets_to_transaction([TopicPartition("moves", 0, values.stop)], group.consumer_group_metadata(), WAIT)
    one.flush(WAIT)
    if how == "commit":
        one.commit_transaction(WAIT)
    elif how == "abort":
        one.abort_transaction(WAIT)
    group.close()


def perf(bootstrap: str, topic: str, transactional_id: str, records: int) -> str:
    """Kafka's ProducerPerformance: the Java client, which speaks the second version of transactions."""
    return run_tool(
        "ProducerPerformance", "--topic", topic, "--num-records", records, "--record-size", 100, "--throughput", -1,
        "--transactional-id", transactional_id, "--transaction-duration-ms", 20,
        "--producer-props", f"bootstrap.servers={bootstrap}", "linger.ms=0", "batch.size=2000",
    )  # fmt: skip


def values(bootstrap: str, topic: str, level: str = "read_committed") -> list[tuple[int, int, bytes]]:
    return [(row["partition"], row["offset"], row["value"]) for row in consume(bootstrap, topic, level)]


def test_transactional_producer_and_tools_of_kafka_work(broker: RunningBroker) -> None:
    broker.create_topic("perf", 2)
    broker.create_topic("moves", 2)
    told = perf(broker.bootstrap, "perf", "performer", 20_000)
    assert "20000 records sent" in told
    assert len(values(broker.bootstrap, "perf")) == 20_000
    transfer(broker.bootstrap, "moving", range(10), "commit")
    transfer(broker.bootstrap, "staying", range(10, 20), "leave open")

    def tool(*arguments: object) -> list[list[str]]:
        lines = run_tool("TransactionsCommand", "--bootstrap-server", broker.bootstrap, *arguments).splitlines()
        return [line.split() for line in lines if line.strip()]

    listed = {row[0]: row[-1] for row in tool("list")[1:]}
    assert listed == {"performer": "CompleteCommit", "moving": "CompleteCommit", "staying": "Ongoing"}
    assert [row[0] for row in tool("list", "--duration-filter", 0, "--transactional-id-pattern", "st.*")[1:]] == [
        "staying"
    ]
    (head, described) = tool("describe", "--transactional-id", "staying")
    row = dict(zip(head, described, strict=False))
    assert (row["TransactionState"], row["TransactionTimeoutMs"]) == ("Ongoing", "900000")
    assert set(described[-1].split(",")) == {"moves-0", "moves-1", "__consumer_offsets-0"}
    (head, *producers) = tool("describe-producers", "--topic", "moves", "--partition", 0)
    open_since = {row[head.index("CurrentTransactionStartOffset")] for row in producers}
    assert open_since == {"None", "6"}
    assert len(tool("find-hanging", "--broker-id", 1)) == 1  # the head of an empty table


def test_directory_with_transactions_moves_from_kafka_to_our_broker_and_back(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path / "kafka", short_lived=True)
    with kafka:
        for topic in ("moves", "perf"):
            kafka.create_topic(topic, 2)
        transfer(kafka.bootstrap, "k-commit", range(100), "commit")
        transfer(kafka.bootstrap, "k-abort", range(100, 200), "abort")
        perf(kafka.bootstrap, "perf", "performer", 2_000)
        transfer(kafka.bootstrap, "left open by Kafka", range(200, 300), "leave open")
    ours = RunningBroker(kafka.data_dir, {"node.id": 1, "log.segment.bytes": 1 << 20, **INTERNAL})
    ours.start()
    assert [value for _, _, value in values(ours.bootstrap, "moves")] == [
        b"commit %d" % n for n in [*range(0, 100, 2), *range(1, 100, 2)]
    ]
    transfer(ours.bootstrap, "k-commit", range(300, 400), "commit")
    transfer(ours.bootstrap, "left open by Kafka", range(400, 500), "commit")  # aborts what was open
    perf(ours.bootstrap, "perf", "performer", 2_000)
    ours.kill()
    ours.start()
    perf(ours.bootstrap, "perf", "performer", 2_000)
    transfer(ours.bootstrap, "o-abort", range(500, 600), "abort")
    transfer(ours.bootstrap, "left open by us", range(600, 700), "leave open")
    transfer(ours.bootstrap, "o-commit", range(700, 800), "commit")  # behind the open one: not to be seen
    before = {(topic, level): values(ours.bootstrap, topic, level)
              for topic in ("moves", "perf") for level in ("read_committed", "read_uncommitted")}  # fmt: skip
    ours.stop()
    assert len(before["perf", "read_committed"]) == 6_000
    assert {value.split()[0] for _, _, value in before["moves", "read_committed"]} == {b"commit"}
    check_files(kafka.data_dir)
    kafka.start()
    try:
        assert {key: values(kafka.bootstrap, *key) for key in before} == before
        told = kafka.tool("TransactionsCommand", "--bootstrap-server", kafka.bootstrap, "list")
        assert [line for line in told.splitlines() if "Ongoing" in line and line.startswith("left open by us")], told
        assert told.count("Ongoing") == 1
        producer(kafka.bootstrap, "left open by us")  # aborts what was open
        seen = {value for _, _, value in values(kafka.bootstrap, "moves")}
        assert {b"commit %d" % n for n in range(700, 800)} <= seen
        assert not any(value.startswith((b"abort", b"leave")) for value in seen)
        group = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "group of commit"})
        assert group.committed([TopicPartition("moves", 0)], WAIT)[0].offset == 800
        group.close()
    finally:
        kafka.stop()


def check_files(data_dir: Path) -> None:
    """DumpLogSegments has nothing to say of any file, and reads the records of the coordinators."""

    def dump(pattern: str, *options: str) -> str:
        files = [path for path in sorted(data_dir.glob(pattern)) if path.stat().st_size]
        assert files, pattern
        return run_tool("DumpLogSegments", *options, "--files", ",".join(map(str, files)))

    for topic in ("moves", "perf", "__transaction_state", "__consumer_offsets"):
        told = dump(f"{topic}-*/*.log", "--deep-iteration")
        assert "isvalid: false" not in told
        assert "isvalid: true" in told
    markers = dump("moves-*/*.log", "--deep-iteration", "--print-data-log")
    assert "endTxnMarker: COMMIT coordinatorEpoch: " in markers
    assert "endTxnMarker: ABORT coordinatorEpoch: " in markers
    aborted = dump("moves-*/*.txnindex")
    assert aborted.count("producerId: ") == 2 * 3, aborted  # of Kafka's abort, of what it left open, of our abort
    snapshots = dump("moves-*/*.snapshot")
    assert "currentTxnFirstOffset: " in snapshots
    state = dump("__transaction_state-*/*.log", "--transaction-log-decoder")
    assert re.search(r"transactionalId.{0,5}left open by us", state), state[-2000:]
    assert "failed to decode" not in state.lower()
    offsets = dump("__consumer_offsets-*/*.log", "--offsets-decoder")
    assert "group of commit" in offsets
