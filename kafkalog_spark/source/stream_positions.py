"""Positions of a stream compared with the logs as they are: where the next batch begins and may end."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kafkalog_spark.errors import DataLoss
from kafkalog_spark.source.bound_resolution import clip
from kafkalog_spark.source.data_loss import created_again, offset_changed, partitions_deleted, records_lost
from kafkalog_spark.source.live_log import LiveLog
from kafkalog_spark.source.offset_range import OffsetRange
from kafkalog_spark.source.offsets import (
    EARLIEST,
    LATEST,
    TopicPartition,
    tp_text,
)


@dataclass
class Continuation:
    """Start and largest extent of the next batch. `starts` and `ends` name the same partitions. `moved`: those whose
    position moves without anything being read; no limit changes their end."""

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    moved: set[TopicPartition] = field(default_factory=set)
    losses: list[DataLoss] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Seen:
    """Topic id and end for readers that a partition had when offsets were last handed out."""

    topic_id: uuid.UUID | None
    end: int = 0


UNSEEN = Seen(None)


def continue_from(
    start: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LiveLog],
    seen: Mapping[TopicPartition, Seen],
    present: Collection[TopicPartition] = (),
    named: Callable[[TopicPartition], bool] = lambda tp: False,
) -> Continuation:
    """Compare the offsets `start`, perhaps EARLIEST and LATEST, with the logs as they are. `present`: partitions that
    exist, read or not.

    A deleted partition that the options name (`named`) keeps its position if its topic id is known: when it comes back,
    the id tells whether it is the same topic. Other deleted partitions are dropped, or the offsets of a query with a
    pattern would grow for ever.
    """
    next_batch = Continuation()
    gone = start.keys() - logs.keys()
    if gone:
        next_batch.losses.append(partitions_deleted(gone, gone.intersection(present)))
    kept = {tp: start[tp] for tp in gone if start[tp] >= 0 and named(tp) and seen.get(tp, UNSEEN).topic_id is not None}
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
            if what := created_again(tp[0], before.topic_id, log.topic_id):
                if offset > end:
                    what = f"{offset_changed(tp, offset, end)} {what}"
                if offset or before.end:  # else it was empty
                    next_batch.losses.append(records_lost(tp, what, offset))
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
    """The ranges of a batch that Spark has decided on, without empty ones, by topic and partition. Raises DataLoss, or
    with `fail_on_data_loss=False` leaves out what is gone. A batch of before may reach up to a log's own end whatever
    the LSO is.

    `topic_ids`: those of `end`. A topic that was created again since then has none of the batch's records.

    `first`: `start` are the offsets that the query began with. They were looked up again if the query was restarted
    before its first batch was done, and may then lie past that batch's end: it is empty.
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
        if what := created_again(tp[0], topic_ids.get(tp[0]), log.topic_id):
            if fail_on_data_loss:
                raise records_lost(tp, what, until)
            _log.warning("%s", records_lost(tp, what, until))
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
    """Return the id of each topic, of (topic, topic id) of its partitions.

    A topic whose partitions have different ids is left out: it is being created again, and at the next trigger all its
    partitions have the new id.
    """
    by_topic: dict[str, set[uuid.UUID]] = {}
    for topic, topic_id in ids:
        if topic_id is not None:
            by_topic.setdefault(topic, set()).add(topic_id)
    return {topic: one for topic, (one, *others) in by_topic.items() if not others}


_log = logging.getLogger(__name__)
