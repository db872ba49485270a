"""One partition directory that is being written: appends go to its last segment, which is rolled as Kafka rolls it."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from kafkalog_spark.errors import CorruptLog, CorruptSnapshot, InvalidRecord, UnsupportedFormat
from kafkalog_spark.log.format import layout, names
from kafkalog_spark.log.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    EpochEntry,
    read_leader_epochs,
    write_leader_epochs,
)
from kafkalog_spark.log.format.durable import fsync_directory
from kafkalog_spark.log.format.producer_snapshot import read_producer_snapshot, write_producer_snapshot
from kafkalog_spark.log.write.encoded_batch import EncodedBatch
from kafkalog_spark.log.write.rolling import DEFAULT_CONFIG, SegmentConfig, should_roll
from kafkalog_spark.log.write.segment_writer import SegmentWriter

__all__ = ["PartitionWriter", "SegmentConfig"]

_MAX_UNFLUSHED = 8  # rolled segments that may wait for flush() with three open files each
_NO_PRODUCER = b"\xff" * 8  # producer id -1


def _clock() -> int:
    return time.time_ns() // 1_000_000


class PartitionWriter:
    """Appends to the log of one partition. Not thread safe; whoever opens it holds the log directory's `.lock`.

    directory: made when it is missing. base_offset: where an empty log begins; of no meaning for one with segments.
    recover: check the last segment batch by batch, build its indexes again, cut a torn end off: right after a crash,
        harmless otherwise. Without it the segment must have been closed cleanly.
    on_roll(next_offset): called after a roll and at a clean close, to write the producer snapshot of that offset. By
        default it is an empty one, as Kafka writes it for a log without producers, and none when the log may hold
        batches with a producer id: their state belongs into the snapshot. A broker then reads it from the log.
    now_ms: the clock.

    Attributes: `next_offset` (log end offset), `active` (the last segment), `leader_epochs`, `recovery_point` (up to
    there everything was flushed by this writer), `truncated_bytes` (what recovery cut off).
    Raises CorruptLog for a directory with an unfinished cleaning (.swap files), OSError.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        config: SegmentConfig = DEFAULT_CONFIG,
        *,
        base_offset: int = 0,
        recover: bool = True,
        on_roll: Callable[[int], None] | None = None,
        now_ms: Callable[[], int] = _clock,
    ) -> None:
        self.directory = Path(directory)
        self.config = config
        self._now_ms = now_ms
        self._on_roll = self._empty_snapshot if on_roll is None else on_roll
        self._unflushed: deque[SegmentWriter] = deque()
        self._unsynced_names = True  # files made or renamed since the directory was last fsynced
        self._closed = False
        self.truncated_bytes = 0
        self.directory.mkdir(parents=True, exist_ok=True)
        self.leader_epochs = read_leader_epochs(self.directory / LEADER_EPOCH_CHECKPOINT)
        last = self._last_base_offset()
        index = {"index_interval_bytes": config.index_interval_bytes, "max_index_size": config.max_index_size}
        if last is None:
            self.active = SegmentWriter.create(self.directory, base_offset, **index)
        elif recover:
            self.active = SegmentWriter.recover(self.directory, last, **index)
            self.truncated_bytes = self.active.truncated_bytes
            self._drop_what_describes_cut_records()
        else:
            self.active = SegmentWriter.open_existing(self.directory, last, **index)
        self._has_producers = last is not None and not self._ends_with_an_empty_snapshot()
        self._created_ms = now_ms()
        self.recovery_point = self.active.base_offset

    @property
    def next_offset(self) -> int:
        """The log end offset: the lowest that the next batch may have."""
        return self.active.next_offset

    @property
    def leader_epoch(self) -> int:
        """The latest leader epoch, which batches must not fall below; -1 while there is none."""
        return self.leader_epochs[-1].epoch if self.leader_epochs else layout.NO_LEADER_EPOCH

    def append(self, batch: EncodedBatch) -> int:
        """Append one batch, in a new segment if it is time for one; returns its position in the active segment.

        Gaps between batches are fine, as in a compacted log. Raises InvalidRecord for a batch that no segment takes or
        whose offsets or leader epoch go back, OSError. After an error the log holds what it held before.
        """
        size = len(batch.data)
        if batch.base_offset < self.next_offset:
            raise InvalidRecord(
                f"a batch from offset {batch.base_offset} on cannot follow the log end offset {self.next_offset}",
                path=str(self.directory),
                offset=batch.base_offset,
            )
        if size > self.config.segment_bytes:
            raise InvalidRecord(
                f"a batch of {size} bytes does not fit into a segment of {self.config.segment_bytes}",
                path=str(self.directory),
                offset=batch.base_offset,
                hint="raise segment.bytes or make smaller batches",
            )
        self._assign_epoch(batch.leader_epoch, batch.base_offset)
        if self._is_time_to_roll(batch, size):
            self._roll_to(batch.base_offset)
        if batch.data[layout.MAGIC_AT] == 2 and batch.data[layout.PRODUCER_ID_AT :][:8] != _NO_PRODUCER:
            self._has_producers = True
        return self.active.append(batch)

    def append_all(self, batches: Sequence[EncodedBatch]) -> None:
        """Append one after the other; what went in before an error stays."""
        for batch in batches:
            self.append(batch)

    def roll(self) -> None:
        """Begin a new segment at the log end offset; without effect while the active one is empty."""
        if self.active.size:
            self._roll_to(self.next_offset)

    def flush(self) -> None:
        """Return when everything appended so far is on disk, directory entries too."""
        end = self.next_offset
        while self._unflushed:
            self._unflushed[0].flush()
            self._unflushed.popleft().close()
        self.active.flush()
        if self._unsynced_names:
            fsync_directory(self.directory)
            self._unsynced_names = False
        self.recovery_point = end

    def close(self) -> None:
        """Close cleanly, as a broker that shuts down: snapshot written, indexes trimmed, flushed. Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        try:
            self.active.on_become_inactive()
            self._on_roll(self.next_offset)
            self._unsynced_names = True
            self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files as they are; for error paths. Opening then needs `recover`."""
        self._closed = True
        while self._unflushed:
            self._unflushed.popleft().abandon()
        self.active.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # ---- rolling

    def _is_time_to_roll(self, batch: EncodedBatch, size: int) -> bool:
        active, config = self.active, self.config
        due = should_roll(
            size=active.size,
            base_offset=active.base_offset,
            first_timestamp=active.first_timestamp,
            created_ms=self._created_ms,
            indexes_full=active.indexes_full,
            incoming_size=size,
            incoming_last_offset=batch.last_offset,
            incoming_max_timestamp=batch.max_timestamp,
            now_ms=self._now_ms(),
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            jitter_ms=config.jitter_ms,
        )
        # An empty segment that is full (tiny indexes, KAFKA-6388) is not replaced by one of the same name.
        return due and batch.base_offset > active.base_offset

    def _roll_to(self, base_offset: int) -> None:
        """The old segment is finished first; when the new one cannot be made, the old one counts as full and the next
        append tries again."""
        old = self.active
        old.on_become_inactive()
        self.active = SegmentWriter.create(
            self.directory,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            max_index_size=self.config.max_index_size,
        )
        self._unflushed.append(old)
        self._unsynced_names = True
        self._created_ms = self._now_ms()
        self._on_roll(base_offset)
        if len(self._unflushed) > _MAX_UNFLUSHED:
            self._unflushed[0].flush()
            self._unflushed.popleft().close()

    def _ends_with_an_empty_snapshot(self) -> bool:
        """True when the log is known to hold no producer state: it is empty, or was closed without any."""
        if self.next_offset == 0:
            return True
        path = self.directory / (names.segment_name(self.next_offset) + names.PRODUCER_SNAPSHOT_SUFFIX)
        try:
            return not read_producer_snapshot(path)
        except (FileNotFoundError, CorruptSnapshot, UnsupportedFormat):
            return False

    def _empty_snapshot(self, next_offset: int) -> None:
        path = self.directory / (names.segment_name(next_offset) + names.PRODUCER_SNAPSHOT_SUFFIX)
        if not self._has_producers and next_offset > 0 and not path.exists():
            write_producer_snapshot(path, [], sync=False)

    # ---- leader epochs

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Write the checkpoint when the epoch is new, before its first batch is written (LeaderEpochFileCache)."""
        latest = self.leader_epoch
        if epoch == latest or epoch == layout.NO_LEADER_EPOCH:
            return
        if epoch < latest:
            raise InvalidRecord(
                f"a batch of leader epoch {epoch} cannot follow epoch {latest}",
                path=str(self.directory),
                offset=start_offset,
                hint="restamp the batch with the writer's leader_epoch",
            )
        # An entry may begin at the log end: of a leader that never wrote. The new one takes its place, as in Kafka.
        earlier = [entry for entry in self.leader_epochs if entry.start_offset < start_offset]
        self._write_epochs([*earlier, EpochEntry(epoch, start_offset)])

    def _drop_what_describes_cut_records(self) -> None:
        """After recovery cut the log: epochs and producer snapshots that speak of offsets it no longer has."""
        if not self.truncated_bytes:
            return
        kept = [entry for entry in self.leader_epochs if entry.start_offset < self.next_offset]
        if kept != self.leader_epochs:
            self._write_epochs(kept)
        for offset, name in names.producer_snapshots(os.listdir(self.directory)):
            if offset > self.next_offset:
                (self.directory / name).unlink()

    def _write_epochs(self, epochs: list[EpochEntry]) -> None:
        write_leader_epochs(self.directory / LEADER_EPOCH_CHECKPOINT, epochs)
        self.leader_epochs = epochs

    # ---- opening

    def _last_base_offset(self) -> int | None:
        last: int | None = None
        for entry in os.listdir(self.directory):
            file = names.parse_segment_file(entry)
            if file is None or file.suffix != names.LOG_SUFFIX:
                continue
            if file.transient_suffix == names.SWAP_SUFFIX:
                raise CorruptLog(
                    f"{entry} is left from a cleaning that was not finished",
                    path=str(self.directory),
                    hint="let a broker load the directory once",
                )
            if file.transient_suffix is None:
                last = file.base_offset if last is None else max(last, file.base_offset)
        return last
