"""Checks a partition's remote segments: each segment by itself, and that all of them form one log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from kafkalog_spark.errors import KafkalogError, KeyNotGiven
from kafkalog_spark.log.check.finding import Fault, Findings, Severity
from kafkalog_spark.log.check.partition_check import PartitionResult
from kafkalog_spark.log.check.remote_segment_check import RemoteSegmentCheck, overlap_faults
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.remote.part_finder import PartFinder
from kafkalog_spark.log.remote.remote_dir_listing import RemoteDirListing
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.remote.tiered_log import TieredLocation
from kafkalog_spark.log.tiered.lineage_merge import SkipReason
from kafkalog_spark.log.tiered.object_keys import Layout, RemoteFile, RemoteObjects, group_by_segment


@dataclass(slots=True)
class TierCheck:
    """Checks a partition's remote segments.

    Attributes:
        location: Location of the partition. Its log directory, if any, is checked separately.
        findings: Gets the faults.
        on_bytes: Called with the number of bytes that were checked since the last call.
        decode_records: Also decode the records.
        result: Totals, to which those of the remote segments are added.
    """

    location: TieredLocation
    findings: Findings
    on_bytes: Callable[[int], None]
    decode_records: bool = False
    result: PartitionResult = field(default_factory=PartitionResult)

    def run(self) -> PartitionResult:
        """Check the remote segments. Segments that are deleted during the check are not reported."""
        stored = [segment for remote_dir in self.location.remote for segment in self._complete_segments(remote_dir)]
        stored.sort(
            key=lambda item: (item.segment.partition.topic_id, item.segment.start_offset, item.segment.end_offset)
        )
        checks = self._check_segments(stored)
        self._check_overlaps(checks.values())
        if len(checks) == len(stored):
            self._check_log()
        return self.result

    def _check_segments(self, stored: Iterable[StoredSegment]) -> dict[str, RemoteSegmentCheck]:
        """Check each segment by itself. Returns the checks by the names of the segments."""
        checks: dict[str, RemoteSegmentCheck] = {}
        previous: RemoteSegmentCheck | None = None
        for item in stored:
            segment = item.segment
            open_before: dict[int, int] | None = None
            if segment.start_offset == 0:
                open_before = {}
            elif previous is not None and (previous.stored.segment.partition, previous.stored.segment.until) == (
                segment.partition,
                segment.start_offset,
            ):
                open_before = previous.open_after
            check = RemoteSegmentCheck(
                item, self.location.options.keys, self.findings, open_before, self.decode_records, self.on_bytes
            )
            result = check.run()
            self.result.segments += 1
            if result is None:
                self.result.is_incomplete = True
            else:
                self.result.add(result)
            previous = checks[segment.name] = check
        return checks

    def _check_overlaps(self, checks: Iterable[RemoteSegmentCheck]) -> None:
        """Compare the batches of segments with common offsets."""
        for first, second in combinations(checks, 2):
            a, b = first.stored.segment, second.stored.segment
            start, until = max(a.start_offset, b.start_offset), min(a.until, b.until)
            # Segments of different leader epochs may differ: after an unclean election, one of them is not read.
            if a.partition == b.partition and start < until and a.leader_epochs == b.leader_epochs:
                faults = overlap_faults(second.batches, first.batches, first.stored.log_path, start, until)
                self.findings.add_errors(second.stored.log_path, faults)

    def _complete_segments(self, remote_dir: RemoteDir) -> Iterator[StoredSegment]:
        """Yield the complete segments of a directory whose metadata can be read, and report all others."""
        listing = RemoteDirListing(remote_dir, self.location.options, pass_over_damage=True)
        try:
            listing.list_segments()
        except FileNotFoundError:
            return
        except OSError as error:
            self._add(Severity.ERROR, error.filename or remote_dir.directory, f"cannot be listed: {error.strerror}")
            return
        names = listing.listing.names
        by_segment = group_by_segment(names, remote_dir.layout, remote_dir.partition)
        segment_names = {name for objects in by_segment for name in objects.objects.values()}
        for name in sorted(set(names) - segment_names):
            self._add(Severity.NOTE, os.path.join(remote_dir.directory, name), "not an object of a tiered segment")
        for objects in by_segment:
            if objects.missing_files:
                self._add(*_incomplete(remote_dir, objects))
                continue
            try:
                (stored,) = listing.fetch_metadata([objects])
            except (KafkalogError, OSError) as error:
                self.findings.add_unreadable(error, os.path.join(remote_dir.directory, _any_name(objects)))
                continue
            if stored is not None:
                yield stored

    def _check_log(self) -> None:
        """Check that the segments, with the local ones, form one log without holes."""
        location = self.location
        name = f"{location.topic}-{location.partition}"
        finder = PartFinder(name, location.remote, location.options, location.metadata, pass_over_damage=True)
        try:
            local = location.in_log_directory.open(pass_over_damage=True) if location.is_local else None
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
            if excluded.reason in (SkipReason.LOCAL, SkipReason.BELOW_LOG_START):
                continue  # retention has not deleted the segment yet
            path = f"{directory}/{excluded.segment.name}"
            self._add(Severity.NOTE, path, f"the segment is not read: {excluded.reason.value}")

    def _add(self, severity: Severity, path: str, what: str) -> None:
        self.findings.add(severity, path, Fault(what))


def _any_name(objects: RemoteObjects) -> str:
    """Return the name of the manifest, or of another object of the segment if it has none."""
    return objects.objects[min(objects.objects, key=lambda file: file is not RemoteFile.MANIFEST)]


def _incomplete(remote_dir: RemoteDir, objects: RemoteObjects) -> tuple[Severity, str, str]:
    """Return severity, path and text of the finding for a segment of which objects are missing."""
    path = os.path.join(remote_dir.directory, _any_name(objects))
    if RemoteFile.LOG in objects.missing_files:
        return Severity.ERROR, path, "the segment has no .log object: it was lost, or a deletion did not complete"
    if remote_dir.layout is Layout.AIVEN:
        path = os.path.join(remote_dir.directory, objects.objects[RemoteFile.LOG])
        return Severity.NOTE, path, "the segment has no manifest, so readers skip it: its upload did not complete"
    missing = ", ".join(sorted(file.value for file in objects.missing_files))
    return Severity.NOTE, path, f"the segment has no {missing}: its upload or its deletion did not complete"
