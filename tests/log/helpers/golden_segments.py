"""The golden segments with what DumpLogSegments said about them, as the oracle of index tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import golden_data
from tests.golden_data import DumpedBatch

# index.interval.bytes of the topics in bytes. The others kept the broker's default.
SMALL_INTERVAL = 512
DEFAULT_INTERVAL = 4096
_DEFAULT_INTERVAL_TOPICS = {
    "__consumer_offsets",
    "__transaction_state",
    "logappend",
    "v1-logappend",
    "v1-compacted",
}
# Appends of many uncompressed messages at once: brokers before KAFKA-806 write at most one entry for each append, and
# where an append began cannot be seen in the log.
_MANY_MESSAGES_AN_APPEND = {"v0-none", "v1-none"}


@dataclass(frozen=True)
class GoldenSegment:
    """One .log file with its indexes."""

    release: str
    directory: Path
    base_offset: int
    batches: tuple[DumpedBatch, ...]

    def __str__(self) -> str:
        return f"{self.directory.relative_to(golden_data.GOLDEN)}/{self.base_offset}"

    @property
    def topic(self) -> str:
        return self.directory.name.rpartition("-")[0]

    @property
    def one_batch_an_append(self) -> bool:
        return self.topic not in _MANY_MESSAGES_AN_APPEND

    @property
    def offset_index(self) -> Path:
        return self.directory / f"{self.base_offset:020d}.index"

    @property
    def time_index(self) -> Path:
        return self.directory / f"{self.base_offset:020d}.timeindex"

    @property
    def after_clean_restart(self) -> GoldenSegment:
        """Of a crashed segment: the same one after the broker had recovered and was shut down."""
        directory = golden_data.data_dir(self.release) / self.directory.name
        return GoldenSegment(self.release, directory, self.base_offset, self.batches)

    def indexed_batches(self) -> Iterator[tuple[DumpedBatch, int, int]]:
        """The batches that get an entry, each with the largest timestamp so far and the last offset of its batch.

        LogSegment.append: an entry when more than index.interval.bytes came since the last one, asked before the
        batch itself is counted.
        """
        interval = DEFAULT_INTERVAL if self.topic in _DEFAULT_INTERVAL_TOPICS else SMALL_INTERVAL
        since, timestamp, offset = 0, -1, self.base_offset
        for batch in self.batches:
            if batch.timestamp > timestamp:
                timestamp, offset = batch.timestamp, batch.last_offset
            if since > interval:
                yield batch, timestamp, offset
                since = 0
            since += batch.size

    def largest_timestamp(self) -> tuple[int, int]:
        """(timestamp, last offset of the first batch that has it); (-1, base offset) without timestamps."""
        timestamp, offset = -1, self.base_offset
        for batch in self.batches:
            if batch.timestamp > timestamp:
                timestamp, offset = batch.timestamp, batch.last_offset
        return timestamp, offset


def _segments(release: str, crashed: bool) -> list[GoldenSegment]:
    root = golden_data.data_dir(release, crashed=crashed)
    return [
        GoldenSegment(release, (root / name).parent, int(Path(name).stem), batches)
        for name, batches in golden_data.dumped_segments(release).items()
        if (root / name).is_file()
    ]


GOLDEN_SEGMENTS = [segment for release in golden_data.RELEASES for segment in _segments(release, crashed=False)]
# Those that were active when the broker was killed: rolled ones were trimmed long before.
CRASHED_SEGMENTS = [
    segment
    for segment in _segments(golden_data.KAFKA_4_3, crashed=True)
    if segment.offset_index.stat().st_size > segment.after_clean_restart.offset_index.stat().st_size
]
