"""Clients, topics, groups and transactional ids that come and go: memory of a broker that serves them for an hour.

    python -m benchmarks.churn [MINUTES]

Each second some 20 connections, 4 topics (half of them deleted, with their records, in the same second), 3 consumer
groups of each protocol and 2 transactional ids, all under names used once. What nobody deletes expires within a minute.
A broker that keeps nothing of what is gone has as much memory after the first ten minutes as at the end.
"""

from __future__ import annotations

import itertools
import socket
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.broker_sides import resident_mb
from benchmarks.report import Report
from kafkalog_broker.testing import RunningBroker

MINUTES = 60
PROPERTIES = {
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
    "offsets.retention.check.interval.ms": 10_000,
    "offsets.retention.minutes": 1,
    "offsets.topic.num.partitions": 4,
    "producer.id.expiration.check.interval.ms": 10_000,
    "producer.id.expiration.ms": 60_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 5_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 10_000,
    "transaction.state.log.num.partitions": 4,
    "transactional.id.expiration.ms": 60_000,
}


def connections(broker: RunningBroker, count: int = 20) -> None:
    """Each of a client id of its own, half of them closed before their answer is read."""
    from kio.schema.api_versions.v3.request import ApiVersionsRequest

    from kafkalog_broker.protocol.client_messages import encode_client_request

    for number in range(count):
        name = f"client-{uuid.uuid4()}"
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        frame = encode_client_request(request, name)
        with socket.create_connection((broker.host, broker.port), 30) as connection:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            if number % 2:
                connection.recv(4)


def topics(broker: RunningBroker, left: deque[list[str]]) -> None:
    """Four topics with records of an idempotent producer; two are deleted at once, two by the next call."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {"bootstrap.servers": broker.bootstrap, "client.id": f"topics-{uuid.uuid4()}"}
    admin, names = AdminClient(settings), [f"churn-{uuid.uuid4()}" for _ in range(4)]
    for made in admin.create_topics([NewTopic(name, 2, config={"retention.ms": "60000"}) for name in names]).values():
        made.result(60)
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 0})
    for name in names:
        producer.produce(name, b"v" * 100, key=b"k")
    producer.flush(60)
    left.append(names[2:])
    gone = names[:2] + (left.popleft() if len(left) > 1 else [])
    for deleted in admin.delete_topics(gone).values():
        deleted.result(60)


def groups(broker: RunningBroker, protocol: str) -> None:
    """Three groups that consume and commit; one is deleted, the others expire."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient

    names = [f"{protocol}-{uuid.uuid4()}" for _ in range(3)]
    for name in names:
        consumer = Consumer({
            "bootstrap.servers": broker.bootstrap, "client.id": name, "group.id": name, "group.protocol": protocol,
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
        })  # fmt: skip
        consumer.subscribe(["kept"])
        end = time.monotonic() + 10
        while not consumer.assignment() and time.monotonic() < end:
            consumer.poll(0.1)
        consumer.commit(offsets=[TopicPartition("kept", 0, 1)], asynchronous=False)
        consumer.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_consumer_groups(names[:1])[names[0]].result(30)


def transactions(broker: RunningBroker) -> None:
    """Two transactional ids: one commits, the other leaves its transaction to the coordinator."""
    from confluent_kafka import Producer

    for commits in (True, False):
        producer = Producer({
            "bootstrap.servers": broker.bootstrap, "transactional.id": f"churn-{uuid.uuid4()}",
            "transaction.timeout.ms": 10_000, "linger.ms": 0,
        })  # fmt: skip
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("kept", b"v" * 100)
        producer.flush(30)
        if commits:
            producer.commit_transaction(30)


def main(report: Report, minutes: float = MINUTES) -> None:
    """One line for every five minutes."""
    with TemporaryDirectory(prefix="kafkalog-churn-") as home, RunningBroker(Path(home) / "data", PROPERTIES) as broker:
        broker.create_topic("kept", 1, {"retention.ms": 60_000, "segment.ms": 10_000})
        ended = threading.Event()
        done: dict[str, int] = {}
        failed: list[Exception] = []

        def again(name: str, run: Callable[..., None], *arguments: object) -> None:
            try:
                for count in itertools.count(1):
                    began = time.monotonic()
                    run(broker, *arguments)
                    done[name] = count
                    if ended.wait(max(0.0, 1 - (time.monotonic() - began))):
                        return
            except Exception as error:  # noqa: BLE001 - raised by whoever measures
                failed.append(error)

        jobs: list[tuple[Any, ...]] = [
            ("connections", connections),
            ("topics", topics, deque()),
            ("classic", groups, "classic"),
            ("consumer", groups, "consumer"),
            ("transactions", transactions),
        ]
        threads = [threading.Thread(target=again, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        try:
            while time.monotonic() - began < minutes * 60 and not failed:
                ended.wait(min(300.0, minutes * 60))
                report.add(
                    "churn", f"after {(time.monotonic() - began) / 60:.0f} minutes",
                    resident_MB=resident_mb(broker.pid),
                    connections=20 * done.get("connections", 0), topics=4 * done.get("topics", 0),
                    groups=3 * (done.get("classic", 0) + done.get("consumer", 0)),
                    transactional_ids=2 * done.get("transactions", 0),
                )  # fmt: skip
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        if failed:
            raise failed[0]


if __name__ == "__main__":
    main(Report(), float(sys.argv[1]) if len(sys.argv) > 1 else MINUTES)
