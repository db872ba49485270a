"""Read a topic with a consumer group: python examples/consumer_group.py [BOOTSTRAP] [TOPIC] [GROUP]

Stops when no record has arrived for some seconds. Run it in two windows to see the members share the partitions.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer

QUIET_SECONDS = 5.0


def read(bootstrap: str, topic: str, group: str, quiet_seconds: float = QUIET_SECONDS) -> dict[int, int]:
    """Consume the topic, commit the offsets, and return the number of records by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    consumer.subscribe([topic])
    counts: dict[int, int] = {}
    try:
        while messages := consumer.consume(1000, quiet_seconds):
            for message in messages:
                if message.error() is not None:
                    raise SystemExit(str(message.error()))
                counts[message.partition()] = counts.get(message.partition(), 0) + 1
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return counts


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    counts = read(arguments.get(1, "127.0.0.1:9092"), arguments.get(2, "orders"), arguments.get(3, "readers"))
    for partition, records in sorted(counts.items()):
        print(f"partition {partition}: {records} records")
    print(f"{sum(counts.values())} records in all")
