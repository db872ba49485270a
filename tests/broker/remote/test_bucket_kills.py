"""A broker process killed repeatedly in the middle of requests to a failing bucket.

No acknowledged record is lost or duplicated, and no orphaned object remains."""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.cli.check import main as check
from kafkalog_spark.log.tiered.remote_log_events import RemoteSegmentState
from tests.broker.remote.helpers.tiered_broker import configs, consumed, local_logs, s3_properties, wait_until
from tests.log.repair.test_from_tier import state_in
from tests.store.buckets import s3_options
from tests.store.fault_proxy import Fault, FaultKind, FaultProxy, Plan, Request, at_random, no_faults
from tests.store.s3_server import S3Server, available

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

PROPERTIES = {
    "remote.log.storage.system.enable": "true", "rlmm.config.remote.log.metadata.topic.num.partitions": 3,
    "remote.log.manager.task.interval.ms": 20, "remote.log.manager.task.retry.backoff.ms": 20,
    "remote.log.manager.task.retry.backoff.max.ms": 20, "log.retention.check.interval.ms": 20,
    "log.initial.task.delay.ms": 20, "rsm.config.storage.s3.api.call.timeout": 1000,
}  # fmt: skip


class Work:
    """Produces, consumes from the beginning and deletes until the broker dies. acknowledged: values by offset. read:
    what a consumer was given. asked_start: the largest log start offset that somebody asked for."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.read: set[tuple[int, bytes]] = set()
        self.asked_start = self.number = 0

    def until_it_dies(self, broker: RunningBroker, dice: random.Random) -> None:
        reader = threading.Thread(target=self._consume, args=(broker,))
        reader.start()
        settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        producer = Producer({**settings, "socket.timeout.ms": 5000})
        deletes_at = dice.randrange(300)
        for sent in range(1 << 20):
            if broker.pid is None:
                break
            value = b"%01000d" % self.number
            self.number += 1
            producer.produce("orders", value, partition=0, on_delivery=self._delivered)
            producer.flush(0.5)
            if sent == deletes_at:
                self.asked_start = max(self.asked_start, max(self.acknowledged, default=0) // 2)
                with suppress(KafkaException):
                    begins = [TopicPartition("orders", 0, self.asked_start)]
                    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
                    admin.delete_records(begins, request_timeout=5)[begins[0]].result()
        producer.purge()
        producer.flush(0)
        reader.join()
        broker.kill()  # its pipes

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged[message.offset()] = message.value()  # type: ignore[attr-defined]

    def _consume(self, broker: RunningBroker) -> None:
        settings = {"group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
        while broker.pid is not None:
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
            consumer.assign([TopicPartition("orders", 0, 0)])
            for _ in range(20):
                found = consumer.consume(500, 0.05) if broker.pid is not None else []
                self.read |= {(one.offset(), one.value()) for one in found if one.error() is None}
            consumer.close()


def killing(pid: int, at: int, faults: Plan) -> Plan:
    """Kills the process at its request of that number, before that is passed on."""

    def plan(request: Request) -> Fault | None:
        if request.number == at:
            os.kill(pid, signal.SIGKILL)
        return faults(request)

    return plan


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_kill_during_requests_to_a_failing_bucket_loses_no_record_and_leaves_no_object(
    kills: int, tmp_path: Path
) -> None:
    dice, work, bucket = random.Random(kills), Work(), tmp_path / "buckets" / "tier"
    with S3Server(bucket.parent) as server, FaultProxy(server.endpoint) as proxy:
        server.make_bucket("tier")
        broker = RunningBroker(tmp_path / "data", PROPERTIES | s3_properties(server, proxy.endpoint))
        faults = 0
        for number in range(kills):
            proxy.plan = no_faults
            broker.start()
            if not number:
                broker.create_topic("orders", 1, configs())
            assert broker.pid is not None
            proxy.forget()
            some = at_random(number, 0.15, 1000, kinds=list(FaultKind))
            proxy.plan = killing(broker.pid, dice.randrange(1, 60), some)
            work.until_it_dies(broker, dice)
            faults += sum(seen.fault is not None for seen in proxy.seen)
        proxy.plan = no_faults
        broker.start()

        def begins() -> int:
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
            begin, _ = consumer.get_watermark_offsets(TopicPartition("orders", 0), 30)
            consumer.close()
            return int(begin)

        start, end = begins(), max(work.acknowledged) + 1
        assert start <= work.asked_start
        found = dict(consumed(broker.bootstrap, "orders", start, end))
        assert list(found) == list(range(start, max(found) + 1))
        assert len(set(found.values())) == len(found)
        assert {offset: found[offset] for offset in work.acknowledged if offset >= start} == {
            offset: value for offset, value in work.acknowledged.items() if offset >= start
        }
        assert {(offset, value) for offset, value in work.read if start <= offset < end} <= set(found.items())
        wait_until(lambda: len(local_logs(broker, "orders")) == 1, broker.log()[-3000:])

        def left_over() -> set[str]:
            segments = state_in(tmp_path / "data", 3).segments.values()
            finished = {one.segment.name for one in segments if one.state is RemoteSegmentState.COPY_SEGMENT_FINISHED}
            objects = [path for path in bucket.rglob("*") if path.is_file() and path.name[0] != "."]
            return {path.name[:43] for path in objects} ^ finished

        wait_until(lambda: not left_over(), f"objects are left over: {broker.log()[-3000:]}")
        broker.stop()
        assert faults > kills
        options = {**s3_options(server), "tiered.root": "s3://tier"}
        given = [part for name, value in options.items() for part in ("--option", f"{name}={value}")]
        assert check([*given, str(tmp_path / "data")]) == 0
