"""Copy a topic to another, exactly once: python examples/exactly_once_loop.py [BOOTSTRAP] [FROM] [TO]

The output records and the consumed offsets are committed in one transaction, so a crash cannot separate them. The
program may be stopped at any time, also with kill -9, and started again: consumers with isolation.level=read_committed
see every record exactly once. It stops when no record has arrived for some seconds.

Run it under a supervisor that restarts it (systemd, Kubernetes, a shell loop): it exits if it is fenced, and if a
transaction takes longer than STALL_SECONDS. The second case is necessary because send_offsets_to_transaction of
librdkafka can ignore its timeout if the broker is gone (confluentinc/librdkafka#5456 and #5511).
"""

from __future__ import annotations

import faulthandler
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer

QUIET_SECONDS = 5.0
TIMEOUT_S = 30.0  # of each call of the producer
STALL_SECONDS = 5 * TIMEOUT_S  # longer than the timeouts of all calls of a transaction together


def transformed(message: Message) -> bytes:
    """Return the value of the output record."""
    return (message.value() or b"").upper()


def copy(bootstrap: str, source: str, target: str, quiet_seconds: float = QUIET_SECONDS) -> int:
    """Copy records until no more arrive for `quiet_seconds`. Return the number of committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{source} to {target}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # offsets are committed in the transaction
            "isolation.level": "read_committed",
        }
    )
    # Each process needs its own transactional ID. A new producer fences the earlier one with the same ID.
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{source} to {target} 1"})
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([source])
    copied = 0
    try:
        while messages := consumer.consume(500, quiet_seconds):
            faulthandler.dump_traceback_later(STALL_SECONDS, exit=True)
            producer.begin_transaction()
            try:
                for message in messages:
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    producer.produce(target, transformed(message), message.key())
                producer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
                )
                producer.commit_transaction(TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise  # fenced or fatal: a new process resumes at the committed offsets
                producer.abort_transaction(TIMEOUT_S)
                for partition in consumer.committed(consumer.assignment(), TIMEOUT_S):
                    consumer.seek(partition)
            else:
                copied += len(messages)
            faulthandler.cancel_dump_traceback_later()
    finally:
        consumer.close()
    return copied


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    records = copy(arguments.get(1, "127.0.0.1:9092"), arguments.get(2, "orders"), arguments.get(3, "shouted-orders"))
    print(f"{records} records copied")
