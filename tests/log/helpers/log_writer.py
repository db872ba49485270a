"""The segments of one partition written for a test: rolled where Kafka rolls, with epochs and empty snapshots."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    EpochEntry,
    read_leader_epochs,
    write_leader_epochs,
)
from kafkalog_spark.format.layout import NO_LEADER_EPOCH, NO_PRODUCER_ID
from kafkalog_spark.format.producer_snapshot import write_producer_snapshot
from kafkalog_spark.log.write.encoded_batch import EncodedBatch
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES, SEGMENT_BYTES, should_roll
from kafkalog_spark.log.write.segment_writer import SegmentWriter


class LogWriter:
    """Appends to a partition directory, made when it is missing; a log that is there was closed cleanly.

    base_offset: where an empty log begins. Nothing is fsynced. Rolls and the close leave an empty producer snapshot, as
    Kafka does for a log without producers, and none once a batch of this writer has a producer.
    """

    def __init__(
        self,
        directory: Path,
        *,
        base_offset: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    ) -> None:
        self.directory = directory
        self._segment_bytes = segment_bytes
        self._interval = index_interval_bytes
        directory.mkdir(parents=True, exist_ok=True)
        self._epochs = read_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT)
        files = (names.parse_segment_file(entry) for entry in os.listdir(directory))
        logs = [file.base_offset for file in files if file and file.suffix == names.LOG_SUFFIX]
        self._has_producers = False
        if logs:
            self.active = SegmentWriter.open_existing(directory, max(logs), index_interval_bytes=self._interval)
            self._has_producers = self.next_offset > 0 and not self._snapshot().exists()
        else:
            self._create(base_offset)

    @property
    def next_offset(self) -> int:
        return self.active.next_offset

    @property
    def leader_epoch(self) -> int:
        return self._epochs[-1].epoch if self._epochs else NO_LEADER_EPOCH

    def append(self, batch: EncodedBatch) -> None:
        header = batch.header
        if header.leader_epoch not in (self.leader_epoch, NO_LEADER_EPOCH):
            self._epochs.append(EpochEntry(header.leader_epoch, header.base_offset))
            write_leader_epochs(self.directory / LEADER_EPOCH_CHECKPOINT, self._epochs)
        if should_roll(
            header,
            base_offset=self.active.base_offset,
            size=self.active.size,
            first_timestamp=self.active.first_timestamp,
            age_ms=0,
            are_indexes_full=self.active.are_indexes_full,
            segment_bytes=self._segment_bytes,
        ):
            self._roll_to(header.base_offset)
        if header.producer_id != NO_PRODUCER_ID:
            self._has_producers = True
        self.active.append(batch)

    def append_all(self, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            self.append(batch)

    def roll(self) -> None:
        """Begin a new segment at the log end offset; without effect while the active one is empty."""
        if self.active.size:
            self._roll_to(self.next_offset)

    def close(self) -> None:
        self.active.close()
        self._write_snapshot()

    def abandon(self) -> None:
        """Leave the files as a crash would."""
        self.active.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _roll_to(self, base_offset: int) -> None:
        self.active.close()
        self._create(base_offset)
        self._write_snapshot()

    def _create(self, base_offset: int) -> None:
        self.active = SegmentWriter.create(self.directory, base_offset, index_interval_bytes=self._interval)

    def _snapshot(self) -> Path:
        return self.directory / (names.segment_name(self.next_offset) + names.PRODUCER_SNAPSHOT_SUFFIX)

    def _write_snapshot(self) -> None:
        if self.next_offset > 0 and not self._has_producers:
            write_producer_snapshot(self._snapshot(), [])
