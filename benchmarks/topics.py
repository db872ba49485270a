"""Topics that benchmarks read: what they hold, and where."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PARTITIONS = 4
FIRST_TIMESTAMP = 1_700_000_000_000  # ms; record n of a partition is n ms later
POOL = 20_000  # different values; more than fit a batch, so that no codec sees one twice


@dataclass(frozen=True)
class Topic:
    """One topic: how many records it holds and how they were produced. Keys null but of KEYED; values half random, half
    text."""

    codec: str
    value_size: int  # bytes
    records: int  # in all partitions together, evenly
    config: tuple[tuple[str, object], ...] = ()
    prefix: str = "values"

    @property
    def name(self) -> str:
        """Unique for what it holds, so that another number of records is another topic."""
        return f"{self.prefix}-{self.codec}-{self.value_size}-{self.records}"

    @property
    def last_timestamp(self) -> int:
        """ms; of the last record of every partition."""
        return FIRST_TIMESTAMP + self.records // PARTITIONS - 1

    def timestamp_at(self, part: float) -> int:
        """ms; the timestamp that `part` (0 to 1) of the records are below."""
        return FIRST_TIMESTAMP + int(self.records // PARTITIONS * part)


def home() -> Path:
    """The directory of the Kafka that holds the topics."""
    return Path(os.environ.get("KAFKALOG_BENCH_CACHE") or Path.home() / ".cache" / "kafkalog-bench")
