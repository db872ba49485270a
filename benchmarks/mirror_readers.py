"""Reader with which a mirror is compared: a librdkafka consumer that only counts records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.broker_clients import TIMEOUT_S, Run, consumer_of_partitions

WARM = 0.1
"""Fraction of the data after which a reader is in its steady state and the measurement begins."""
MOST_MESSAGES = 10_000  # of one call of consume


class Steady(NamedTuple):
    """Work of a reader in its steady state: bytes of log, seconds, and seconds of processor time."""

    data_bytes: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.data_bytes / self.seconds

    @property
    def cpu_per_gb(self) -> float:
        return self.cpu_seconds / self.data_bytes * 1e9


def count_records(bootstrap: str, topic: str, partitions: Sequence[int], data_bytes: int) -> Run:
    """Consume whole partitions. `data_bytes`: size of their logs."""
    consumer, begins, expected = consumer_of_partitions(bootstrap, topic, partitions)

    def run() -> Steady:
        consumer.assign(begins)
        records, begun = 0, None
        deadline = time.monotonic() + TIMEOUT_S
        while records < expected:
            messages = consumer.consume(MOST_MESSAGES, timeout=0.1)
            for message in messages:
                if message.error():
                    raise RuntimeError(f"{topic}: {message.error()}")
            records += len(messages)
            if begun is None and records >= expected * WARM:
                begun = (time.perf_counter(), time.process_time(), records)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic}: only {records} of {expected} records in {TIMEOUT_S} s")
        assert begun is not None
        fraction = (expected - begun[2]) / expected
        return Steady(round(data_bytes * fraction), time.perf_counter() - begun[0], time.process_time() - begun[1])

    return run
