"""Comparison of a stream's positions with the present logs: the start and the extent of the next batch.

No I/O. The cases of data loss are those of Spark's Kafka source (`data_loss`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kafkalog_spark.errors import DataLoss
from kafkalog_spark.source.bounds import EARLIEST, LATEST
from kafkalog_spark.source.data_loss import created_again, offset_changed, partitions_deleted, records_lost
from kafkalog_spark.source.live_log import LiveLog
from kafkalog_spark.source.offset_range import OffsetRange
from kafkalog_spark.source.range_clipping import clip
from kafkalog_spark.source.topic_partitions import TopicPartition, tp_text

_log = logging.getLogger(__name__)


@dataclass
class Continuation:
    """Start and largest extent of the next batch. `starts` and `ends` have the same partitions.

    Attributes:
        starts: First offset of each partition.
        ends: Offset behind the last one, before limits are applied.
        moved: Partitions whose position changes although no record is read. Limits do not change their end.
        losses: Records that the stream misses.
    """

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    moved: set[TopicPartition] = field(default_factory=set)
    losses: list[DataLoss] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Seen:
    """Topic ID and visible end of a partition when Spark last received offsets."""

    topic_id: uuid.UUID | None
    end: int = 0


UNSEEN = Seen(None)


def continue_from(
    start: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LiveLog],
    seen: Mapping[TopicPartition, Seen],
    present: Collection[TopicPartition] = (),
    is_named: Callable[[TopicPartition], bool] = lambda tp: False,
) -> Continuation:
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
    next_batch = Continuation()
    gone = start.keys() - logs.keys()
    if gone:
        next_batch.losses.append(partitions_deleted(gone, gone.intersection(present)))
    kept = {
        tp: start[tp] for tp in gone if start[tp] >= 0 and is_named(tp) and seen.get(tp, UNSEEN).topic_id is not None
    }
    next_batch.starts |= kept
    next_batch.ends |= kept
    for tp, log in logs.items():
        offset = start.get(tp)
        position, end = log.log_start, log.readers_end
        if offset is None:
            if position > 0:
                next_batch.losses.append(
                    records_lost(tp, f"Added partition {tp_text(tp)} starts from {position} instead of 0.")
                )
        elif offset == LATEST:
            position = end
        elif offset != EARLIEST:
            before = seen.get(tp, UNSEEN)
            if reason := created_again(tp[0], before.topic_id, log.topic_id):
                if offset > end:
                    reason = f"{offset_changed(tp, offset, end)} {reason}"
                if offset or before.end:  # otherwise the old topic was empty
                    next_batch.losses.append(records_lost(tp, reason, offset))
                if offset > position:
                    next_batch.moved.add(tp)
                    position, end = offset, position
            elif offset < position:
                reason = (
                    f"Could not read records in offset [{offset}, {end}) for topic partition {tp_text(tp)}: the log "
                    f"begins at offset {position}."
                )
                next_batch.losses.append(records_lost(tp, reason, offset))
            else:
                position = offset
                if offset > end:
                    next_batch.moved.add(tp)
                    next_batch.losses.append(records_lost(tp, offset_changed(tp, offset, end), offset))
        next_batch.starts[tp], next_batch.ends[tp] = position, end
    return next_batch


def batch_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LiveLog],
    *,
    topic_ids: Mapping[str, uuid.UUID] = MappingProxyType({}),
    first: bool,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """Return the ranges of a batch whose end Spark has stored, sorted by topic and partition. Empty ranges are left
    out.

    A batch that an earlier run has planned may reach up to the end of the log, whatever the LSO is now.

    Args:
        start: Start of the batch.
        end: End of the batch.
        logs: The present logs.
        topic_ids: Topic IDs that belong to `end`. If a topic was created again since, its log has none of the records.
        first: True if `start` is the start of the query. If the query was restarted before its first batch was done,
            that start was looked up again and may be beyond the end of the batch. The batch is then empty.
        fail_on_data_loss: Raise DataLoss; otherwise leave out the missing records, with a warning.

    Raises:
        DataLoss: If the logs do not hold the batch.
    """
    ranges = []
    for tp in sorted(end):
        offset, until = start.get(tp, EARLIEST), end[tp]
        if offset in (until, LATEST):
            continue
        log = logs.get(tp)
        if log is None:
            if fail_on_data_loss:
                raise partitions_deleted({tp})
            continue
        if reason := created_again(tp[0], topic_ids.get(tp[0]), log.topic_id):
            if fail_on_data_loss:
                raise records_lost(tp, reason, until)
            _log.warning("%s", records_lost(tp, reason, until))
            continue
        if offset == EARLIEST:
            begin = min(log.log_start, until)
            wanted = OffsetRange(*tp, begin, until, from_earliest=True)
        elif offset > until:
            if fail_on_data_loss and not first:
                raise records_lost(tp, offset_changed(tp, offset, until), offset)
            continue
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
