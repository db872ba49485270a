"""Share groups while the broker is killed and connections break: no record is lost, none is delivered after it was
accepted.

The members are threads with a socket each; tests/interop/test_share_kills.py does the same with Java consumers.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkalog_broker.testing import RunningBroker, running_broker
from kafkalog_broker.testing_support.client_requests import ask
from kafkalog_spark.format.partition_metadata import read_partition_metadata
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.share.helpers.delivery_counts import DeliveryCounts
from tests.broker.share.helpers.share_script import earliest

pytestmark = pytest.mark.end_to_end

PROPERTIES = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 2,
    "share.coordinator.snapshot.update.records.per.snapshot": 20,
    "group.share.assignment.interval.ms": 0,
    "group.share.delivery.count.limit": 10,
}
KILLS = int(os.environ.get("SHARE_KILLS", "8"))
RECORDS = int(os.environ.get("SHARE_RECORDS", "20000"))
PARTITIONS, MEMBERS, TOPIC, GROUP = 2, 3, "orders", "workers"
_LAST_S = 120.0


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker(PROPERTIES, topics={TOPIC: PARTITIONS}) as running:
        with running.connect() as connection:
            earliest(connection, GROUP)
        producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 20, "batch.num.messages": 40})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            if not number % 50_000:
                assert producer.flush(_LAST_S) == 0
        assert producer.flush(_LAST_S) == 0
        yield running


class Ledger:
    """Deliveries and confirmed acknowledgements of all members."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.given: set[tuple[int, int]] = set()
        self.accepted: set[tuple[int, int]] = set()
        self.wrong: list[str] = []
        self.most = 0
        self.lost = 0
        """Answers that may have been lost: kills and broken connections, counted before they happen."""
        self.counts = DeliveryCounts(PARTITIONS, RECORDS // PARTITIONS)

    def give(self, partition: int, first: int, last: int, count: int, life: int) -> None:
        with self._lock:
            wrong = self.counts.give(partition, first, last, count, lost=self.lost, life=life)
            if wrong is not None:
                self.wrong.append(wrong)
            found = {(partition, offset) for offset in range(first, last + 1)}
            again = found & self.accepted
            if again:
                self.wrong.append(f"{sorted(again)[:3]} were given again after they were accepted")
            self.given |= found
            self.most = max(self.most, count)

    def accept(self, partition: int, first: int, last: int) -> None:
        with self._lock:
            found = {(partition, offset) for offset in range(first, last + 1)}
            if found & self.accepted:
                self.wrong.append(f"{partition}: {first}-{last} was accepted twice")
            self.accepted |= found


class Member(threading.Thread):
    def __init__(self, broker: RunningBroker, topic_id: uuid.UUID, ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self._broker, self._topic_id, self._ledger = broker, topic_id, ledger
        self._chance = random.Random(id(self))
        self.must_end = threading.Event()
        self.breaks = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.must_end.is_set():
            try:
                host, _, port = self._broker.bootstrap.rpartition(":")
                life = self._broker.pid
                with socket.create_connection((host, int(port)), 10) as connection:
                    if life is not None and life == self._broker.pid:
                        self._live(connection, str(uuid.uuid4()), life)
            except OSError:
                time.sleep(0.02)

    def _live(self, connection: socket.socket, member: str, life: int) -> None:
        """Fetch and acknowledge until the connection breaks. The acknowledgements of the last request may have been
        accepted or not."""

        def said(key: int, version: int, **values: Any) -> Any:
            return ask(connection, request_entity(key, version, {"group_id": GROUP, "member_id": member, **values}, {}))

        def named(acks: dict[int, list[Any]]) -> list[Any]:
            return [{"topic_id": str(self._topic_id), "partitions": [
                {"partition_index": index, "acknowledgement_batches": acks.get(index, [])}
                for index in (range(PARTITIONS) if epoch == 0 else acks)]}]  # fmt: skip

        epoch, acks = 0, dict[int, list[Any]]()
        while not self.must_end.is_set():
            if self.breaks.is_set():
                self.breaks.clear()
                return
            answer = said(
                78, 2, share_session_epoch=epoch, max_wait=200, min_bytes=1, max_bytes=1 << 20, max_records=100,
                batch_size=100, share_acquire_mode=0, is_renew_ack=False, topics=named(acks), forgotten_topics_data=[],
            )  # fmt: skip
            if answer.error_code:
                return
            epoch += 1
            before, acks = acks, {}
            for topic in answer.responses:
                for one in topic.partitions:
                    index = one.partition_index
                    if not one.acknowledge_error_code:
                        for batch in before.get(index, ()):
                            self._ledger.accept(index, batch["first_offset"], batch["last_offset"])
                    for got in one.acquired_records:
                        self._ledger.give(index, got.first_offset, got.last_offset, got.delivery_count, life)
                        acks.setdefault(index, []).append(
                            {"first_offset": got.first_offset, "last_offset": got.last_offset, "acknowledge_types": [1]}
                        )


def lag(broker: RunningBroker) -> int:
    groups = [{"group_id": GROUP, "topics": [{"topic_name": TOPIC, "partitions": list(range(PARTITIONS))}]}]
    answer = broker.ask(request_entity(90, 1, {"groups": groups}, {}))
    lags = [one.lag for topic in answer.groups[0].topics for one in topic.partitions]
    return sum(lags) if len(lags) == PARTITIONS and min(lags) >= 0 else RECORDS


def test_no_record_is_lost_or_delivered_again_after_it_was_accepted(broker: RunningBroker) -> None:
    topic_id = read_partition_metadata(broker.log_dir / f"{TOPIC}-0" / "partition.metadata")
    assert topic_id is not None
    _initialize(broker, topic_id)
    ledger, chance = Ledger(), random.Random(932)
    members = [Member(broker, topic_id, ledger) for _ in range(MEMBERS)]
    for number in range(KILLS):
        wanted = len(ledger.accepted) + RECORDS // (2 * KILLS)
        end = time.monotonic() + _LAST_S
        while len(ledger.accepted) < min(wanted, RECORDS * 9 // 10) and time.monotonic() < end:
            time.sleep(0.005)
        ledger.lost += 1
        if number % 2:
            chance.choice(members).breaks.set()
        else:
            broker.kill()
            broker.start()
    end = time.monotonic() + _LAST_S
    while left := lag(broker):
        assert time.monotonic() < end, f"{left} records are left, {len(ledger.accepted)} accepted"
        time.sleep(0.05)
    for member in members:
        member.must_end.set()
    for member in members:
        member.join(_LAST_S)
        assert not member.is_alive()
    assert not ledger.wrong
    assert len(ledger.given) == RECORDS
    assert 1 <= ledger.most <= 10
    assert ledger.counts.again  # else nothing was counted but first deliveries
    assert len(ledger.accepted) > RECORDS // 2


def _initialize(broker: RunningBroker, topic_id: uuid.UUID) -> None:
    """One heartbeat makes the group, and its share partitions get a state."""
    with broker.connect() as connection:

        def said(key: int, version: int, **values: Any) -> Any:
            return ask(connection, request_entity(key, version, values, {}))

        said(10, 6, key_type=0, coordinator_keys=[GROUP])
        epoch, end = 0, time.monotonic() + _LAST_S
        while True:
            answer = said(76, 1, group_id=GROUP, member_id="m", member_epoch=epoch, rack_id=None,
                          subscribed_topic_names=None if epoch else [TOPIC])  # fmt: skip
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return
            assert time.monotonic() < end, answer
            time.sleep(0.02)
