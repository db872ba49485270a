"""Transactional producer in a process of its own: python worker.py BOOTSTRAP TRANSACTIONAL_ID PRODUCER PARTITION SEED.

Each transaction appends records to several partitions, and some of them commit offsets of PARTITION, which the worker
consumes in the group TRANSACTIONAL_ID. It prints its ledger, one JSON object a line: an intent before the call, the
result after it. The process ends with RESTART after an error that ends the producer, and with 0 at the end of stdin.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

TOPIC, PARTITIONS = "histories", 4
RESTART = 3
SECONDS = 30.0  # for one call; a process that stands still is killed long before
TIMEOUT_MS = 10_000
CLIENT = {
    "retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0,
    # A client that bootstraps anew forgets its coordinator, and librdkafka 2.16 often does not find it again.
    "metadata.recovery.strategy": "none",
}  # fmt: skip
ABORTS, OFFSETS = 0.25, 0.5  # shares of the transactions
MOST_CONSUMED = 20  # records for one commit of offsets


def note(**line: object) -> None:
    """Print a line at once: a kill -9 must not lose it."""
    os.write(1, json.dumps(line).encode() + b"\n")


class Worker:
    def __init__(self, bootstrap: str, transactional_id: str, name: str, partition: int, seed: int) -> None:
        self._name, self._partition = name, partition
        self._chance = random.Random(seed)
        self._number = self._transaction = 0
        self._is_registered = False  # whether the transaction coordinator has acknowledged a part of the transaction
        self._has_timed_out = False
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 1,
                "transaction.timeout.ms": TIMEOUT_MS, "message.timeout.ms": TIMEOUT_MS, **CLIENT,
            }
        )  # fmt: skip
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": transactional_id, "enable.auto.commit": False,
                "auto.offset.reset": "error", "isolation.level": "read_committed", "fetch.wait.max.ms": 50, **CLIENT,
            }
        )  # fmt: skip

    def run(self) -> None:
        """Run transactions until a record has timed out.

        librdkafka 2.16 may give the sequence number of a record that it has given up at its own deadline to the next
        one, although the first may be written. The broker refuses that, as Kafka does (OUT_OF_ORDER_SEQUENCE_NUMBER).
        """
        self._producer.init_transactions(SECONDS)
        (committed,) = self._consumer.committed([TopicPartition(TOPIC, self._partition)], SECONDS)
        if committed.error is not None:
            raise KafkaException(committed.error)
        note(position=committed.offset if committed.offset >= 0 else None)
        self._consumer.assign([TopicPartition(TOPIC, self._partition, max(committed.offset, 0))])
        while not self._has_timed_out:
            self._run_transaction()
            time.sleep(self._chance.uniform(0.0, 0.03))

    def _run_transaction(self) -> None:
        self._transaction += 1
        self._is_registered = False
        is_aborted = self._chance.random() < ABORTS
        try:
            self._producer.begin_transaction()
            note(begin=self._transaction)
            for _ in range(self._chance.randint(1, 5)):
                self._send()
            if self._chance.random() < OFFSETS:
                self._send_offsets()
            if not is_aborted:
                note(commit=self._transaction)
                self._until_ended(self._producer.commit_transaction)
                note(committed=self._transaction)
                return
            if self._chance.random() < 0.5:
                self._producer.flush(SECONDS)  # else some records were never sent
        except KafkaException as error:
            self.note_error(error.args[0])
            if not error.args[0].txn_requires_abort():
                raise
        self._until_ended(self._producer.abort_transaction)
        note(aborted=self._transaction)

    def _until_ended(self, end: object) -> None:
        """Call `end` again after an error that asks for that."""
        while True:
            try:
                end(SECONDS)  # type: ignore[operator]
                return
            except KafkaException as error:
                self.note_error(error.args[0])
                if not error.args[0].retriable():
                    raise

    def _send(self) -> None:
        self._number += 1
        partition = self._chance.randrange(PARTITIONS)
        note(send=self._number, partition=partition)
        value = f"{self._name} {self._number} ".encode().ljust(self._chance.randint(40, 200), b".")
        self._producer.produce(
            TOPIC, value, partition=partition, on_delivery=partial(self._delivered, number=self._number)
        )
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message, *, number: int) -> None:
        if error is None:
            self._is_registered = True
            note(acknowledged=number, offset=message.offset())
        elif error.code() != KafkaError._PURGE_QUEUE:  # an abort drops records that were not sent yet
            self._has_timed_out |= error.code() == KafkaError._MSG_TIMED_OUT
            self.note_error(error)

    def _send_offsets(self) -> None:
        messages = [one for one in self._consumer.consume(MOST_CONSUMED, 0.05) if not self._is_error(one)]
        if not messages:
            return
        offset = messages[-1].offset() + 1
        note(offset=offset, partition=self._partition)
        self._producer.send_offsets_to_transaction(
            [TopicPartition(TOPIC, self._partition, offset)], self._consumer.consumer_group_metadata(), SECONDS
        )
        self._is_registered = True

    def _is_error(self, message: Message) -> bool:
        if message.error() is not None:
            self.note_error(message.error())
        return message.error() is not None

    def note_error(self, error: KafkaError) -> None:
        """Note an error and the side that it comes from.

        librdkafka ends a transaction that it has given up at its own deadline also if the coordinator has never heard
        of it; Kafka, too, responds with INVALID_TXN_STATE then.
        """
        name = error.name()
        if error.code() == KafkaError.INVALID_TXN_STATE and not self._is_registered:
            name += " without a registered transaction"
        note(error=name, is_broker=error.code() > 0 or error.code() == KafkaError.UNKNOWN)


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    bootstrap, transactional_id, name, partition, seed = sys.argv[1:]
    worker = Worker(bootstrap, transactional_id, name, int(partition), int(seed))
    try:
        worker.run()
    except KafkaException as error:
        worker.note_error(error.args[0])
    os._exit(RESTART)
