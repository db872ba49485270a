"""Runs of good batches and damaged stretches of one segment, as they follow from the verdicts on its batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.read.header_windows import HeaderTable, batch_end
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import proven_entry
from kafkalog_spark.log.repair.batch_verdicts import judge_batches
from kafkalog_spark.log.repair.damaged_segment import Damage


@dataclass(slots=True)
class GoodRun:
    """Good batches that fill the bytes [position, end) of a .log file, with the offsets base_offset to last_offset."""

    position: int
    end: int
    base_offset: int
    last_offset: int


@dataclass(slots=True, order=True)
class DamagedStretch:
    """Bytes [position, position + size) of a .log file between two good batches; `size` is 0 if the file was truncated.

    Attributes:
        error: What is wrong.
        path: Path of the .log file.
        first_offset: Offset after the good batch before the bytes.
        next_offset: Base offset of the next good batch, or of the next segment; None at the end of the log. Compaction
            may have removed some of the offsets in between before the damage.
        reaches_end_of_file: True if no good batch follows in the file.
    """

    position: int
    size: int
    error: str
    path: str
    first_offset: int
    next_offset: int | None
    reaches_end_of_file: bool = False


@dataclass(slots=True)
class JudgedSegment:
    """All bytes of a segment except a torn tail: runs of good batches and damaged stretches, each in order."""

    runs: list[GoodRun] = field(default_factory=list)
    stretches: list[DamagedStretch] = field(default_factory=list)

    def add_run(self, run: GoodRun) -> None:
        """Add a run, or extend the last one if they are adjacent in the file."""
        if self.runs and self.runs[-1].end == run.position:
            self.runs[-1].end, self.runs[-1].last_offset = run.end, run.last_offset
        else:
            self.runs.append(run)


def judge_segment(file: SegmentFile, recovery_point: int | None) -> JudgedSegment:
    """Judge a whole segment. A torn tail does not count as damage.

    Args:
        file: The segment.
        recovery_point: See `windows_and_damage`.

    Raises:
        NotALogDirectory: If the file cannot be read.
    """
    judged = JudgedSegment()
    last_offset = file.first_offset - 1
    stretch: DamagedStretch | None = None  # the last one, until a good batch follows it
    for part in judge_batches(file, last_offset, recovery_point=recovery_point):
        if isinstance(part, Damage):
            if part.is_torn_tail:
                continue
            if stretch is None:
                stretch = DamagedStretch(
                    part.position,
                    part.size,
                    part.error,
                    file.path,
                    first_offset=last_offset + 1,
                    next_offset=file.next_base_offset,
                    reaches_end_of_file=True,
                )
                judged.stretches.append(stretch)
            else:
                stretch.size = part.position + part.size - stretch.position
            continue
        run = _run_of(part.table, last_offset)
        if stretch is not None:
            stretch.next_offset, stretch.reaches_end_of_file = run.base_offset, False
            stretch = None
        judged.add_run(run)
        last_offset = run.last_offset
    if stretch is None and file.is_whole:
        _add_missing_end(judged, file, last_offset + 1, recovery_point)
    return judged


def _run_of(table: HeaderTable, previous_offset: int) -> GoodRun:
    """Return the run of the batches in `table`. previous_offset: last offset of the batch before them."""
    base_offset = int(table[0, HeaderColumn.BASE_OFFSET])
    if table[0, HeaderColumn.COUNT] < 0:
        # The header of a compressed v0 or v1 wrapper message has only the last offset of its messages.
        base_offset = previous_offset + 1
    last_offset = int(table[-1, HeaderColumn.LAST_OFFSET])
    return GoodRun(int(table[0, HeaderColumn.POSITION]), batch_end(table[-1]), base_offset, last_offset)


def _add_missing_end(judged: JudgedSegment, file: SegmentFile, first_offset: int, recovery_point: int | None) -> None:
    """Add a stretch at the end of a file that ends with a good batch, if batches after it are provably missing.

    The proof is the recovery point for the last segment, and the offset index for all others.

    first_offset: offset after the last good batch.
    """
    if file.is_last:
        if recovery_point is None or recovery_point <= first_offset:
            return
        proof = f"the log was flushed up to offset {recovery_point} (recovery-point-offset-checkpoint)"
    else:
        missing = file.offset_index.ceiling_position(file.size)
        previous = file.offset_index.floor_position(file.size - 1)
        # Trust the index only if its previous entry is correct: it may be garbage, or belong to another file.
        if missing is None or not previous.position or proven_entry(file, previous) is None:
            return
        proof = f"its offset index names a batch at byte {missing.position}"
    error = f"the file ends here, and {proof}"
    judged.stretches.append(
        DamagedStretch(file.size, 0, error, file.path, first_offset, file.next_base_offset, reaches_end_of_file=True)
    )
