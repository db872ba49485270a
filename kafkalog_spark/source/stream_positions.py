"""Comparison of a stream's positions with the present logs: the offsets of the next batch, and those of a logged batch.

No I/O. The cases of data loss are those of Spark's Kafka source (`data_loss`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from kafkalog_spark.errors import DataLoss
from kafkalog_spark.source.bounds import EARLIEST, LATEST
from kafkalog_spark.source.data_loss import offset_changed, partitions_deleted, records_lost, recreation_reason
from kafkalog_spark.source.live_log import LiveLog
from kafkalog_spark.source.offset_range import OffsetRange
from kafkalog_spark.source.range_clipping import clip
from kafkalog_spark.source.topic_partitions import TopicPartition, tp_text

_log = logging.getLogger(__name__)


@dataclass
class NextBatch:
    """Offsets of the next batch before rate limits are applied. `starts` and `ends` have the same partitions.

    Attributes:
        starts: First offset of each partition.
        ends: End offset (exclusive) of each partition.
        jumped: Partitions that move to a lower offset without reading: their end is below their start. Rate limits
            leave them alone.
        losses: Records that the stream misses.
    """

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    jumped: set[TopicPartition] = field(default_factory=set)
    losses: list[DataLoss] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Seen:
    """Topic ID and visible end of a partition when Spark last received offsets."""

    topic_id: uuid.UUID | None
    visible_end: int = 0


UNSEEN = Seen(None)


def plan_next_batch(
    start: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LiveLog],
    seen: Mapping[TopicPartition, Seen],
    present: Collection[TopicPartition] = (),
    is_named: Callable[[TopicPartition], bool] = lambda tp: False,
) -> NextBatch:
    """Compare the positions of a stream with the present logs.

    A deleted partition that the options name keeps its position if its topic ID is known: if the partition returns, the
    ID tells whether it is the same topic. Other deleted partitions are dropped, because otherwise the offsets of a
    query with a pattern would grow without limit.

    Args:
        start: The positions, perhaps EARLIEST or LATEST.
        logs: The logs of the partitions that are read.
        seen: State of the partitions at earlier triggers.
        present: All existing partitions, read or not.
        is_named: Returns True for a partition that the options name.
    """
    next_batch = NextBatch()
    deleted = start.keys() - logs.keys()
    if deleted:
        next_batch.losses.append(partitions_deleted(deleted, deleted.intersection(present)))
    for tp in deleted:
        if start[tp] >= 0 and is_named(tp) and seen.get(tp, UNSEEN).topic_id is not None:
            next_batch.starts[tp] = next_batch.ends[tp] = start[tp]
    for tp, log in logs.items():
        step = _next_step(tp, start.get(tp), log, seen.get(tp, UNSEEN))
        next_batch.starts[tp], next_batch.ends[tp] = step.start, step.end
        if step.is_jump:
            next_batch.jumped.add(tp)
        if step.loss is not None:
            next_batch.losses.append(step.loss)
    return next_batch


def logged_batch_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LiveLog],
    *,
    topic_ids: Mapping[str, uuid.UUID] = MappingProxyType({}),
    is_first_batch: bool,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """Return the non-empty ranges of a batch that Spark has logged, sorted by topic and partition.

    A batch that an earlier run has planned may reach up to the end of the log, whatever the LSO is now.

    Args:
        start: Start of the batch.
        end: End of the batch.
        logs: The present logs.
        topic_ids: Topic IDs that belong to `end`. If a topic was created again since, its log has none of the records.
        is_first_batch: True if `start` is the start of the query. If the query was restarted before its first batch was
            done, that start was looked up again and may be beyond the end of the batch. The batch is then empty.
        fail_on_data_loss: Raise DataLoss for missing records; otherwise leave them out with a warning. A partition that
            jumps to a lower offset gets no second warning, because plan_next_batch has reported it.

    Raises:
        DataLoss: If the logs do not hold the batch.
    """
    to_read = {tp: start.get(tp, EARLIEST) for tp in sorted(end)}
    to_read = {tp: offset for tp, offset in to_read.items() if offset not in (end[tp], LATEST)}
    if deleted := to_read.keys() - logs.keys():
        _raise_or_warn(partitions_deleted(deleted), fail_on_data_loss)
    ranges = []
    for tp, offset in to_read.items():
        if tp in deleted:
            continue
        log, until = logs[tp], end[tp]
        if reason := recreation_reason(tp[0], topic_ids.get(tp[0]), log.topic_id):
            _raise_or_warn(records_lost(tp, reason, until), fail_on_data_loss)
            continue
        if offset > until:
            if fail_on_data_loss and not is_first_batch:
                raise records_lost(tp, offset_changed(tp, offset, until), offset)
            continue
        if offset == EARLIEST:
            wanted = OffsetRange(*tp, min(log.log_start, until), until, from_earliest=True)
        else:
            wanted = OffsetRange(*tp, offset, until)
        clipped = clip(wanted, log.log_start, log.log_end.offset, fail_on_data_loss)
        if clipped.size > 0:
            ranges.append(clipped)
    return ranges


def agreed_ids(ids: Iterable[tuple[str, uuid.UUID | None]]) -> dict[str, uuid.UUID]:
    """Return the ID of each topic.

    A topic whose partitions have different IDs is left out: it is being created again, and at the next trigger all its
    partitions will have the new ID.

    Args:
        ids: Topic and topic ID of each partition.
    """
    by_topic: dict[str, set[uuid.UUID]] = {}
    for topic, topic_id in ids:
        if topic_id is not None:
            by_topic.setdefault(topic, set()).add(topic_id)
    return {topic: topic_id for topic, (topic_id, *others) in by_topic.items() if not others}


class _Step(NamedTuple):
    """Offsets of one partition in the next batch.

    Attributes:
        start: First offset.
        end: End offset (exclusive).
        loss: Records that the stream misses.
        is_jump: True if the partition moves to a lower offset without reading.
    """

    start: int
    end: int
    loss: DataLoss | None = None
    is_jump: bool = False


def _next_step(tp: TopicPartition, position: int | None, log: LiveLog, before: Seen) -> _Step:
    """Return the next step of a partition.

    Args:
        tp: The partition.
        position: Position of the stream, perhaps EARLIEST or LATEST; None for an added partition.
        log: The present log.
        before: State of the partition at earlier triggers.
    """
    log_start, end = log.log_start, log.readers_end
    if position is None:
        reason = f"Added partition {tp_text(tp)} starts from {log_start} instead of 0."
        return _Step(log_start, end, records_lost(tp, reason) if log_start > 0 else None)
    if position == LATEST:
        return _Step(end, end)
    if position == EARLIEST:
        return _Step(log_start, end)
    if reason_of_new := recreation_reason(tp[0], before.topic_id, log.topic_id):
        return _step_into_new_topic(tp, position, log, before, reason_of_new)
    if position < log_start:
        reason = (
            f"Could not read records in offset [{position}, {end}) for topic partition {tp_text(tp)}: the log begins "
            f"at offset {log_start}."
        )
        return _Step(log_start, end, records_lost(tp, reason, position))
    if position > end:
        return _Step(position, end, records_lost(tp, offset_changed(tp, position, end), position), is_jump=True)
    return _Step(position, end)


def _step_into_new_topic(tp: TopicPartition, position: int, log: LiveLog, before: Seen, reason: str) -> _Step:
    """Return the step of a partition whose topic was created again, to the beginning of the new log."""
    log_start, end = log.log_start, log.readers_end
    if position > end:
        reason = f"{offset_changed(tp, position, end)} {reason}"
    was_empty = not (position or before.visible_end)
    loss = None if was_empty else records_lost(tp, reason, position)
    if position > log_start:
        # Spark requires a batch to begin at the end of the last one. So this batch reads nothing: it leads from the old
        # position back to the log start, where the next batch begins.
        return _Step(position, log_start, loss, is_jump=True)
    return _Step(log_start, end, loss)


def _raise_or_warn(loss: DataLoss, fail_on_data_loss: bool) -> None:
    if fail_on_data_loss:
        raise loss
    _log.warning("%s", loss)
