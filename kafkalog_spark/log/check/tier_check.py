"""A partition's remote segments: which are there, whether they are whole, and whether they make a log together."""

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
from kafkalog_spark.log.read.segment_file import Window
from kafkalog_spark.log.remote.part_finder import PartFinder
from kafkalog_spark.log.remote.remote_dir_listing import RemoteDirListing, epochs_within
from kafkalog_spark.log.remote.remote_segment_file import StoredSegment, leader_epochs_of, open_remote, producers_after
from kafkalog_spark.log.remote.tiered_log import TieredLocation
from kafkalog_spark.log.tiered.key_ring import KeyRing
from kafkalog_spark.log.tiered.lineage_merge import NotNeeded
from kafkalog_spark.log.tiered.remote_names import Layout, RemoteFile, RemoteObjects, remote_objects

Batches = npt.NDArray[np.int64]  # int64[n, 4]: base offset, last offset, CRC and byte position of each batch


@dataclass(slots=True)
class RemoteSegmentCheck:
    """open_before: producer id to first offset of the transactions open where the segment begins, None where nothing
    tells; open_after: where it ends. records: whether they are decoded."""

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
        """All good ones, after `run`."""
        return np.concatenate(self._tables)

    def run(self) -> SegmentResult | None:
        """Check the segment; None when it went away meanwhile or cannot be read, of which a finding tells."""
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
                self._tell(self._end_faults(found))
            return found
        except FileNotFoundError:
            return None
        except (KafkalogError, OSError) as error:
            self.findings.add_unreadable(error, self.held.log_path)
        return None

    def _check_small_files(self) -> None:
        """Check the copied files beside the .log that SegmentCheck leaves out."""
        held, manifest = self.held, self.held.manifest
        if manifest is not None and manifest.indexes is not None and RemoteFile.INDEXES in held.objects:
            path = held.path_of(RemoteFile.INDEXES)
            with closing(held.place.store.open(path, held.objects[RemoteFile.INDEXES][1])) as file:
                size = file.size
            expected = max((place.position + place.size for place in manifest.indexes.values()), default=0)
            if size != expected:
                fault = Fault("the size of the object", expected=f"{expected} bytes by its manifest", got=str(size))
                self.findings.add(Severity.ERROR, path, fault)
        epochs = self._parsed(RemoteFile.LEADER_EPOCHS, lambda: leader_epochs_of(held, self.keys)) or []
        known = [held.segment.start_offset, *(entry.start_offset for entry in held.segment.leader_epochs[:1])]
        self._epochs = EpochCheck(epochs, max(known))  # records may have been deleted before it was copied
        self._tell(self._epochs.order())
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
            producers = self._parsed(RemoteFile.PRODUCER_SNAPSHOT, lambda: producers_after(held, self.keys))
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

    def _tell(self, faults: Iterator[Fault]) -> None:
        self.findings.add_errors(self.held.log_path, faults)


def _epochs_text(epochs: tuple[EpochEntry, ...]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs) or "none"


def overlap_faults(mine: Batches, other: Batches, other_path: str, start: int, until: int) -> Iterator[Fault]:
    """Batches within [start, until), which both segments hold, that differ: one of them holds other records."""
    here, there = (rows[(rows[:, 0] >= start) & (rows[:, 1] < until)] for rows in (mine, other))
    known = {int(base): (int(last), int(crc)) for base, last, crc, _ in there}
    for base, last, crc, position in here.tolist():
        found = known.get(base)
        if found is not None and found != (last, crc):
            yield Fault(
                "the batch is another one than in a segment that holds the same offsets", position, base,
                f"offsets {base} to {found[0]} with CRC {found[1]:#010x}, as in {other_path}",
                f"{base} to {last} with {crc:#010x}",
            )  # fmt: skip


@dataclass(slots=True)
class TierCheck:
    """place: where the partition lies, perhaps in a log directory too, which is checked by itself. records: whether
    they are decoded. result: gets the totals."""

    place: TieredLocation
    findings: Findings
    on_bytes: Callable[[int], None]
    records: bool = False
    result: PartitionResult = field(default_factory=PartitionResult)

    def run(self) -> PartitionResult:
        """Check the remote segments. Those that go away meanwhile are no finding."""
        held: list[StoredSegment] = []
        for remote in self.place.remote:
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
            settings = (self.place.options.keys, self.findings, open_before, self.records, self.on_bytes)
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
            # what another leader wrote in another epoch may differ: an election has put one of the two aside
            if mine.partition == its.partition and start < until and mine.leader_epochs == its.leader_epochs:
                faults = overlap_faults(other.batches, one.batches, one.held.log_path, start, until)
                self.findings.add_errors(other.held.log_path, faults)
        if len(checks) == len(held):
            self._check_walk()
        return self.result

    def _whole_segments(self, remote: RemoteDir) -> Iterator[StoredSegment]:
        """Those of a directory that can be read; findings for all others."""
        of_dir = RemoteDirListing(remote, self.place.options, pass_over_damage=True)
        try:
            of_dir.look()
        except FileNotFoundError:
            return
        except OSError as error:
            self._add(Severity.ERROR, error.filename or remote.directory, f"cannot be listed: {error.strerror}")
            return
        found = remote_objects(of_dir.listing.names, remote.layout, remote.partition)
        known = {name for one in found for name in one.objects.values()}
        for name in sorted(set(of_dir.listing.names) - known):
            self._add(Severity.NOTE, os.path.join(remote.directory, name), "is no object of a tiered segment")
        for one in found:
            if one.missing:
                self._add(*_of_incomplete(remote, one))
                continue
            try:
                (held,) = of_dir.held([one])
            except (KafkalogError, OSError) as error:
                self.findings.add_unreadable(error, os.path.join(remote.directory, _any_name(one)))
                continue
            if held is not None:
                yield held

    def _check_walk(self) -> None:
        """Hold the segments against the rules by which they make one log."""
        place = self.place
        name = f"{place.topic}-{place.partition}"
        finder = PartFinder(name, place.remote, place.options, place.metadata, pass_over_damage=True)
        try:
            local = place.local.open(pass_over_damage=True) if place.is_local else None
            walk = finder.walked(local if local is not None and local.segments else None)
        except (KafkalogError, OSError) as error:
            if not isinstance(error, KeyNotGiven):  # reported for each segment
                self._add(Severity.ERROR, place.directory, f"the segments cannot be put together: {error}")
            return
        where = self.place.remote[0].directory
        for hole in walk.holes:
            fault = Fault(f"offsets {hole.start} to {hole.until - 1} are held by no segment", offset=hole.start)
            self.findings.add(Severity.ERROR, where, fault)
        for left in walk.left_out:
            if left.reason in (NotNeeded.LOCAL, NotNeeded.BELOW_LOG_START):
                continue  # retention takes its time
            path = f"{where}/{left.segment.name}"
            self._add(Severity.NOTE, path, f"the segment is not read: {left.reason.value}")

    def _add(self, severity: Severity, path: str, what: str) -> None:
        self.findings.add(severity, path, Fault(what))


def _any_name(found: RemoteObjects) -> str:
    return found.objects[min(found.objects, key=lambda file: file is not RemoteFile.MANIFEST)]


def _of_incomplete(remote: RemoteDir, found: RemoteObjects) -> tuple[Severity, str, str]:
    """Severity, path and text for a segment that is not wholly there."""
    path = os.path.join(remote.directory, _any_name(found))
    if RemoteFile.LOG in found.missing:
        what = "there is no .log to it: it was lost, or its deletion was not finished"
        return Severity.ERROR, path, what
    if remote.layout is Layout.AIVEN:
        path = os.path.join(remote.directory, found.objects[RemoteFile.LOG])
        return Severity.NOTE, path, "there is no manifest to it: a copy that was not finished, which nobody reads"
    missing = ", ".join(sorted(file.value for file in found.missing))
    return Severity.NOTE, path, f"its copy was not finished, or its deletion: there is no {missing}"
