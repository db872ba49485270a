"""Producer that records acknowledged records, for tests that read while it sends."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Message, Producer

from kafkalog_broker.testing import RunningBroker

TOPIC, PARTITIONS = "load", 3


class Load(threading.Thread):
    """An idempotent producer of numbers, `rate` a second, which knows those that were acknowledged."""

    def __init__(self, broker: RunningBroker, rate: int) -> None:
        super().__init__(daemon=True)
        self._rate = rate
        self.stop = threading.Event()
        self.acknowledged: set[int] = set()
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.num.messages": 100,  # also after an outage no batch is larger than a segment
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,  # the broker may go away meanwhile, and come back
            }
        )

    def run(self) -> None:
        number, began = 0, time.monotonic()
        while not self.stop.is_set():
            while number < (time.monotonic() - began) * self._rate and len(self._producer) < 20_000:
                value = b"%d" % number
                self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0.01)
        if left := self._producer.flush(120):
            self.failed.append(f"{left} records were never answered")

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.add(int(message.value() or b""))
