"""Java's KafkaShareConsumer 4.3 as members of share groups."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkalog_broker.testing import RunningBroker, running_broker
from tests.interop.real_kafka import available, run_tool
from tests.interop.share_workers import Said, ShareWorker, compiled

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

PROPERTIES = {"offsets.topic.num.partitions": 1, "share.coordinator.state.topic.num.partitions": 2}
TOPIC, GROUP = "orders", "workers"
_SECONDS = 180.0


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("share-worker"))


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker(PROPERTIES, topics={TOPIC: 3}) as running:
        earliest(running.bootstrap)
        yield running


def earliest(bootstrap: str) -> None:
    run_tool(
        "ConfigCommand", "--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups", "--entity-name", GROUP,
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip


def produce(bootstrap: str, records: int, partitions: int = 3) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(records):
        producer.produce(TOPIC, b"%d" % number, partition=number % partitions)
        if not number % 50_000:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0


def offsets(said: list[Said], *kinds: str) -> Counter[tuple[int, int]]:
    return Counter(
        (one.partition, offset) for one in said if one.what in kinds for offset in range(one.first, one.last + 1)
    )


def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    end = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.05)


def all_said(*workers: ShareWorker) -> list[Said]:
    return sorted((one for worker in workers for one in worker.said()), key=lambda one: one.time)


@pytest.mark.parametrize("mode", ["accept", "implicit", "renew"])
def test_two_members_process_each_record_once(broker: RunningBroker, classes: Path, mode: str):
    produce(broker.bootstrap, 3000)
    times = 2 if mode == "renew" else 1  # a renewed record is given again by the next poll
    with (
        ShareWorker(classes, broker.bootstrap, GROUP, TOPIC, mode) as one,
        ShareWorker(classes, broker.bootstrap, GROUP, TOPIC, mode) as two,
    ):
        until(
            lambda: offsets(all_said(one, two), "G").total() >= 3000 * times,
            lambda: (one.lines[-3:], two.lines[-3:]),
        )
    given = offsets(all_said(one, two), "G")
    assert len(given) == 3000
    assert set(given.values()) == {times}
    assert {one.delivery_count for one in all_said(one, two) if one.what == "G"} == {1}
    assert one.errors == two.errors == []
    with ShareWorker(classes, broker.bootstrap, GROUP, TOPIC) as third:
        produce(broker.bootstrap, 3)
        until(lambda: len(offsets(all_said(third), "A")) >= 3, lambda: third.lines[-3:])
    assert {offset for _, offset in offsets(all_said(third), "G")} == {1000}


def test_released_records_are_redelivered_and_rejected_ones_are_not(broker: RunningBroker, classes: Path):
    produce(broker.bootstrap, 2100)
    with ShareWorker(classes, broker.bootstrap, GROUP, TOPIC, "mixed") as worker:
        until(lambda: len(offsets(all_said(worker), "A", "R")) == 2100, lambda: worker.lines[-3:])
    said = all_said(worker)
    for (_, offset), times in offsets(said, "G").items():
        assert times == (2 if offset % 3 == 0 and offset % 7 else 1)
    assert set(offsets(said, "A", "R").values()) == {1}
    counts = {one.delivery_count for one in said if one.what == "G"}
    assert counts == {1, 2}


def test_records_of_a_killed_member_are_delivered_to_another(broker: RunningBroker, classes: Path):
    with ShareWorker(classes, broker.bootstrap, GROUP, TOPIC, "hold") as one:
        until(one.is_ready.is_set, lambda: one.lines)
        produce(broker.bootstrap, 300)
        until(lambda: len(offsets(all_said(one), "G")) > 0, lambda: one.lines)
        one.kill()
    held = offsets(all_said(one), "G").keys()
    with ShareWorker(classes, broker.bootstrap, GROUP, TOPIC) as two:
        until(lambda: len(offsets(all_said(two), "A")) == 300, lambda: two.lines[-3:])
    given = {(one.partition, offset): one.delivery_count for one in all_said(two) if one.what == "G"
             for offset in range(one.first, one.last + 1)}  # fmt: skip
    assert {given[place] for place in held} == {2}


def test_members_continue_after_a_kill_of_the_broker(broker: RunningBroker, classes: Path):
    produce(broker.bootstrap, 300)
    with ShareWorker(classes, broker.bootstrap, GROUP, TOPIC) as worker:
        until(lambda: len(offsets(all_said(worker), "A")) == 300, lambda: worker.lines[-3:])
        broker.kill()
        broker.start()
        produce(broker.bootstrap, 300)
        until(lambda: len(offsets(all_said(worker), "A")) == 600, lambda: worker.lines[-3:])
    assert set(offsets(all_said(worker), "A").values()) == {1}
