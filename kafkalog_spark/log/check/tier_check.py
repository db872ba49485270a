"""Check of a partition's remote segments: each by itself, and that they form one log together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptLog, KafkalogError, KeyNotGiven, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.layout import NO_TIMESTAMP, HeaderColumn
from kafkalog_spark.format.producer_snapshot import open_transactions
from kafkalog_spark.log.check.finding import Content, Fault, Findings, Severity
from kafkalog_spark.log.check.partition_check import PartitionResult
from kafkalog_spark.log.check.segment_check import BatchCheck, EpochCheck, SegmentCheck, SegmentResult
from kafkalog_spark.log.check.transaction_check import TransactionCheck
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.remote.part_finder import PartFinder
from kafkalog_spark.log.remote.remote_dir_listing import RemoteDirListing, epochs_within
from kafkalog_spark.log.remote.remote_indexes import read_leader_epochs, read_producers
from kafkalog_spark.log.remote.remote_segment_file import open_remote
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.remote.tiered_log import TieredLocation
from kafkalog_spark.log.tiered.key_ring import KeyRing
from kafkalog_spark.log.tiered.lineage_merge import RedundancyReason
from kafkalog_spark.log.tiered.object_keys import Layout, RemoteFile, RemoteObjects, group_by_segment

Batches = npt.NDArray[np.int64]
"""int64[n, 4]: base offset, last offset, CRC and byte position of each batch."""


@dataclass(slots=True)
class RemoteSegmentCheck:
    """Check of one remote segment.

    Attributes:
        held: The segment.
        keys: Private keys, for encrypted segments.
        findings: Gets the faults.
        open_before: First offset by producer id of the transactions that are open where the segment begins; None if
            they are unknown.
        records: Also decode the records.
        on_bytes: Called with the number of bytes that were checked since the last call.
        open_after: As `open_before`, where the segment ends. Set by `run`.
    """

    held: StoredSegment
    keys: KeyRing
    findings: Findings
    open_before: dict[int, int] | None
    records: bool
    on_bytes: Callable[[int], None]
    open_after: dict[int, int] | None = None
    _tables: list[Batches] = field(default_factory=lambda: [np.empty((0, 4), np.int64)])
    _largest: int = NO_TIMESTAMP
    _epochs: EpochCheck = field(init=False)

    @property
    def batches(self) -> Batches:
        """All good batches; complete after `run`."""
        return np.concatenate(self._tables)

    def run(self) -> SegmentResult | None:
        """Check the segment. Returns None if it was deleted meanwhile, or cannot be read, which is reported."""
        try:
            self._check_small_files()
            partition = self.held.segment.partition
            with open_remote(self.held, self.keys, f"{partition.topic}-{partition.partition}") as file:
                start = self.held.segment.start_offset
                batches = BatchCheck(start, self.held.segment.until, start - 1)
                transactions = TransactionCheck(self.open_before)
                settings = (self.findings, self.records, True, None, self._on_window, self.on_bytes)
                found = SegmentCheck(file, batches, transactions, *settings).run()
            if not found.is_damaged:
                self._add(self._end_faults(found))
            return found
        except FileNotFoundError:
            return None
        except (KafkalogError, OSError) as error:
            self.findings.add_unreadable(error, self.held.log_path)
        return None

    def _check_small_files(self) -> None:
        """Check the copied files alongside the .log that SegmentCheck does not check."""
        held, manifest = self.held, self.held.manifest
        if manifest is not None and manifest.indexes is not None and RemoteFile.INDEXES in held.objects:
            path = held.path_of(RemoteFile.INDEXES)
            with closing(held.remote_dir.store.open(path, held.objects[RemoteFile.INDEXES][1])) as file:
                size = file.size
            expected = max((place.position + place.size for place in manifest.indexes.values()), default=0)
            if size != expected:
                fault = Fault("the size of the object", expected=f"{expected} bytes by its manifest", got=str(size))
                self.findings.add(Severity.ERROR, path, fault)
        epochs = self._parsed(RemoteFile.LEADER_EPOCHS, lambda: read_leader_epochs(held, self.keys)) or []
        known = [held.segment.start_offset, *(entry.start_offset for entry in held.segment.leader_epochs[:1])]
        self._epochs = EpochCheck(epochs, max(known))  # records may have been deleted before the segment was copied
        self._add(self._epochs.order())
        segment = held.segment
        expected_epochs = epochs_within(epochs, segment.start_offset, segment.until)
        if epochs and segment.leader_epochs != expected_epochs:
            fault = Fault(
                "the leader epochs of the segment",
                offset=segment.start_offset,
                expected=_epochs_text(expected_epochs) + " by its leader-epoch checkpoint",
                got=_epochs_text(segment.leader_epochs),
            )
            self.findings.add(Severity.ERROR, held.log_path, fault)
        if held.has(RemoteFile.PRODUCER_SNAPSHOT):
            producers = self._parsed(RemoteFile.PRODUCER_SNAPSHOT, lambda: read_producers(held, self.keys))
            if producers is not None:
                self.open_after = open_transactions(producers)

    def _parsed(self, file: RemoteFile, read: Callable[[], Content]) -> Content | None:
        try:
            return read()
        except FileNotFoundError:
            raise
        except (CorruptLog, UnsupportedFormat, OSError) as error:
            places = (file, RemoteFile.INDEXES, RemoteFile.LOG)
            self.findings.add_unreadable(error, self.held.path_of(next(at for at in places if at in self.held.objects)))
        return None

    def _end_faults(self, found: SegmentResult) -> Iterator[Fault]:
        segment = self.held.segment
        if found.next_offset != segment.until:
            yield Fault(
                "the segment's last offset", found.position, expected=str(segment.end_offset),
                got=str(found.next_offset - 1),
            )  # fmt: skip
        if segment.max_timestamp >= 0 and segment.max_timestamp != self._largest:
            yield Fault(
                "the segment's largest timestamp", expected=f"{segment.max_timestamp} ms", got=str(self._largest)
            )

    def _on_window(self, window: Window, batches: BatchCheck) -> Iterator[Fault]:
        table = window.table
        self._tables.append(
            table[:, [HeaderColumn.BASE_OFFSET, HeaderColumn.LAST_OFFSET, HeaderColumn.CRC, HeaderColumn.POSITION]]
        )
        self._largest = max(self._largest, int(table[:, HeaderColumn.MAX_TIMESTAMP].max()))
        if self._epochs.entries:
            yield from self._epochs.take(table)

    def _add(self, faults: Iterator[Fault]) -> None:
        self.findings.add_errors(self.held.log_path, faults)


def _epochs_text(epochs: tuple[EpochEntry, ...]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs) or "none"


def overlap_faults(mine: Batches, other: Batches, other_path: str, start: int, until: int) -> Iterator[Fault]:
    """Yield a fault for each batch in [start, until) that differs between two segments of the same offsets."""
    here, there = (rows[(rows[:, 0] >= start) & (rows[:, 1] < until)] for rows in (mine, other))
    known = {int(base): (int(last), int(crc)) for base, last, crc, _ in there}
    for base, last, crc, position in here.tolist():
        found = known.get(base)
        if found is not None and found != (last, crc):
            yield Fault(
                "the batch differs from that of another segment with the same offsets", position, base,
                f"offsets {base} to {found[0]} with CRC {found[1]:#010x}, as in {other_path}",
                f"{base} to {last} with {crc:#010x}",
            )  # fmt: skip


@dataclass(slots=True)
class TierCheck:
    """Check of a partition's remote segments.

    Attributes:
        location: Where the partition lies. Its log directory, if any, is checked separately.
        findings: Gets the faults.
        on_bytes: Called with the number of bytes that were checked since the last call.
        records: Also decode the records.
        result: Totals, to which those of the remote segments are added.
    """

    location: TieredLocation
    findings: Findings
    on_bytes: Callable[[int], None]
    records: bool = False
    result: PartitionResult = field(default_factory=PartitionResult)

    def run(self) -> PartitionResult:
        """Check the remote segments. Those that are deleted meanwhile are not reported."""
        held: list[StoredSegment] = []
        for remote in self.location.remote:
            held += self._whole_segments(remote)
        held.sort(
            key=lambda copy: (copy.segment.partition.topic_id, copy.segment.start_offset, copy.segment.end_offset)
        )
        checks: dict[str, RemoteSegmentCheck] = {}
        before: RemoteSegmentCheck | None = None
        for stored in held:
            open_before: dict[int, int] | None = None
            following = (stored.segment.partition, stored.segment.start_offset)
            if stored.segment.start_offset == 0:
                open_before = {}
            elif before is not None and (before.held.segment.partition, before.held.segment.until) == following:
                open_before = before.open_after
            settings = (self.location.options.keys, self.findings, open_before, self.records, self.on_bytes)
            before = checks[stored.segment.name] = RemoteSegmentCheck(stored, *settings)
            found = before.run()
            self.result.segments += 1
            if found is None:
                self.result.is_damaged = True
            else:
                self.result.add(found)
        for one, other in combinations(checks.values(), 2):
            mine, its = one.held.segment, other.held.segment
            start, until = max(mine.start_offset, its.start_offset), min(mine.until, its.until)
            # Segments of different leader epochs may differ: after an unclean election, one of them is not read.
            if mine.partition == its.partition and start < until and mine.leader_epochs == its.leader_epochs:
                faults = overlap_faults(other.batches, one.batches, one.held.log_path, start, until)
                self.findings.add_errors(other.held.log_path, faults)
        if len(checks) == len(held):
            self._check_log()
        return self.result

    def _whole_segments(self, remote: RemoteDir) -> Iterator[StoredSegment]:
        """Yield the complete segments of a directory whose metadata can be read, and report all others."""
        of_dir = RemoteDirListing(remote, self.location.options, pass_over_damage=True)
        try:
            of_dir.look()
        except FileNotFoundError:
            return
        except OSError as error:
            self._add(Severity.ERROR, error.filename or remote.directory, f"cannot be listed: {error.strerror}")
            return
        found = group_by_segment(of_dir.listing.names, remote.layout, remote.partition)
        known = {name for one in found for name in one.objects.values()}
        for name in sorted(set(of_dir.listing.names) - known):
            self._add(Severity.NOTE, os.path.join(remote.directory, name), "not an object of a tiered segment")
        for one in found:
            if one.missing_files:
                self._add(*_incomplete(remote, one))
                continue
            try:
                (held,) = of_dir.held([one])
            except (KafkalogError, OSError) as error:
                self.findings.add_unreadable(error, os.path.join(remote.directory, _any_name(one)))
                continue
            if held is not None:
                yield held

    def _check_log(self) -> None:
        """Check that the segments, with the local ones, form one log without holes."""
        location = self.location
        name = f"{location.topic}-{location.partition}"
        finder = PartFinder(name, location.remote, location.options, location.metadata, pass_over_damage=True)
        try:
            local = location.local.open(pass_over_damage=True) if location.is_local else None
            merge = finder.merge(local if local is not None and local.segments else None)
        except (KafkalogError, OSError) as error:
            if not isinstance(error, KeyNotGiven):  # already reported for each segment
                self._add(Severity.ERROR, location.directory, f"the segments cannot be merged to one log: {error}")
            return
        directory = location.remote[0].directory
        for hole in merge.holes:
            fault = Fault(f"no segment has offsets {hole.start} to {hole.until - 1}", offset=hole.start)
            self.findings.add(Severity.ERROR, directory, fault)
        for excluded in merge.excluded:
            if excluded.reason in (RedundancyReason.LOCAL, RedundancyReason.BELOW_LOG_START):
                continue  # retention has not deleted the segment yet
            path = f"{directory}/{excluded.segment.name}"
            self._add(Severity.NOTE, path, f"the segment is not read: {excluded.reason.value}")

    def _add(self, severity: Severity, path: str, what: str) -> None:
        self.findings.add(severity, path, Fault(what))


def _any_name(found: RemoteObjects) -> str:
    return found.objects[min(found.objects, key=lambda file: file is not RemoteFile.MANIFEST)]


def _incomplete(remote: RemoteDir, found: RemoteObjects) -> tuple[Severity, str, str]:
    """Return severity, path and text of the finding for a segment of which objects are missing."""
    path = os.path.join(remote.directory, _any_name(found))
    if RemoteFile.LOG in found.missing_files:
        return Severity.ERROR, path, "the segment has no .log object: it was lost, or a deletion did not complete"
    if remote.layout is Layout.AIVEN:
        path = os.path.join(remote.directory, found.objects[RemoteFile.LOG])
        return Severity.NOTE, path, "the segment has no manifest, so readers skip it: its upload did not complete"
    missing = ", ".join(sorted(file.value for file in found.missing_files))
    return Severity.NOTE, path, f"the segment has no {missing}: its upload or its deletion did not complete"
