"""Data loss of a stream between two looks at its partitions, and where it continues. Decisions on plain values.

The cases and their words are those of Spark's Kafka source (KAFKA_DATA_LOSS in its kafka-error-conditions.json;
KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets). They are judged before Spark writes the batch to its
checkpoint, so that a query that fails leaves the checkpoint as it was.

A batch whose end lies below its start reads nothing: the position moves back. That is how a stream with
failOnDataLoss=false goes on in a topic that was created again (from its beginning) or in a log that was cut.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kafkalog_spark.errors import DataLoss
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.source.offsets import EARLIEST, LATEST, TopicPartition, set_text, tp_text
from kafkalog_spark.source.partition_bounds import MAY_BE_LOST, OffsetRange, clip

_BROKEN = (
    "This could either be a user error that the start offset is set too high and this is the first batch, or the "
    "kafka topic-partition is broken, and some data may have been missed."
)


@dataclass(frozen=True, slots=True)
class LogState:
    """State of a partition's log: the offsets it holds, where readers have to stop, which topic it belongs to."""

    log_start: int
    readers_end: int
    topic_id: uuid.UUID | None = None


@dataclass
class Continuation:
    """Where the next batch begins and what it could hold. `starts` and `ends` name the same partitions.

    `moved`: partitions whose position moves without anything being read; their end is not for any limit to change.
    """

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    moved: set[TopicPartition] = field(default_factory=set)
    losses: list[DataLoss] = field(default_factory=list)


def continue_from(
    start: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LogState],
    seen: Mapping[TopicPartition, LogState],
    present: Collection[TopicPartition] = (),
) -> Continuation:
    """Compare the offsets `start` with the logs as they are.

    `start` may hold EARLIEST and LATEST. `seen`: what they were when offsets were
    last handed out, as far as this process knows.
    `present`: partitions that exist, whether read or not.
    """
    next_batch = Continuation()
    gone = start.keys() - logs.keys()
    if gone:
        next_batch.losses.append(deleted(gone, gone.intersection(present)))
    for tp, log in logs.items():
        offset = start.get(tp)
        position, end = log.log_start, log.readers_end
        if offset is None:
            if log.log_start > 0:
                next_batch.losses.append(
                    _lost(tp, f"Added partition {tp_text(tp)} starts from {log.log_start} instead of 0.")
                )
        elif offset == LATEST:
            position = end
        elif offset != EARLIEST:
            position = offset
            before = seen.get(tp)
            if before is not None and None not in (before.topic_id, log.topic_id) and before.topic_id != log.topic_id:
                position, end = _begun_anew(next_batch, tp, offset, log, before)
            elif offset > log.readers_end:
                next_batch.moved.add(tp)
                next_batch.losses.append(_lost(tp, offset_changed(tp, offset, end), offset))
            elif offset < log.log_start:
                position = log.log_start
                reason = (
                    f"Could not read records in offset [{offset}, {end}) for topic partition {tp_text(tp)}: the log "
                    f"begins at offset {position}."
                )
                next_batch.losses.append(_lost(tp, reason, offset))
        next_batch.starts[tp], next_batch.ends[tp] = position, end
    return next_batch


def _begun_anew(
    next_batch: Continuation, tp: TopicPartition, offset: int, log: LogState, before: LogState
) -> tuple[int, int]:
    """(start, end) in a topic that was deleted and created again."""
    assert before.topic_id is not None
    assert log.topic_id is not None
    what = (
        f"Topic {tp[0]} was deleted and created again: its id was {uuid_to_text(before.topic_id)} and is "
        f"{uuid_to_text(log.topic_id)}."
    )
    if offset > log.readers_end:
        what = f"{offset_changed(tp, offset, log.readers_end)} {what}"
    if offset or before.readers_end:  # else it was empty
        next_batch.losses.append(_lost(tp, what, offset))
    if offset <= log.log_start:
        return log.log_start, log.readers_end
    next_batch.moved.add(tp)
    return offset, log.log_start


def batch_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LogState],
    log_ends: Mapping[TopicPartition, int],
    *,
    first: bool,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """The ranges of a batch that Spark has decided on, without empty ones, by topic and partition.

    `log_ends`: the logs' own ends, which a batch of before may reach up to whatever the LSO is. `first`: `start` are
    the offsets that the query began with. They were looked up again if the query was restarted before its first batch
    was done, and may then lie past that batch's end: it is empty.
    Raises DataLoss, or with `fail_on_data_loss=False` leaves out what is gone.
    """
    ranges = []
    for tp in sorted(end):
        offset, until = start.get(tp, EARLIEST), end[tp]
        if offset in (until, LATEST):
            continue
        log = logs.get(tp)
        if log is None:
            if fail_on_data_loss:
                raise deleted({tp})
            continue
        if offset == EARLIEST:
            begin = min(log.log_start, until)
            wanted = OffsetRange(*tp, begin, until, from_earliest=True)
        elif offset > until:
            if fail_on_data_loss and not first:
                raise _lost(tp, offset_changed(tp, offset, until), offset)
            continue
        else:
            wanted = OffsetRange(*tp, offset, until)
        clipped = clip(wanted, log.log_start, log_ends[tp], fail_on_data_loss)
        if clipped.size > 0:
            ranges.append(clipped)
    return ranges


def offset_changed(tp: TopicPartition, before: int, now: int) -> str:
    return f"Partition {tp_text(tp)} offset was changed from {before} to {now}. {_BROKEN}"


def deleted(partitions: Collection[TopicPartition], not_read: Collection[TopicPartition] = ()) -> DataLoss:
    what = f"Partitions {set_text(partitions)} have been deleted."
    hint = None
    if not_read:
        hint = (
            f"the log directory holds {set_text(not_read)}, which the query does not read: is the checkpoint that of "
            "a query of other topics?"
        )
    return DataLoss(MAY_BE_LOST.format("streaming query") + what, hint=hint)


def created_again(tp: TopicPartition) -> DataLoss:
    """A task finds the directory of another topic of the same name."""
    return _lost(tp, f"Topic {tp[0]} was deleted and created again while a batch of it was read.")


def _lost(tp: TopicPartition, reason: str, offset: int | None = None) -> DataLoss:
    return DataLoss(MAY_BE_LOST.format("streaming query") + reason, topic_partition=tp_text(tp), offset=offset)
