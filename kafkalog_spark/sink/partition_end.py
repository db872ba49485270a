"""Append position of a partition: finds, and on a disk if need be recovers, the end of its log.

A directory that a broker stopped cleanly, or a sink wrote, needs no change. What a crash left is recovered as a broker
would: segments after the recovery point are checked, a torn tail is cut off, the indexes of the last segment are made
again. Damage that is no torn tail is refused: a broker would cut off everything after it. In a bucket objects cannot be
cut: a log that has to be is refused.
"""

from __future__ import annotations

import os
from pathlib import Path

from kafkalog_spark.errors import CorruptLog, KafkalogError
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import descriptor
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, read_leader_epochs
from kafkalog_spark.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from kafkalog_spark.format.offset_index import load_offset_index
from kafkalog_spark.format.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from kafkalog_spark.format.time_index import load_time_index
from kafkalog_spark.log.read.partition_log import Checkpoints, PartitionLocation, PartitionLog, leader_epochs
from kafkalog_spark.log.write.segment_recovery import OffsetOverflow, ordered_windows, recover_segment
from kafkalog_spark.sink.commit_plan import PartitionEnd, PlannedSegment

FIRST_EPOCH = 0
"""Leader epoch of a log that has none yet."""

EMPTY_END = PartitionEnd(0, FIRST_EPOCH, (EpochEntry(FIRST_EPOCH, 0),))
"""Append position of a partition that is not there yet."""

_LOAD = "let a broker load the directory once"
_REPAIR = "copy the partition's directory to a disk, let a broker load it once, and put it back; nothing was written"


def recover_and_locate_end(location: PartitionLocation, *, clean: bool) -> PartitionEnd:
    """Append position on a disk; the log is made whole where a crash left it otherwise.

    clean: a broker closed the log directory cleanly. Raises CorruptLog (CorruptBatch, UnsupportedFormat) for a log that
    only a broker may repair, NotALogDirectory, OSError; the records that were there stay.
    """
    try:
        log = location.open()
        _check_cleaned(log, _LOAD)
        if not clean:
            _check_unflushed(log)
        end = log.log_end
        if log.segments:
            _recover_last_segment(log)
        epochs = read_leader_epochs(Path(location.directory) / LEADER_EPOCH_CHECKPOINT)
    except OffsetOverflow as overflow:
        raise CorruptLog(
            str(overflow),
            topic_partition=f"{location.topic}-{location.partition}",
            hint=f"{_LOAD}: it splits the segment",
        ) from None
    except KafkalogError as error:
        raise error.at(topic_partition=f"{location.topic}-{location.partition}") from None
    return PartitionEnd(end.offset, *leader_epochs_at(epochs, end.offset))


def locate_end_in_bucket(
    location: PartitionLocation, last: PlannedSegment | None, checkpoints: Checkpoints
) -> PartitionEnd:
    """Append position in a bucket. One LIST, if `last`, the partition's last segment by the newest commit, is still the
    last one; else the end is looked for as readers do.

    What lies before the last segment is believed. Raises CorruptLog for a log that has to be cut or cleaned first,
    NotALogDirectory, FileNotFoundError.
    """
    log = location.open_unread()
    if (
        last is not None
        and log.segments
        and log.segments[-1].base_offset == last.base_offset
        and log.size_of(len(log.segments) - 1) == last.size
    ):
        return PartitionEnd(last.next_offset, last.leader_epoch, None)
    try:
        _check_cleaned(log, _REPAIR)
        log = location.open(checkpoints=checkpoints)
        end = log.log_end
        size = log.size_of(len(log.segments) - 1) if log.segments else 0
        if size != end.position:
            raise CorruptLog(
                f"the last segment has {size - end.position} bytes after its last whole batch, at byte {end.position}, "
                "as a crash or a copy of a running broker's file leaves them; an object cannot be cut",
                path=os.path.join(location.directory, log.segments[-1].log),
                position=end.position,
                offset=end.offset,
                hint=_REPAIR,
            )
    except KafkalogError as error:
        error.hint = error.hint or _REPAIR
        raise error.at(topic_partition=f"{location.topic}-{location.partition}") from None
    replaces = bool(log.segments) and size == 0 and log.segments[-1].base_offset == end.offset
    epochs = leader_epochs(location.store, location.directory)
    return PartitionEnd(end.offset, *leader_epochs_at(epochs, end.offset), replaces)


def _check_cleaned(log: PartitionLog, hint: str) -> None:
    for name in log.names:
        if name.endswith((names.SWAP_SUFFIX, names.CLEANED_SUFFIX)) and names.parse_segment_file(name):
            raise CorruptLog(f"{name} is left from a cleaning that was not finished", path=log.directory, hint=hint)


def leader_epochs_at(epochs: list[EpochEntry], next_offset: int) -> tuple[int, tuple[EpochEntry, ...] | None]:
    """(epoch of batches from `next_offset` on, the entries that the checkpoint needs for them or None).

    The latest epoch goes on. An entry after the end, of a leader that was cut off, begins at the end.
    """
    epoch = epochs[-1].epoch if epochs else FIRST_EPOCH
    kept = [entry for entry in epochs if entry.start_offset <= next_offset]
    if kept and kept[-1].epoch == epoch:
        return epoch, None
    return epoch, (*(entry for entry in kept if entry.start_offset < next_offset), EpochEntry(epoch, next_offset))


def _check_unflushed(log: PartitionLog) -> None:
    """Check the batches of the segments between the recovery point and the last one, and flush them.

    Nothing is appended after damage: recovery would cut the records off again.
    """
    first = log.segment_index(log.recovery_point or 0)
    for segment in log.segments[first:-1]:
        path = os.path.join(log.directory, segment.log)
        with descriptor(path) as fd:
            try:
                for _, wrong in ordered_windows(fd, Path(path), segment.base_offset, os.fstat(fd).st_size):
                    if wrong is not None:
                        raise wrong
                os.fsync(fd)
            except KafkalogError as error:
                error.hint = error.hint or "let a broker recover the directory, or restore the segment from a backup"
                raise error.at(path=path) from None


def _recover_last_segment(log: PartitionLog) -> None:
    """Cut a torn tail off the last segment and complete its indexes, unless it was closed."""
    last, end = log.segments[-1], log.log_end
    path = Path(log.directory, last.log)
    if path.stat().st_size == end.position and (end.position == 0 or _was_closed(path, last.base_offset)):
        return
    if path.stat().st_size > end.position:
        os.truncate(path, end.position)  # before the indexes: `end` is what was proven
    recovered = recover_segment(Path(log.directory), last.base_offset, sync=True)
    if end.position and recovered.next_offset != end.offset:
        raise CorruptLog(
            f"the log ends at offset {end.offset}, but recovery of its last segment at {recovered.next_offset}",
            path=str(path),
            hint="let a broker recover the directory",
        )


def _was_closed(path: Path, base_offset: int) -> bool:
    """True when both indexes are there and cut to their entries, as rolling and a clean close leave them."""
    try:
        offset_size = path.with_suffix(names.OFFSET_INDEX_SUFFIX).stat().st_size
        time_size = path.with_suffix(names.TIME_INDEX_SUFFIX).stat().st_size
    except FileNotFoundError:
        return False
    offsets = load_offset_index(path.with_suffix(names.OFFSET_INDEX_SUFFIX), base_offset)
    times = load_time_index(path.with_suffix(names.TIME_INDEX_SUFFIX), base_offset)
    return len(offsets) * OFFSET_ENTRY_SIZE == offset_size and len(times) * TIME_ENTRY_SIZE == time_size > 0
