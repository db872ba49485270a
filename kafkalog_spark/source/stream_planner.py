"""Planner of a stream, on the driver: where it begins, how far the next batch goes, and which tasks read it.

Data loss is judged before Spark writes the batch to its checkpoint, so that a query that fails leaves that as it was;
its cases and words are those of Spark's Kafka source (KAFKA_DATA_LOSS in its kafka-error-conditions.json;
KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets), and so are the limits of a batch
(KafkaMicroBatchStream.rateLimit, delayBatch). A batch whose end lies below its start reads nothing: the position moves
back. That is how a stream with failOnDataLoss=false goes on in a topic that was created again (from its beginning) or
in a log that was cut.

One planner serves one run of a query. What it remembers between triggers saves work and sees deleted topics; everything
that a restarted query needs is in the offsets.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kafkalog_spark.errors import CorruptBatch, DataLoss, OptionError, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.read.last_stable_offset import aborted_transactions
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import PositionHint, locate, proven_entry
from kafkalog_spark.source.filters import RowFilter
from kafkalog_spark.source.live_logs import LiveLog, LiveLogs
from kafkalog_spark.source.offsets import (
    AT_LATEST,
    EARLIEST,
    LATEST,
    Offsets,
    TopicPartition,
    set_text,
    tp_text,
)
from kafkalog_spark.source.options import RateLimits, ReadOptions
from kafkalog_spark.source.partition_bounds import (
    MAY_BE_LOST,
    OffsetRange,
    PartitionRange,
    bounds_of,
    clip,
    resolve_bounds,
)
from kafkalog_spark.source.planning import SegmentFacts, Split, segment_facts, splits_of

_BROKEN = (
    "This could either be a user error that the start offset is set too high and this is the first batch, or the "
    "kafka topic-partition is broken, and some data may have been missed."
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


_UNSEEN = Seen(None)


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
        next_batch.losses.append(deleted(gone, gone.intersection(present)))
    kept = {tp: start[tp] for tp in gone if start[tp] >= 0 and named(tp) and seen.get(tp, _UNSEEN).topic_id is not None}
    next_batch.starts |= kept
    next_batch.ends |= kept
    for tp, log in logs.items():
        offset = start.get(tp)
        position, end = log.log_start, log.readers_end
        if offset is None:
            if position > 0:
                next_batch.losses.append(
                    lost(tp, f"Added partition {tp_text(tp)} starts from {position} instead of 0.")
                )
        elif offset == LATEST:
            position = end
        elif offset != EARLIEST:
            before = seen.get(tp, _UNSEEN)
            if what := created_again(tp[0], before.topic_id, log.topic_id):
                if offset > end:
                    what = f"{offset_changed(tp, offset, end)} {what}"
                if offset or before.end:  # else it was empty
                    next_batch.losses.append(lost(tp, what, offset))
                if offset > position:
                    next_batch.moved.add(tp)
                    position, end = offset, position
            elif offset < position:
                reason = (
                    f"Could not read records in offset [{offset}, {end}) for topic partition {tp_text(tp)}: the log "
                    f"begins at offset {position}."
                )
                next_batch.losses.append(lost(tp, reason, offset))
            else:
                position = offset
                if offset > end:
                    next_batch.moved.add(tp)
                    next_batch.losses.append(lost(tp, offset_changed(tp, offset, end), offset))
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
                raise deleted({tp})
            continue
        if what := created_again(tp[0], topic_ids.get(tp[0]), log.topic_id):
            if fail_on_data_loss:
                raise lost(tp, what, until)
            _log.warning("%s", lost(tp, what, until))
            continue
        if offset == EARLIEST:
            begin = min(log.log_start, until)
            wanted = OffsetRange(*tp, begin, until, from_earliest=True)
        elif offset > until:
            if fail_on_data_loss and not first:
                raise lost(tp, offset_changed(tp, offset, until), offset)
            continue
        else:
            wanted = OffsetRange(*tp, offset, until)
        clipped = clip(wanted, log.log_start, log.log_end.offset, fail_on_data_loss)
        if clipped.size > 0:
            ranges.append(clipped)
    return ranges


def offset_changed(tp: TopicPartition, before: int, now: int) -> str:
    return f"Partition {tp_text(tp)} offset was changed from {before} to {now}. {_BROKEN}"


def created_again(topic: str, before: uuid.UUID | None, now: uuid.UUID | None) -> str | None:
    """Return what happened to a topic whose id was `before` and is `now`; None if both are the same, or one unknown."""
    if before is None or now is None or before == now:
        return None
    return f"Topic {topic} was deleted and created again: its id was {uuid_to_text(before)} and is {uuid_to_text(now)}."


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


def deleted(partitions: Collection[TopicPartition], not_read: Collection[TopicPartition] = ()) -> DataLoss:
    what = f"Partitions {set_text(partitions)} have been deleted."
    hint = None
    if not_read:
        hint = (
            f"the log directory holds {set_text(not_read)}, which the query does not read: is the checkpoint that of "
            "a query of other topics?"
        )
    return DataLoss(MAY_BE_LOST.format("streaming query") + what, hint=hint)


def lost(tp: TopicPartition, reason: str, offset: int | None = None) -> DataLoss:
    return DataLoss(MAY_BE_LOST.format("streaming query") + reason, topic_partition=tp_text(tp), offset=offset)


def shares(limit: int, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """`limit` shared in proportion to the sizes, none above its size; a size above 0 gets at least 1, so that none
    starves. Whole numbers: in the connector's floating point a limit equal to the total may leave one over."""
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:
        return dict(sizes)
    return {tp: max(limit * size // total, 1) if size > 0 else 0 for tp, size in sizes.items()}


def limited_ends(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Ends that about `limit` offsets from `starts` lead to; a partition whose end is not above its start keeps it."""
    sizes = {tp: ends[tp] - starts[tp] for tp in ends if ends[tp] > starts[tp]}
    taken = shares(limit, sizes)
    return {tp: starts[tp] + taken[tp] if tp in taken else end for tp, end in ends.items()}


def now_ms() -> int:
    """Ms of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


class BatchDelay:
    """`minOffsetsPerTrigger` and `maxTriggerDelay` (ms): the first batch never waits for more, another one until there
    are enough offsets, or the last one that ran is as long ago as the delay."""

    def __init__(self, max_delay_ms: int, clock_ms: Callable[[], int] = now_ms) -> None:
        self._max_delay_ms = max_delay_ms
        self._clock_ms = clock_ms
        self._last_ms: int | None = None

    def holds_back(self, offsets: int, least: int) -> bool:
        """True if a batch of so many offsets has to wait, when `least` are wanted."""
        now = self._clock_ms()
        if self._last_ms is not None and now - self._last_ms < self._max_delay_ms and offsets < least:
            return True
        self._last_ms = now
        return False


_LOOK = 1 << 20
"""Bytes of batches without anything to read that are looked through for one that has: markers and aborted records of
more than that are handed out as a batch without rows, rather than looked through at every trigger."""


def bytes_of(log: PartitionLog, start: int, end: int) -> int:
    """Bytes of the batches that hold [start, end). A segment gone or damaged counts for what is known of it."""
    total = 0
    for index in _segments(log, start, end):
        segment, following = log.segments[index], log.next_base_offset(index)
        try:
            if start <= segment.base_offset and following is not None and following <= end:
                total += log.size_of(index)
                continue
            with log.open_segment(index) as file:
                begin = _position(file, start)
                total += (file.size if following is not None and following <= end else _position(file, end)) - begin
        except FileNotFoundError:
            continue
    return total


def end_of_bytes(log: PartitionLog, start: int, end: int, budget: int) -> int:
    """The offset, at most `end`, after the last batch within `budget` bytes from that of `start` on; after
    that batch where it is larger."""
    reached = start
    for index in _segments(log, start, end):
        following = log.next_base_offset(index)
        try:
            with log.open_segment(index) as file:
                position = _position(file, start)
                if following is not None and file.size - position <= budget:
                    budget -= file.size - position
                    reached = following
                    continue
                target = position + budget
                # All before the batch next before `target` ends by then. A wrapper does not say its first offset.
                entry = file.offset_index.floor_position(target)
                near = proven_entry(file, entry) if entry.position > position else None
                if near is not None and near.magic >= 2:
                    position, reached = entry.position, max(reached, near.base_offset)
                for header in file.headers(position):
                    if header.end > target and reached > start:
                        break
                    reached = max(reached, header.last_offset + 1)
                    if header.end >= target or reached >= end:
                        break
        except FileNotFoundError:
            return end  # the task finds out what that means
        except (CorruptBatch, UnsupportedFormat):
            if reached == start:
                reached = end if following is None else following  # the task meets the damage, and reports it
        break
    return min(reached, end)


def holds_records(
    log: PartitionLog, start: int, end: int, *, read_committed: bool, hint: PositionHint | None = None
) -> bool:
    """True if [start, end) holds a record that a reader sees, finding out would take long, or damage is in the way.
    With read_committed `end` <= the LSO. hint: (segment base offset, position) where `start`'s batch may be."""
    transactional: list[BatchHeader] = []
    looked = 0
    for index in _segments(log, start, end):
        try:
            with log.open_segment(index) as file:
                for header in file.headers(locate(file, start, hint)):
                    if header.base_offset >= end:
                        break
                    looked += header.size
                    if header.last_offset < start or header.is_control or header.record_count == 0:
                        continue
                    if not (read_committed and header.is_transactional) or looked > _LOOK:
                        return True
                    transactional.append(header)
        except (FileNotFoundError, CorruptBatch, UnsupportedFormat):
            return True
        if looked > _LOOK:
            return True
    if not transactional:
        return False
    try:
        aborted = aborted_transactions(log, start, end).aborted
    except (CorruptBatch, UnsupportedFormat):
        return True
    return any(
        not any(a.producer_id == h.producer_id and a.first_offset <= h.base_offset <= a.last_offset for a in aborted)
        for h in transactional
    )


def _segments(log: PartitionLog, start: int, end: int) -> Iterator[int]:
    """Indexes of the segments with offsets of [start, end)."""
    if start >= end or not log.segments:
        return
    for index in range(log.segment_index(start), len(log.segments)):
        if log.segments[index].base_offset >= end:
            return
        yield index


def _position(file: SegmentFile, offset: int) -> int:
    """The position of the first batch that reaches `offset`; where good headers end, when there is none."""
    if offset <= file.first_offset:  # a segment that begins there is not read
        return file.begin
    position = locate(file, offset)
    try:
        for header in file.headers(position):
            if header.last_offset >= offset:
                return header.position
            position = header.end
    except (CorruptBatch, UnsupportedFormat):
        pass  # sizes only share out a limit; the task meets the damage, and reports it
    return position


_log = logging.getLogger(__name__)


class StreamPlanner:
    def __init__(self, options: ReadOptions, clock_ms: Callable[[], int] = now_ms) -> None:
        self._options = options
        self._live = LiveLogs(options)
        self._delay = BatchDelay(options.stream.max_trigger_delay_ms if options.stream else 0, clock_ms)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._offered: Offsets | None = None
        self._logs: Mapping[TopicPartition, LiveLog] = {}
        self._seen: dict[TopicPartition, Seen] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        """Topic ids, by topic, of the new offsets that `next_end` returned last."""
        self._ends: dict[TopicPartition, tuple[LogEnd, ...]] = {}
        self._without_records: dict[TopicPartition, tuple[int, int]] = {}
        self._warned: list[str] = []
        self.planned_bytes = 0  # of the segments, or their parts, that the tasks of the last plan open

    @property
    def latest(self) -> Offsets:
        """The ends for readers, as of the last look."""
        return {tp: live.readers_end for tp, live in self._logs.items()}

    @property
    def latest_topic_ids(self) -> dict[str, uuid.UUID]:
        """The topic ids that belong to `latest`."""
        return agreed_ids((topic, live.topic_id) for (topic, _), live in self._logs.items())

    def initial(self) -> Offsets:
        """The offsets that a new query begins with; the same whenever it is asked.

        Spark does not write them down: after a restart before the end of the first batch it asks again. So latest stays
        LATEST, which means "at the end of the first batch": that batch is empty and its end, which Spark does write
        down, is where the query begins. Raises OptionError where the options name other partitions than there are, or a
        timestamp without a match.
        """
        if self._initial is None:
            self._logs = self._live.look()  # a named topic that is missing now is a mistake, whatever failOnDataLoss is
            start, logs = self._options.start, self._logs
            if start.by_time:
                bounds = {tp: bounds_of(live.log, live.log_start, live.readers_end) for tp, live in logs.items()}
                ranges = resolve_bounds(start, AT_LATEST, bounds, on_no_match=self._options.on_no_match)
                # a timestamp without a match stays LATEST, as the option latest does
                self._initial = {r.topic_partition: r.start if r.start < r.end else LATEST for r in ranges}
                return self._initial
            numbers, missing_topics = start.numbers(logs)
            if numbers.keys() != logs.keys() or missing_topics:
                raise OptionError(
                    "If startingOffsets contains specific offsets, you must specify all TopicPartitions. Use -1 for "
                    f"latest, -2 for earliest, if you don't care. Specified: {set_text(numbers, start)} "
                    f"Assigned: {set_text(logs)}"
                )
            self._initial = dict(sorted(numbers.items()))
        return self._initial

    def freeze(self) -> None:
        """Trigger.AvailableNow: what comes later than now is not read."""
        self._look(self._options.subscription.named_topics)
        self._target = self.latest

    def next_end(
        self, start: Offsets, limits: RateLimits, topic_ids: Mapping[str, uuid.UUID] = MappingProxyType({})
    ) -> Offsets:
        """End of the batch from `start` on; `start` itself when there is nothing to read, or not yet enough.

        Args:
            start: Offsets of the checkpoint.
            limits: Limits of the batch.
            topic_ids: The topic ids that the checkpoint has with `start`, perhaps not of all topics.

        Raises:
            DataLoss: If failOnDataLoss is true.
            KafkalogError: As LiveLogs.look.
        """
        self._look(topic for topic, _ in start)
        logs = self._logs
        if self._target is not None:  # a partition that came later is not even judged
            logs = {tp: live for tp, live in logs.items() if tp in self._target or tp in start}
        seen = {tp: self._seen_of(tp, topic_ids) for tp in start}
        next_batch = continue_from(start, logs, seen, self._live.present, self._options.subscription.names)
        self._report(next_batch.losses)
        if start and not logs:
            return start  # as in the connector: offsets without a partition would forget every position
        if self._target is not None:
            for tp, end in next_batch.ends.items():
                last = min(end, self._target.get(tp, 0))  # 0: it was not there then
                if start.get(tp) == LATEST:  # a query from latest begins there
                    next_batch.starts[tp] = next_batch.ends[tp] = last
                elif tp not in next_batch.moved:
                    next_batch.ends[tp] = max(last, next_batch.starts[tp])
        self._seen = {tp: seen[tp] for tp in next_batch.ends if tp not in logs}
        self._seen |= {tp: Seen(live.topic_id, live.readers_end) for tp, live in self._logs.items()}
        first = any(offset < 0 for offset in start.values())
        as_before = not first and not next_batch.moved and next_batch.ends.keys() == start.keys()
        news = {tp: end - next_batch.starts[tp] for tp, end in next_batch.ends.items() if end > next_batch.starts[tp]}
        if as_before and not any(self._has_records(tp, next_batch) for tp in news):
            return start
        if limits.min_offsets is not None and self._target is None:
            held_back = self._delay.holds_back(sum(news.values()), limits.min_offsets)
            if held_back and not first and not next_batch.moved:
                return start
        self._offered = self._limited(next_batch, news, limits)
        self.topic_ids = agreed_ids((tp[0], self._seen[tp].topic_id) for tp in self._offered)
        for tp, end in self._offered.items():
            if tp not in logs:
                continue  # deleted, and its position kept
            # The next batch begins where this one ends: at a position that is known when that is the log's end.
            log_end, before = self._logs[tp].log_end, self._ends.get(tp, ())
            if log_end.offset == end and log_end not in before:
                self._ends[tp] = (*before[-1:], log_end)
        return self._offered

    def splits(
        self, start: Offsets, end: Offsets, topic_ids: Mapping[str, uuid.UUID] = MappingProxyType({})
    ) -> list[Split]:
        """The splits of the batch [start, end); `topic_ids`: those of `end`. Raises DataLoss where failOnDataLoss is
        true."""
        if end != self._offered:  # a batch of the run before
            self._look(topic for topic, _ in (*start, *end))
        logs, fails = self._logs, self._options.fail_on_data_loss
        first = start == self._initial
        ranges = batch_ranges(start, end, logs, topic_ids=topic_ids, first=first, fail_on_data_loss=fails)
        partitions = [PartitionRange(r, logs[r.topic_partition].log) for r in ranges]
        hints = {r.topic_partition: hint for r in ranges if (hint := self._hint(r.topic_partition, r.start))}
        segments = [self._facts(r, hints.get(r.topic_partition)) for r in ranges]
        self.planned_bytes = sum(segment.size for needed in segments for segment in needed)
        splits = splits_of(partitions, segments, self._options, RowFilter(), hints)
        return [replace(split, topic_id=logs[split.range.topic_partition].topic_id) for split in splits]

    def _look(self, known_topics: Iterable[str]) -> None:
        """Look at the logs as they are. `known_topics`: those of the query's position, which may be missing; with
        failOnDataLoss=false all topics that the options name may be."""
        may_be_gone = set(known_topics)
        if not self._options.fail_on_data_loss:
            may_be_gone |= self._options.subscription.named_topics
        self._logs = self._live.look(may_be_gone)

    def _seen_of(self, tp: TopicPartition, topic_ids: Mapping[str, uuid.UUID]) -> Seen:
        """Return what is known of a partition. A topic id that this run saw precedes that of the checkpoint, which may
        be of an earlier trigger."""
        seen = self._seen.get(tp, _UNSEEN)
        return seen if seen.topic_id is not None else replace(seen, topic_id=topic_ids.get(tp[0]))

    def _report(self, losses: list[DataLoss]) -> None:
        if losses and self._options.fail_on_data_loss:
            raise losses[0]
        texts = [str(loss) for loss in losses]
        if texts != self._warned:  # a batch that is held back finds the same again
            for text in texts:
                _log.warning("%s", text)
        self._warned = texts

    def _has_records(self, tp: TopicPartition, next_batch: Continuation) -> bool:
        """Asked of what the partition has new, and again only when that has grown."""
        extent = next_batch.starts[tp], next_batch.ends[tp]
        if self._without_records.get(tp) == extent:
            return False
        log, read_committed = self._logs[tp].log, self._options.read_committed
        if holds_records(log, *extent, read_committed=read_committed, hint=self._hint(tp, extent[0])):
            return True
        self._without_records[tp] = extent
        return False

    def _limited(self, next_batch: Continuation, news: Mapping[TopicPartition, int], limits: RateLimits) -> Offsets:
        ends = dict(next_batch.ends)
        if limits.max_offsets is not None:
            ends |= limited_ends(limits.max_offsets, next_batch.starts, {tp: ends[tp] for tp in news})
        if limits.max_bytes is not None:
            logs = {tp: self._logs[tp].log for tp in news}
            sizes = {tp: bytes_of(log, next_batch.starts[tp], ends[tp]) for tp, log in logs.items()}
            if sum(sizes.values()) > limits.max_bytes:
                taken = shares(limits.max_bytes, sizes)
                ends |= {tp: end_of_bytes(log, next_batch.starts[tp], ends[tp], taken[tp]) for tp, log in logs.items()}
        return dict(sorted(ends.items()))

    def _hint(self, tp: TopicPartition, offset: int) -> PositionHint | None:
        """(segment base offset, position) of an offset where the log ended before."""
        ends = (end for end in self._ends.get(tp, ()) if end.offset == offset)
        return next((PositionHint(end.segment, end.position) for end in ends), None)

    def _facts(self, offsets: OffsetRange, hint: PositionHint | None) -> list[SegmentFacts]:
        """Opens nothing for what was appended to the last segment since the last batch."""
        live = self._logs[offsets.topic_partition]
        end = live.log_end
        if hint is not None and hint.segment == end.segment and offsets.end == end.offset:
            size = end.position - hint.position
            if 0 < size <= self._options.max_partition_bytes:
                return [SegmentFacts(offsets.start, offsets.end, size)]
        return segment_facts(live.log, offsets, RowFilter(), self._options)
