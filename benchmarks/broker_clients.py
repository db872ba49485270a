"""Clients that load a broker: librdkafka's producers and consumers, one in each of several processes.

The processes live as long as `Clients`, so a measurement does not include the start of an interpreter. All clients
connect first and then begin together.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple, Self

TIMEOUT_S = 120  # far above the seconds of a run: a hanging broker must not hang the benchmark
POOL = 2_000  # number of different values: more than the window of a codec holds, so that none repeats in it
CHECKED = 64  # every 64th record has a delivery callback; flush() detects other unacknowledged records
QUIET = {"log_level": 3}  # errors only, no notices about pending events when a client is closed

Run = Callable[[], Any]
Job = Callable[..., Run]
"""Function that connects a client, and returns the function to be timed."""


class Done(NamedTuple):
    """Result of one run of all clients. `seconds`: from the start of the first client to the end of the last."""

    seconds: float
    results: list[Any]


def produce(
    bootstrap: str, topic: str, records: int, size: int, codec: str, security: Mapping[str, str] | None = None
) -> Run:
    """Produce `records` values of `size` bytes with acks=all. Half of a value is random, half is text.

    Args:
        security: Properties of the client for SASL and TLS.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            **QUIET,
            **(security or {}),
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 256 << 10,
            "compression.type": codec,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 256 << 10,
        }
    )
    producer.list_topics(topic, timeout=TIMEOUT_S)
    text = b"kafkalog " * (size // 9 + 1)
    values = [os.urandom(size // 2) + text[: size - size // 2] for _ in range(POOL)]
    refused: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            refused.append(error)

    def run() -> int:
        for n, value in zip(range(records), cycle(values), strict=False):
            while True:
                try:
                    producer.produce(topic, value, on_delivery=delivered if n % CHECKED == 0 else None)
                    break
                except BufferError:  # the queue is full: process responses
                    producer.poll(0.01)
            if n % 1000 == 0:
                producer.poll(0)
        if producer.flush(TIMEOUT_S) or refused:
            raise RuntimeError(f"{topic}: records were not taken: {refused[:1]}")
        return records

    return run


def consumer_of_partitions(
    bootstrap: str, topic: str, partitions: Sequence[int], security: Mapping[str, str] | None = None
) -> tuple[Any, list[Any], int]:
    """Return a consumer that never pauses fetching, the partitions with their first offsets, and the record count."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            **QUIET,
            **(security or {}),
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4 << 20,
            # librdkafka pauses fetching for a second when its queue has this size; the pause would be measured.
            "queued.min.messages": 10_000_000,
            "queued.max.messages.kbytes": 2_000_000,
        }
    )
    begins, expected = [], 0
    for number in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)
        begins.append(TopicPartition(topic, number, low))
        expected += high - low
    return consumer, begins, expected


def consume(bootstrap: str, topic: str, partitions: Sequence[int], security: Mapping[str, str] | None = None) -> Run:
    """Consume whole partitions. The run returns the number of records. `security`: as for `produce`."""
    consumer, begins, expected = consumer_of_partitions(bootstrap, topic, partitions, security)

    def run() -> int:
        consumer.assign(begins)
        records = 0
        deadline = time.monotonic() + TIMEOUT_S
        while records < expected:
            for message in consumer.consume(10_000, timeout=0.1):
                if message.error():
                    raise RuntimeError(f"{topic}: {message.error()}")
                records += 1
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic}: only {records} of {expected} records in {TIMEOUT_S} s")
        return records

    return run


def one_record_requests(bootstrap: str, topic: str, requests: int, partitions: int) -> Run:
    """Produce with one record per request, acks=all and five requests in flight, the limit of idempotent producers."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            **QUIET,
            "acks": "all",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "max.in.flight.requests.per.connection": 5,
        }
    )
    producer.list_topics(topic, timeout=TIMEOUT_S)
    value, refused = os.urandom(100), []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            refused.append(error)

    def run() -> int:
        for n in range(requests):
            producer.produce(topic, value, partition=n % partitions, on_delivery=delivered)
            producer.poll(0)
        if producer.flush(TIMEOUT_S) or refused:
            raise RuntimeError(f"{topic}: records were not taken: {refused[:1]}")
        return requests

    return run


def round_trips(bootstrap: str, topic: str, trips: int) -> Run:
    """Measure the ms from produce() until a consumer has the record, `trips` times, one record at a time."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", **QUIET})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            **QUIET,
            "group.id": "benchmark",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    value = os.urandom(100)

    def trip() -> float:
        begin = time.perf_counter()
        producer.produce(topic, value, partition=0)
        producer.poll(0)
        deadline = begin + TIMEOUT_S
        while time.perf_counter() < deadline:
            message = consumer.poll(5)
            if message is not None and not message.error():
                return (time.perf_counter() - begin) * 1000
        raise RuntimeError(f"{topic}: no record came back in {TIMEOUT_S} s")

    for _ in range(trips // 10):  # connections, metadata, first fetches
        trip()

    def run() -> list[float]:
        durations = [trip() for _ in range(trips)]
        producer.flush(TIMEOUT_S)
        consumer.close()
        return durations

    return run


class Clients:
    """Context manager of `count` client processes."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there,), daemon=True)
            process.start()
            there.close()
            self._ends.append(here)
            self._processes.append(process)

    def run(self, job: Job, arguments: Sequence[Mapping[str, Any]]) -> Done:
        """Run `job` in one client for each of `arguments`. Raises RuntimeError with the error of a client."""
        ends = self._ends[: len(arguments)]
        if len(ends) < len(arguments):
            raise ValueError(f"{len(arguments)} clients are needed, but only {len(ends)} processes exist")
        for end, given in zip(ends, arguments, strict=True):
            end.send((job, given))
        self._collect(ends)
        for end in ends:
            end.send(None)
        timed = self._collect(ends)
        seconds = max(end for _, end, _ in timed) - min(begin for begin, _, _ in timed)
        return Done(seconds, [result for _, _, result in timed])

    def _collect(self, ends: Sequence[Connection]) -> list[Any]:
        answers = []
        for end in ends:
            if not end.poll(2 * TIMEOUT_S):
                raise RuntimeError(f"a client process sent nothing for {2 * TIMEOUT_S} s")
            answers.append(end.recv())
        failed = [answer for answer in answers if isinstance(answer, str)]
        if failed:
            raise RuntimeError(failed[0])
        return answers

    def close(self) -> None:
        """End the processes."""
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _serve(end: Connection) -> None:
    """Serve jobs in a client process until the pipe is closed.

    Protocol: receive (job, arguments), connect, send True; receive None, run the job, send (start, end, result). Errors
    are sent as text. perf_counter is the monotonic clock of the system, which is the same for all processes.
    """
    try:
        while True:
            job, arguments = end.recv()
            try:
                run = job(**arguments)
                answer: Any = True
            except Exception as error:  # noqa: BLE001  raised again by Clients.run
                answer = f"{job.__name__}: {type(error).__name__}: {error}"
            end.send(answer)
            if answer is not True:
                continue
            end.recv()
            begin = time.perf_counter()
            try:
                result = run()
                answer = (begin, time.perf_counter(), result)
            except Exception as error:  # noqa: BLE001  raised again by Clients.run
                answer = f"{job.__name__}: {type(error).__name__}: {error}"
            del run  # its clients are closed before the next job begins
            end.send(answer)
    except (EOFError, OSError, KeyboardInterrupt):
        return  # the benchmark has ended
