"""Planner of a stream on the driver: the start of the stream, the end of the next batch, and the splits of the batch.

Data loss is detected before Spark writes the batch to its checkpoint, so a query that fails leaves the checkpoint
unchanged. The limits of a batch are those of Spark's Kafka source (`KafkaMicroBatchStream.rateLimit`, `delayBatch`). A
batch whose end is below its start reads no records and moves the position back. In this way a stream with
failOnDataLoss=false resumes in a log that was truncated, and at the beginning of a topic that was created again.

Each run of a query has its own planner. Its state between triggers only saves work and detects deleted topics: all that
a restarted query needs is in the offsets.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from kafkalog_spark.errors import DataLoss, OptionError
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.segment_lookup import PositionHint
from kafkalog_spark.source.batch_delay import BatchDelay, now_ms
from kafkalog_spark.source.bound_resolution import resolve_bounds
from kafkalog_spark.source.bounds import AT_LATEST, LATEST
from kafkalog_spark.source.live_log import LiveLog
from kafkalog_spark.source.live_logs import LiveLogs
from kafkalog_spark.source.log_bounds import bounds_of
from kafkalog_spark.source.offset_range import OffsetRange
from kafkalog_spark.source.offsets import Offsets
from kafkalog_spark.source.options import RateLimits, ReadOptions
from kafkalog_spark.source.partition_ranges import PartitionRange
from kafkalog_spark.source.planning import PlannedRange, splits_of
from kafkalog_spark.source.range_contents import bytes_of, end_of_bytes, holds_records
from kafkalog_spark.source.rate_limits import limited_ends, shares
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.segment_facts import SegmentFacts, segment_facts
from kafkalog_spark.source.split import Split
from kafkalog_spark.source.stream_positions import (
    UNSEEN,
    NextBatch,
    Seen,
    agreed_ids,
    logged_batch_ranges,
    plan_next_batch,
)
from kafkalog_spark.source.topic_partitions import TopicPartition, set_text

_log = logging.getLogger(__name__)


class StreamPlanner:
    """Plans the batches of one run of a query.

    Attributes:
        topic_ids: Topic IDs of the offsets that `next_end` returned last.
        planned_bytes: Bytes of the segments, or parts of segments, that the last plan reads.
    """

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
        self._ends: dict[TopicPartition, tuple[LogEnd, ...]] = {}
        self._without_records: dict[TopicPartition, tuple[int, int]] = {}
        self._warned: list[str] = []
        self.planned_bytes = 0

    @property
    def latest(self) -> Offsets:
        """The visible ends of all partitions, as of the last look."""
        return {tp: live.readers_end for tp, live in self._logs.items()}

    @property
    def latest_topic_ids(self) -> dict[str, uuid.UUID]:
        """The topic IDs that belong to `latest`."""
        return agreed_ids((topic, live.topic_id) for (topic, _), live in self._logs.items())

    def initial(self) -> Offsets:
        """Return the offsets at which a new query begins; the same at every call.

        Spark does not store these offsets: after a restart before the end of the first batch it calls this method
        again. So the result for `latest` is LATEST, which stands for the end of the first batch. That batch is empty,
        and the query begins at its end, which Spark does store.

        Raises:
            OptionError: If the options name other partitions than exist, or a timestamp has no match.
            KafkalogError: As `LiveLogs.look`.
        """
        if self._initial is None:
            self._logs = self._live.look()  # at the start a missing topic is an error, even if failOnDataLoss is false
            start, logs = self._options.start, self._logs
            if start.by_time:
                bounds = {tp: bounds_of(live.log, live.log_start, live.readers_end) for tp, live in logs.items()}
                ranges = resolve_bounds(start, AT_LATEST, bounds, on_no_match=self._options.on_no_match)
                # a timestamp without a match stays LATEST, as the option latest does
                self._initial = {r.topic_partition: r.start if r.start < r.end else LATEST for r in ranges}
                return self._initial
            numbers, unassigned_topics = start.by_partition(logs)
            if numbers.keys() != logs.keys() or unassigned_topics:
                raise OptionError(
                    "If startingOffsets contains specific offsets, you must specify all TopicPartitions. Use -1 for "
                    f"latest, -2 for earliest, if you don't care. Specified: {set_text(numbers, start.topics)} "
                    f"Assigned: {set_text(logs)}"
                )
            self._initial = dict(sorted(numbers.items()))
        return self._initial

    def freeze(self) -> None:
        """Set the present ends as the target of the query (Trigger.AvailableNow): later records are not read."""
        self._look(self._options.subscription.named_topics)
        self._target = self.latest

    def next_end(
        self, start: Offsets, limits: RateLimits, topic_ids: Mapping[str, uuid.UUID] = MappingProxyType({})
    ) -> Offsets:
        """Return the end of the batch that begins at `start`; `start` itself if there is not enough to read.

        Args:
            start: Offsets of the checkpoint.
            limits: Limits of the batch.
            topic_ids: Topic IDs in the checkpoint that belong to `start`, perhaps not of all topics.

        Raises:
            DataLoss: If failOnDataLoss is true.
            KafkalogError: As LiveLogs.look.
        """
        self._look(topic for topic, _ in start)
        logs = self._logs
        if self._target is not None:  # partitions that were added later are ignored
            logs = {tp: live for tp, live in logs.items() if tp in self._target or tp in start}
        seen = {tp: self._seen_of(tp, topic_ids) for tp in start}
        next_batch = plan_next_batch(start, logs, seen, self._live.present, self._options.subscription.is_named)
        self._report(next_batch.losses)
        if start and not logs:
            return start  # as in the connector: offsets without partitions would lose every position
        if self._target is not None:
            for tp, end in next_batch.ends.items():
                last = min(end, self._target.get(tp, 0))  # a partition that was added later is not read
                if start.get(tp) == LATEST:  # a query from latest begins at its target
                    next_batch.starts[tp] = next_batch.ends[tp] = last
                elif tp not in next_batch.jumped:
                    next_batch.ends[tp] = max(last, next_batch.starts[tp])
        self._seen = {tp: seen[tp] for tp in next_batch.ends if tp not in logs}
        self._seen |= {tp: Seen(live.topic_id, live.readers_end) for tp, live in self._logs.items()}
        is_first = any(offset < 0 for offset in start.values())
        only_appended = not is_first and not next_batch.jumped and next_batch.ends.keys() == start.keys()
        new_offsets = {
            tp: end - next_batch.starts[tp] for tp, end in next_batch.ends.items() if end > next_batch.starts[tp]
        }
        if only_appended and not any(self._has_records(tp, next_batch) for tp in new_offsets):
            return start
        if limits.min_offsets is not None and self._target is None:
            held_back = self._delay.holds_back(sum(new_offsets.values()), limits.min_offsets)
            if held_back and not is_first and not next_batch.jumped:
                return start
        self._offered = self._limited(next_batch, new_offsets.keys(), limits)
        self.topic_ids = agreed_ids((tp[0], self._seen[tp].topic_id) for tp in self._offered)
        for tp, end in self._offered.items():
            if tp not in logs:
                continue  # deleted, with its position kept
            # The next batch begins at the end of this batch. If that is the end of the log, its byte position is known.
            log_end, before = self._logs[tp].log_end, self._ends.get(tp, ())
            if log_end.offset == end and log_end not in before:
                self._ends[tp] = (*before[-1:], log_end)
        return self._offered

    def splits(
        self, start: Offsets, end: Offsets, topic_ids: Mapping[str, uuid.UUID] = MappingProxyType({})
    ) -> list[Split]:
        """Return the splits of the batch [start, end).

        Args:
            start: Start of the batch.
            end: End of the batch.
            topic_ids: Topic IDs in the checkpoint that belong to `end`.

        Raises:
            DataLoss: If failOnDataLoss is true and the logs do not hold the batch.
        """
        if end != self._offered:  # an earlier run has planned the batch
            self._look(topic for topic, _ in (*start, *end))
        logs, fails = self._logs, self._options.fail_on_data_loss
        is_first = start == self._initial
        ranges = logged_batch_ranges(
            start, end, logs, topic_ids=topic_ids, is_first_batch=is_first, fail_on_data_loss=fails
        )
        planned = []
        for each in ranges:
            hint = self._hint(each.topic_partition, each.start)
            partition = PartitionRange(each, logs[each.topic_partition].log)
            planned.append(PlannedRange(partition, self._facts(each, hint), hint))
        self.planned_bytes = sum(segment.size for planned_range in planned for segment in planned_range.segments)
        splits = splits_of(planned, self._options, RowFilter())
        return [replace(split, topic_id=logs[split.range.topic_partition].topic_id) for split in splits]

    def _look(self, known_topics: Iterable[str]) -> None:
        """Look at the logs as they are now.

        The `known_topics` of the query's position may be missing. With failOnDataLoss=false, so may all topics that the
        options name.
        """
        may_be_gone = set(known_topics)
        if not self._options.fail_on_data_loss:
            may_be_gone |= self._options.subscription.named_topics
        self._logs = self._live.look(may_be_gone)

    def _seen_of(self, tp: TopicPartition, topic_ids: Mapping[str, uuid.UUID]) -> Seen:
        """Return the last known state of a partition.

        A topic ID that this run has seen has precedence over the one in the checkpoint, which may be older.
        """
        seen = self._seen.get(tp, UNSEEN)
        return seen if seen.topic_id is not None else replace(seen, topic_id=topic_ids.get(tp[0]))

    def _report(self, losses: list[DataLoss]) -> None:
        """Raise the first loss if failOnDataLoss, otherwise log them."""
        if losses and self._options.fail_on_data_loss:
            raise losses[0]
        texts = [str(loss) for loss in losses]
        if texts != self._warned:  # while a batch is held back, every trigger finds the same losses
            for text in texts:
                _log.warning("%s", text)
        self._warned = texts

    def _has_records(self, tp: TopicPartition, next_batch: NextBatch) -> bool:
        """Return True if the new offsets of a partition may contain a visible record. A negative result is cached."""
        extent = next_batch.starts[tp], next_batch.ends[tp]
        if self._without_records.get(tp) == extent:
            return False
        log, read_committed = self._logs[tp].log, self._options.read_committed
        if holds_records(log, *extent, read_committed=read_committed, hint=self._hint(tp, extent[0])):
            return True
        self._without_records[tp] = extent
        return False

    def _limited(self, next_batch: NextBatch, grown: Collection[TopicPartition], limits: RateLimits) -> Offsets:
        """Return the ends of the batch under the limits. Only the ends of `grown`, with new offsets, change."""
        ends = dict(next_batch.ends)
        if limits.max_offsets is not None:
            ends |= limited_ends(limits.max_offsets, next_batch.starts, {tp: ends[tp] for tp in grown})
        if limits.max_bytes is not None:
            logs = {tp: self._logs[tp].log for tp in grown}
            sizes = {tp: bytes_of(log, next_batch.starts[tp], ends[tp]) for tp, log in logs.items()}
            if sum(sizes.values()) > limits.max_bytes:
                budgets = shares(limits.max_bytes, sizes)
                ends |= {
                    tp: end_of_bytes(log, next_batch.starts[tp], ends[tp], budgets[tp]) for tp, log in logs.items()
                }
        return dict(sorted(ends.items()))

    def _hint(self, tp: TopicPartition, offset: int) -> PositionHint | None:
        """Return the position of an offset if the log ended there before."""
        ends = (end for end in self._ends.get(tp, ()) if end.offset == offset)
        return next((PositionHint(end.segment, end.position) for end in ends), None)

    def _facts(self, offsets: OffsetRange, hint: PositionHint | None) -> list[SegmentFacts]:
        """Return the segments of a range. Opens no file if the range was appended since the last batch."""
        live = self._logs[offsets.topic_partition]
        end = live.log_end
        if hint is not None and hint.segment == end.segment and offsets.end == end.offset:
            size = end.position - hint.position
            if 0 < size <= self._options.max_partition_bytes:
                return [SegmentFacts(offsets.start, offsets.end, size)]
        return segment_facts(live.log, offsets, RowFilter(), self._options)
