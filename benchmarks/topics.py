"""Topics that benchmarks read: their records, names and directory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PARTITIONS = 4
FIRST_TIMESTAMP = 1_700_000_000_000  # ms; record n of a partition is n ms later
POOL = 20_000  # number of different values: more than a batch has records, so that none repeats in it


@dataclass(frozen=True)
class Topic:
    """Topic with the settings of its production.

    Attributes:
        value_size: Bytes of a value.
        records: Number of records in all partitions together, evenly distributed.
        config: Configuration of the topic.
        prefix: Kind of the records: `values` (half random, half text), `keyed`, `json`, `avro`, `protobuf` and others.
    """

    codec: str
    value_size: int
    records: int
    config: tuple[tuple[str, object], ...] = ()
    prefix: str = "values"

    @property
    def name(self) -> str:
        """Name that contains the settings, so that a topic with other settings has another name."""
        return f"{self.prefix}-{self.codec}-{self.value_size}-{self.records}"

    @property
    def last_timestamp(self) -> int:
        """Timestamp of the last record of each partition in ms."""
        return FIRST_TIMESTAMP + self.records // PARTITIONS - 1

    def timestamp_at(self, fraction: float) -> int:
        """Return the timestamp in ms below which a fraction of the records (0 to 1) lies."""
        return FIRST_TIMESTAMP + int(self.records // PARTITIONS * fraction)


def home() -> Path:
    """Return the directory of the Kafka broker with the topics."""
    return Path(os.environ.get("KAFKALOG_BENCH_CACHE") or Path.home() / ".cache" / "kafkalog-bench")
