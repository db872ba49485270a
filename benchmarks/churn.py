"""Memory of a broker during an hour of short-lived clients, topics, groups and transactional IDs.

    python -m benchmarks.churn [MINUTES]

Each second there are 20 new connections, 4 topics (two of them deleted in the same second, with their records), 3
consumer groups of each protocol and 2 transactional IDs, all with new names. Objects that are not deleted expire within
a minute. A broker without leaks has the same memory after ten minutes and at the end.
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
    """Open connections with a client ID of their own, and close half of them before the response is read."""
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


def topics(broker: RunningBroker, remaining: deque[list[str]]) -> None:
    """Write to four new topics with an idempotent producer. Delete two of them now, and two in a later call.

    Args:
        remaining: Topics that a later call deletes.
    """
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {"bootstrap.servers": broker.bootstrap, "client.id": f"topics-{uuid.uuid4()}"}
    admin, names = AdminClient(settings), [f"churn-{uuid.uuid4()}" for _ in range(4)]
    new = [NewTopic(name, 2, config={"retention.ms": "60000"}) for name in names]
    for creation in admin.create_topics(new).values():
        creation.result(60)
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 0})
    for name in names:
        producer.produce(name, b"v" * 100, key=b"k")
    producer.flush(60)
    remaining.append(names[2:])
    deleted = names[:2] + (remaining.popleft() if len(remaining) > 1 else [])
    for deletion in admin.delete_topics(deleted).values():
        deletion.result(60)


def groups(broker: RunningBroker, protocol: str) -> None:
    """Consume and commit with three new groups. One is deleted, the others expire."""
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
    """Begin transactions with two new transactional IDs. One is committed, the coordinator aborts the other."""
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
    """Report the memory every five minutes."""
    with TemporaryDirectory(prefix="kafkalog-churn-") as home, RunningBroker(Path(home) / "data", PROPERTIES) as broker:
        broker.create_topic("kept", 1, {"retention.ms": 60_000, "segment.ms": 10_000})
        ended = threading.Event()
        done: dict[str, int] = {}
        failed: list[Exception] = []

        def repeat(name: str, run: Callable[..., None], *arguments: object) -> None:
            try:
                for count in itertools.count(1):
                    began = time.monotonic()
                    run(broker, *arguments)
                    done[name] = count
                    if ended.wait(max(0.0, 1 - (time.monotonic() - began))):
                        return
            except Exception as error:  # noqa: BLE001 - raised again in the main thread
                failed.append(error)

        jobs: list[tuple[Any, ...]] = [
            ("connections", connections),
            ("topics", topics, deque()),
            ("classic", groups, "classic"),
            ("consumer", groups, "consumer"),
            ("transactions", transactions),
        ]
        threads = [threading.Thread(target=repeat, args=job) for job in jobs]
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
