"""Send records to a broker: python examples/producer.py [BOOTSTRAP] [TOPIC] [RECORDS]"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import KafkaError, Producer


def send(bootstrap: str, topic: str, records: int) -> int:
    """Send orders as JSON with the customer as key. Return the number of acknowledged records."""

    def failed(error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # otherwise librdkafka retries for five minutes
            raise SystemExit(f"no broker at {bootstrap}; start one: kafkalog-broker --log-dir ./data")

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "error_cb": failed,
            "log_level": 0,
        }
    )
    acknowledged = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal acknowledged
        if error is not None:
            raise SystemExit(f"a record was refused: {error}")
        acknowledged += 1

    for number in range(records):
        order = {"order": number, "customer": number % 100, "amount": number * 7 % 1000, "at": time.time()}
        producer.produce(topic, json.dumps(order).encode(), key=b"%d" % (number % 100), on_delivery=delivered)
        producer.poll(0)
    producer.flush()
    return acknowledged


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    count = send(arguments.get(1, "127.0.0.1:9092"), arguments.get(2, "orders"), int(arguments.get(3, "1000")))
    print(f"{count} records acknowledged")
