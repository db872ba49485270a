"""Where the log of a partition goes on, and that it can: its end found, or made whole after a crash.

A directory that a broker stopped cleanly, or a sink wrote, needs no change. What a crash left is recovered as a broker
would: segments after the recovery point are checked, a torn tail is cut off, the indexes of the last segment are made
again. Damage that is no torn tail is refused: a broker would cut off everything after it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, read_leader_epochs
from kafkalog_spark.log.format.durable import descriptor
from kafkalog_spark.log.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from kafkalog_spark.log.format.offset_index import load_offset_index
from kafkalog_spark.log.format.producer_snapshot import format_producer_snapshot, read_producer_snapshot
from kafkalog_spark.log.format.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from kafkalog_spark.log.format.time_index import load_time_index
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.write.segment_recovery import OffsetOverflow, ordered_windows, recover_segment

FIRST_EPOCH = 0
"""Leader epoch of a log that has none yet."""


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """next_offset: the log end offset. leader_epoch: of the batches to come; epochs: what the checkpoint is to say
    then, None when it says so already. snapshot: producer state at the end, as a .snapshot holds it, None when it is
    not known."""

    next_offset: int
    leader_epoch: int
    epochs: tuple[EpochEntry, ...] | None
    snapshot: bytes | None


EMPTY_END = PartitionEnd(0, FIRST_EPOCH, (EpochEntry(FIRST_EPOCH, 0),), format_producer_snapshot([]))
"""Of a partition that is not there yet."""


def settle_partition(place: PartitionPlace, *, clean: bool) -> PartitionEnd:
    """Make the log whole where a crash left it otherwise, and say where it goes on.

    clean: a broker closed the log directory cleanly. Raises CorruptLog (CorruptBatch, UnsupportedFormat) for a log that
    only a broker may repair, NotALogDirectory, OSError; the records that were there stay.
    """
    try:
        log = place.open()
        unfinished = [
            name
            for name in log.names
            if name.endswith((names.SWAP_SUFFIX, names.CLEANED_SUFFIX)) and names.parse_segment_file(name)
        ]
        if unfinished:
            raise CorruptLog(
                f"{unfinished[0]} is left from a cleaning that was not finished",
                path=place.directory,
                hint="let a broker load the directory once",
            )
        if not clean:
            _check_unflushed(log)
        end = log.log_end
        if log.segments:
            _settle_last_segment(log)
        epochs = read_leader_epochs(Path(place.directory) / LEADER_EPOCH_CHECKPOINT)
    except OffsetOverflow as overflow:
        raise CorruptLog(
            str(overflow),
            topic_partition=f"{place.topic}-{place.partition}",
            hint="let a broker load the directory once: it splits the segment",
        ) from None
    except KafkalogError as error:
        raise error.at(topic_partition=f"{place.topic}-{place.partition}") from None
    epoch, changed = leader_epochs_at(epochs, end.offset)
    return PartitionEnd(end.offset, epoch, changed, _snapshot_at(log, end.offset))


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


def _settle_last_segment(log: PartitionLog) -> None:
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
    """Whether both indexes are there and cut to their entries, as rolling and a clean close leave them."""
    try:
        offset_size = path.with_suffix(names.OFFSET_INDEX_SUFFIX).stat().st_size
        time_size = path.with_suffix(names.TIME_INDEX_SUFFIX).stat().st_size
    except FileNotFoundError:
        return False
    offsets = load_offset_index(path.with_suffix(names.OFFSET_INDEX_SUFFIX), base_offset)
    times = load_time_index(path.with_suffix(names.TIME_INDEX_SUFFIX), base_offset)
    return len(offsets) * OFFSET_ENTRY_SIZE == offset_size and len(times) * TIME_ENTRY_SIZE == time_size > 0


def _snapshot_at(log: PartitionLog, offset: int) -> bytes | None:
    """The producer snapshot of the log's end, where a broker or a sink has left one."""
    for at, path in log.snapshots_up_to(offset):
        if at == offset:
            try:
                return format_producer_snapshot(read_producer_snapshot(path))
            except (CorruptLog, UnsupportedFormat):
                return None  # brokers drop it, too, and read the log instead
        break
    return format_producer_snapshot([]) if not log.segments or offset == 0 else None
