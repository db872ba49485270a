"""A partition's remote segments: which are there, whether they are whole, and whether they make a log together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from kafkalog_spark.errors import KafkalogError, KeyNotGiven
from kafkalog_spark.log.check.finding import Fault, Findings, Severity
from kafkalog_spark.log.check.partition_check import PartitionResult, made_record_check
from kafkalog_spark.log.check.remote_segment_check import RemoteSegmentCheck, overlap_faults
from kafkalog_spark.log.read.part_finder import PartFinder
from kafkalog_spark.log.read.remote_dir_listing import RemoteDirListing, objects_in
from kafkalog_spark.log.read.remote_segment_file import HeldSegment
from kafkalog_spark.log.read.root_places import RemoteDir
from kafkalog_spark.log.read.tiered_place import TieredPlace
from kafkalog_spark.log.tiered.remote_names import Layout, RemoteFile, RemoteObjects
from kafkalog_spark.log.tiered.remote_walk import LogWalk, NotNeeded


@dataclass(slots=True)
class TierCheck:
    """place: where the partition lies, perhaps in a log directory too, which is checked by itself.

    records: whether they are decoded. on_bytes: how many bytes were looked at.
    """

    place: TieredPlace
    findings: Findings
    on_bytes: Callable[[int], None]
    records: bool = False
    _result: PartitionResult = field(default_factory=PartitionResult)

    def run(self) -> PartitionResult:
        """Check the remote segments. Those that go away meanwhile are no finding."""
        held: list[HeldSegment] = []
        for remote in self.place.remote:
            held += self._whole_segments(remote)
        held.sort(key=lambda one: (one.segment.partition.topic_id, one.segment.start_offset, one.segment.end_offset))
        checks: dict[str, RemoteSegmentCheck] = {}
        before: RemoteSegmentCheck | None = None
        for one in held:
            before = checks[one.segment.name] = self._check_segment(one, before)
        self._check_overlaps(checks)
        if len(checks) == len(held):
            self._check_walk()
        return self._result

    @property
    def _name(self) -> str:
        return f"{self.place.topic}-{self.place.partition}"

    def _whole_segments(self, remote: RemoteDir) -> Iterator[HeldSegment]:
        """Those of a directory that can be read; findings for all others."""
        try:
            listing = remote.store.list(remote.directory)
        except FileNotFoundError:
            return
        except OSError as error:
            self._add(Severity.ERROR, error.filename or remote.directory, f"cannot be listed: {error.strerror}")
            return
        found = objects_in(remote, listing, self.place.options.key_prefix)
        known = {name for one in found for name, _ in one.objects.values()}
        for name in sorted(set(listing.names) - known):
            self._add(Severity.NOTE, os.path.join(remote.directory, name), "is no object of a tiered segment")
        of_dir = RemoteDirListing(remote, self.place.options, pass_over_damage=True)
        whole = {one.segment_id: one for one in of_dir.look()}
        for one in found:
            if one.missing:
                self._add(*_of_incomplete(remote, one))
                continue
            if one.segment_id not in whole:
                continue  # went away between the two listings
            try:
                (held,) = of_dir.held([one])
            except KafkalogError as error:
                self.findings.add_error(error, os.path.join(remote.directory, _any_name(one)), self._name)
                continue
            except OSError as error:
                self._add(Severity.ERROR, error.filename or remote.directory, f"cannot be read: {error.strerror}")
                continue
            if held is not None:
                yield held

    def _check_segment(self, held: HeldSegment, before: RemoteSegmentCheck | None) -> RemoteSegmentCheck:
        segment = held.segment
        open_before: dict[int, int] | None = None
        if segment.start_offset == 0:
            open_before = {}
        elif before is not None and (before.held.segment.partition, before.held.segment.until) == (
            segment.partition, segment.start_offset,
        ):  # fmt: skip
            open_before = before.open_after
        records = made_record_check() if self.records else None
        check = RemoteSegmentCheck(held, self.place.options.keys, self.findings, open_before, records, self.on_bytes)
        found = check.run()
        result = self._result
        result.segments += 1
        if found is None:
            result.is_damaged = True
        else:
            result.batches += found.batches
            result.records += found.records
            result.is_damaged |= found.is_damaged
            result.log_end_offset = max(result.log_end_offset, found.next_offset)
        return check

    def _check_overlaps(self, checks: dict[str, RemoteSegmentCheck]) -> None:
        for one, other in combinations(checks.values(), 2):
            mine, its = one.held.segment, other.held.segment
            start, until = max(mine.start_offset, its.start_offset), min(mine.until, its.until)
            # what another leader wrote in another epoch may differ: an election has put one of the two aside
            if mine.partition == its.partition and start < until and mine.leader_epochs == its.leader_epochs:
                for fault in overlap_faults(other.batches, one.batches, one.held.log_path, start, until):
                    self.findings.add(Severity.ERROR, other.held.log_path, fault, self._name)

    def _check_walk(self) -> None:
        """Whether the segments make one log, by the rules."""
        place = self.place
        finder = PartFinder(self._name, place.remote, place.options, place.metadata, pass_over_damage=True)
        try:
            local = place.local.open(pass_over_damage=True) if place.is_local else None
            walk = finder.walked(local if local is not None and local.segments else None)
        except (KafkalogError, OSError) as error:
            if not isinstance(error, KeyNotGiven):  # reported for each segment
                self._add(Severity.ERROR, place.directory, f"the segments cannot be put together: {error}")
            return
        self._tell_of(walk)

    def _tell_of(self, walk: LogWalk) -> None:
        where = self.place.remote[0].directory
        for hole in walk.holes:
            fault = Fault(f"offsets {hole.start} to {hole.until - 1} are held by no segment", offset=hole.start)
            self.findings.add(Severity.ERROR, where, fault, self._name)
        for left in walk.left_out:
            if left.reason in (NotNeeded.LOCAL, NotNeeded.BELOW_LOG_START):
                continue  # retention takes its time
            path = f"{where}/{left.segment.name}"
            self._add(Severity.NOTE, path, f"the segment is not read: {left.reason.value}")

    def _add(self, severity: Severity, path: str, what: str) -> None:
        self.findings.add(severity, path, Fault(what), self._name)


def _any_name(found: RemoteObjects) -> str:
    return found.objects[min(found.objects, key=lambda file: file is not RemoteFile.MANIFEST)][0]


def _of_incomplete(remote: RemoteDir, found: RemoteObjects) -> tuple[Severity, str, str]:
    """A segment that is not wholly there: severity, path, and what is to be said."""
    path = os.path.join(remote.directory, _any_name(found))
    if RemoteFile.LOG in found.missing:
        what = "there is no .log to it: it was lost, or its deletion was not finished"
        return Severity.ERROR, path, what
    if remote.layout is Layout.AIVEN:
        path = os.path.join(remote.directory, found.objects[RemoteFile.LOG][0])
        return Severity.NOTE, path, "there is no manifest to it: a copy that was not finished, which nobody reads"
    missing = ", ".join(sorted(file.value for file in found.missing))
    return Severity.NOTE, path, f"its copy was not finished, or its deletion: there is no {missing}"
