"""Copies topic `inputs` to another in transactions, until it is killed: python copier.py CLIENT BOOTSTRAP NAME.

CLIENT: librdkafka (a static member of group `copiers`, beside others) or aiokafka (all partitions, group `loner`); the
copies go to the topic CLIENT. NAME is its transactional.id and its group.instance.id.

Prints how many records it copied after each commit. Any error of Kafka ends it with RESTART: it knows nothing but what
is committed, and whoever watches over it starts it again. Ends too when its stdin does, with who started it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import NoReturn

INPUTS, PARTITIONS = "inputs", 4
RESTART = 3
BATCH = 20  # records of a transaction at most
SECONDS = 30.0  # for one call, whose process is killed long before


def copy_with_librdkafka(bootstrap: str, name: str) -> NoReturn:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    quick = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "copiers", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "isolation.level": "read_committed",
            # who comes back takes the place it had: nobody waits for a session to end
            "group.instance.id": name, "session.timeout.ms": 6000, **quick,
        }
    )  # fmt: skip
    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0,
            "transaction.timeout.ms": 5000, "message.timeout.ms": 5000, **quick,
        }
    )  # fmt: skip
    try:
        producer.init_transactions(SECONDS)
        consumer.subscribe([INPUTS])
        while True:
            messages = consumer.consume(BATCH, 0.05)
            copied = [message for message in messages if not message.error()]
            if not copied:
                continue
            producer.begin_transaction()
            for message in copied:
                producer.produce("librdkafka", message.value(), partition=message.partition())
            read = {message.partition(): message.offset() + 1 for message in copied}
            producer.send_offsets_to_transaction(
                [TopicPartition(INPUTS, partition, offset) for partition, offset in read.items()],
                consumer.consumer_group_metadata(),
                SECONDS,
            )
            producer.commit_transaction(SECONDS)
            print(len(copied), flush=True)
    except KafkaException as error:
        _end(error)


async def copy_with_aiokafka(bootstrap: str, name: str) -> NoReturn:
    """Its commits carry no generation of the group (KIP-447), so that nothing but the transactional.id fences a copier
    off: the partitions must be its own. One that comes back waits in `start` until the transaction of the one before
    has ended, and reads what is committed after that.

    auto_offset_reset="none", and whoever starts the first one commits offset 0 before: aiokafka 0.14 does not look at
    the error of an OffsetFetch response as a whole (version 2 on), takes the answer of a coordinator that is still
    loading for a group without offsets, and would begin anew at the beginning."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.errors import KafkaError

    partitions = [TopicPartition(INPUTS, number) for number in range(PARTITIONS)]
    quick = {"bootstrap_servers": bootstrap, "retry_backoff_ms": 20, "request_timeout_ms": 5000}
    try:
        producer = AIOKafkaProducer(transactional_id=name, transaction_timeout_ms=5000, **quick)
        await producer.start()
        consumer = AIOKafkaConsumer(
            group_id="loner", enable_auto_commit=False, isolation_level="read_committed",
            auto_offset_reset="none", **quick,
        )  # fmt: skip
        await consumer.start()
        consumer.assign(partitions)
        while True:
            found = await consumer.getmany(timeout_ms=50, max_records=BATCH)
            if not found:
                continue
            async with producer.transaction():
                for partition, records in found.items():
                    for record in records:
                        await producer.send("aiokafka", record.value, partition=partition.partition)
                read = {partition: records[-1].offset + 1 for partition, records in found.items()}
                await producer.send_offsets_to_transaction(read, "loner")
            print(sum(map(len, found.values())), flush=True)
    except (KafkaError, OSError) as error:
        _end(error)


def _end(error: Exception) -> NoReturn:
    """End the process at once, without closing the clients: their unsent records must not matter."""
    print(repr(error), file=sys.stderr, flush=True)
    os._exit(RESTART)


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    client, *arguments = sys.argv[1:]
    if client == "librdkafka":
        copy_with_librdkafka(*arguments)
    asyncio.run(copy_with_aiokafka(*arguments))
