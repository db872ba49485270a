"""The reader that a mirror is compared with: a librdkafka consumer that does nothing but count."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.broker_clients import TIMEOUT_S, Run, of_whole_partitions

WARM = 0.1
"""The part of everything after which a reader is in its steady state, and the clock starts."""
MOST = 10_000  # messages of a call


class Steady(NamedTuple):
    """What was done between two moments: bytes of log, seconds, seconds of processor time."""

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
    """Consume whole partitions, which hold `data_bytes` as their logs count."""
    consumer, begins, expected = of_whole_partitions(bootstrap, topic, partitions)

    def run() -> Steady:
        consumer.assign(begins)
        records, begun = 0, None
        deadline = time.monotonic() + TIMEOUT_S
        while records < expected:
            messages = consumer.consume(MOST, timeout=0.1)
            for message in messages:
                if message.error():
                    raise RuntimeError(f"{topic}: {message.error()}")
            records += len(messages)
            if begun is None and records >= expected * WARM:
                begun = (time.perf_counter(), time.process_time(), records)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic}: only {records} of {expected} records in {TIMEOUT_S} s")
        assert begun is not None
        part = (expected - begun[2]) / expected
        return Steady(round(data_bytes * part), time.perf_counter() - begun[0], time.process_time() - begun[1])

    return run
