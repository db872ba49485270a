"""A segment as runs of good batches and the damaged stretches between them, with the offsets that are missing."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.format.layout import H
from kafkalog_spark.log.read.batch_search import find_batch_behind
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.repair.judged_batches import Lost, end_of, judged_batches

if TYPE_CHECKING:
    from kafkalog_spark.log.read.segment_scan import ScanState  # loads the kernels


@dataclass(slots=True)
class Run:
    """Good batches that are neighbours in the bytes [position, end), with offsets base_offset to last_offset."""

    position: int
    end: int
    base_offset: int
    last_offset: int


@dataclass(slots=True, order=True)
class Stretch:
    """Bytes [position, position + size) of a .log between good batches; size 0 where the file was cut after one.

    The offsets [first_offset, next_offset) lie between these: those that compaction had left are missing. next_offset:
    None at the end of the log. to_the_end: no good batch follows in the file.
    """

    position: int
    size: int
    error: str
    path: str
    first_offset: int
    next_offset: int | None
    to_the_end: bool = False


@dataclass(slots=True)
class JudgedSegment:
    """In the order of the file."""

    runs: list[Run] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)


def judged_segment(file: SegmentFile, recovery_point: int | None) -> JudgedSegment:
    """Judge a whole segment. What an interrupted write left at the end of the log is no damage. Raises
    NotALogDirectory."""
    found = JudgedSegment()
    last_offset, open_stretch = file.first_offset - 1, False
    for part in judged_batches(file, last_offset, recovery_point=recovery_point):
        if isinstance(part, Lost):
            if part.is_torn_tail:
                continue
            if open_stretch:
                found.stretches[-1].size = part.position + part.size - found.stretches[-1].position
            else:
                found.stretches.append(
                    Stretch(part.position, part.size, part.why, file.path, last_offset + 1, file.next_base_offset, True)
                )
            open_stretch = True
            continue
        table = part.table
        base, last = first_offset(table, last_offset), int(table[-1, H.LAST_OFFSET])
        if open_stretch:
            found.stretches[-1].next_offset, found.stretches[-1].to_the_end = base, False
        position, end = int(table[0, H.POSITION]), end_of(table[-1])
        if found.runs and found.runs[-1].end == position:
            found.runs[-1].end, found.runs[-1].last_offset = end, last
        else:
            found.runs.append(Run(position, end, base, last))
        last_offset, open_stretch = last, False
    if not open_stretch and file.is_whole:
        _add_what_was_cut_off(found, file, last_offset + 1, recovery_point)
    return found


def first_offset(table: np.ndarray, last_offset: int) -> int:
    """The lowest offset that the first batch of a header table can hold, after `last_offset`: a wrapper's header names
    its last one only."""
    return last_offset + 1 if table[0, H.COUNT] < 0 else int(table[0, H.BASE_OFFSET])


def _add_what_was_cut_off(found: JudgedSegment, file: SegmentFile, first: int, recovery_point: int | None) -> None:
    """What is missing of a file that ends with a good batch, where something proves that more lay there: an entry of
    its offset index, or at the end of the log the recovery point."""
    if file.is_last:
        if recovery_point is None or recovery_point <= first:
            return
        proof = f"the log was flushed up to offset {recovery_point} (recovery-point-offset-checkpoint)"
    else:
        beyond = file.offset_index.ceiling_position(file.size)
        before = file.offset_index.floor_position(file.size - 1)
        # believed where the entry before it is true: an index may be garbage, or another file's
        if beyond is None or not before.position or file.proven_entry(before) is None:
            return
        proof = f"its offset index names a batch at byte {beyond.position}"
    error = f"the file ends here, and {proof}"
    found.stretches.append(Stretch(file.size, 0, error, file.path, first, file.next_base_offset, True))


def pass_over_records(
    part: SegmentFile, state: ScanState, error: KafkalogError, run: Run, judged: JudgedSegment
) -> bool:
    """Add a batch of a run whose records cannot be read, under a valid CRC, to the stretches, and move `state` past it;
    False at the end of the run, which is that of the file `part`."""
    damaged = state.position if error.position is None else error.position
    header = part.header_at(damaged)
    assert header is not None  # its CRC was found right
    following = find_batch_behind(part, damaged, header.last_offset + 1)
    next_offset = header.last_offset + 1 if following is None else following.base_offset
    insort(
        judged.stretches,
        Stretch(damaged, header.size, error.what, part.path, header.base_offset, next_offset),
        key=lambda stretch: stretch.position,
    )
    if following is None:
        return False
    state.stopped_by = None
    state.position, state.lowest_offset = following.position, following.base_offset
    return True
