"""Copy a topic to another, exactly once: python examples/exactly_once_loop.py [BOOTSTRAP] [FROM] [TO]

Consume, transform, produce: the records and how far they have been read go into one transaction, so that both count or
neither does, whatever crashes. Stop it at any moment (also with kill -9) and start it again: no record is lost, none is
there twice for consumers with isolation.level=read_committed. Stops when nothing has come for some seconds.

Let something watch over it that starts it again (systemd, Kubernetes, a shell loop): it ends when it is fenced, and
when a transaction takes too long. The latter is for librdkafka, whose send_offsets_to_transaction can wait forever for
a broker that went away, whatever its timeout (confluentinc/librdkafka#5456 and #5511).
"""

from __future__ import annotations

import faulthandler
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer

QUIET_SECONDS = 5.0
SECONDS = 30.0
STALL_SECONDS = 5 * SECONDS  # more than all calls of a transaction may take that keep to their timeouts


def transformed(message: Message) -> bytes:
    """What becomes of a record's value."""
    return (message.value() or b"").upper()


def copy(bootstrap: str, source: str, target: str, quiet_seconds: float = QUIET_SECONDS) -> int:
    """Records copied and committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{source} to {target}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # offsets are committed in the transaction
            "isolation.level": "read_committed",
        }
    )
    # One id for each process that runs at the same time; who comes back under an id fences off who had it before.
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{source} to {target} 1"})
    producer.init_transactions(SECONDS)
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
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS
                )
                producer.commit_transaction(SECONDS)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise  # fenced, or lost: a process that begins anew goes on from the committed offsets
                producer.abort_transaction(SECONDS)
                for partition in consumer.committed(consumer.assignment(), SECONDS):
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
