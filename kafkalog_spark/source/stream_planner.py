"""What a stream does on the driver: where it begins, how far the next batch goes, and which tasks read it.

One planner serves one run of a query. What it remembers between triggers saves work and sees deleted topics; everything
that a restarted query needs is in the offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from kafkalog_spark.errors import DataLoss, OptionError
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.source.admission import BatchDelay, Limits, limited_ends, now_ms, shares
from kafkalog_spark.source.batch_walk import bytes_of, end_of_bytes, holds_records
from kafkalog_spark.source.bounds import LogView, OffsetRange, resolve_bounds
from kafkalog_spark.source.data_loss import Continuation, LogState, Seen, batch_ranges, continue_from
from kafkalog_spark.source.filters import RowFilter
from kafkalog_spark.source.live_log import LiveLog
from kafkalog_spark.source.live_logs import LiveLogs
from kafkalog_spark.source.offset_range_limit import (
    EARLIEST,
    LATEST,
    Earliest,
    Latest,
    SpecificOffsets,
    TopicPartition,
    set_text,
)
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.planning import Split, splits_of
from kafkalog_spark.source.segment_facts import SegmentFacts, segment_facts
from kafkalog_spark.source.stream_offsets import Offsets
from kafkalog_spark.source.subscription import named_topics

_log = logging.getLogger(__name__)


class StreamPlanner:
    """Plans the batches of one stream. Offsets are dicts of partition to offset; see stream_offsets."""

    def __init__(self, options: ReadOptions, clock_ms: Callable[[], int] = now_ms) -> None:
        self._options = options
        self._live = LiveLogs(options)
        self._delay = BatchDelay(options.max_trigger_delay_ms or 0, clock_ms)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._offered: Offsets | None = None
        self._logs: Mapping[TopicPartition, LiveLog] = {}
        self._seen: dict[TopicPartition, Seen] = {}
        self._ends: dict[TopicPartition, tuple[LogEnd, ...]] = {}
        self._without_records: dict[TopicPartition, tuple[int, int]] = {}
        self._warned: list[str] = []
        self.planned_bytes = 0
        """Of the segments that the tasks of the last plan open, or of their parts where those are known."""

    @property
    def limits(self) -> Limits:
        """Those of the options."""
        options = self._options
        return Limits(options.max_offsets_per_trigger, options.min_offsets_per_trigger, options.max_bytes_per_trigger)

    @property
    def latest(self) -> Offsets:
        """Where readers have to stop, as of the last look."""
        return {tp: live.readers_end for tp, live in self._logs.items()}

    def initial(self) -> Offsets:
        """The offsets that a new query begins with; the same whenever it is asked.

        Spark does not write them down: after a restart before the end of the first batch it asks again, and reads from
        there to the end it had decided on. So latest is not looked up here, but stays LATEST, which means "at the end
        of the first batch": that batch is empty and its end, which Spark does write down, is where the query begins.
        Raises OptionError where the options name other partitions than there are, or a timestamp without a match.
        """
        if self._initial is None:
            self._look(())
            match self._options.start:
                case Earliest():
                    self._initial = dict.fromkeys(self._logs, EARLIEST)
                case Latest():
                    self._initial = dict.fromkeys(self._logs, LATEST)
                case SpecificOffsets(offsets, topics):
                    self._initial = _specific(offsets, topics, self._logs)
                case _:
                    self._initial = self._by_timestamp()
        return self._initial

    def freeze(self) -> None:
        """Trigger.AvailableNow: what comes later than now is not read."""
        self._look(named_topics(self._options.subscription))
        self._target = self.latest

    def next_end(self, start: Offsets, limits: Limits) -> Offsets:
        """Where the batch from `start` on ends; `start` itself when there is nothing to read, or not yet enough.

        Raises DataLoss where failOnDataLoss is true, and what LiveLogs.look raises.
        """
        self._look(start)
        states = self._states()
        if self._target is not None:  # a partition that came later is not even judged
            states = {tp: state for tp, state in states.items() if tp in self._target or tp in start}
        found = continue_from(start, states, self._seen, self._live.present)
        self._report(found.losses)
        if self._target is not None:
            _stop_at(self._target, start, found)
        self._seen = {tp: Seen(live.topic_id, live.readers_end) for tp, live in self._logs.items()}
        first = any(offset < 0 for offset in start.values())
        as_before = not first and not found.moved and found.ends.keys() == start.keys()
        news = {tp: end - found.starts[tp] for tp, end in found.ends.items() if end > found.starts[tp]}
        if as_before and not any(self._has_records(tp, found) for tp in news):
            return start
        if limits.min_offsets is not None and self._target is None:
            held_back = self._delay.holds_back(sum(news.values()), limits.min_offsets)
            if held_back and not first and not found.moved:
                return start
        self._offered = self._limited(found, news, limits)
        for tp, end in self._offered.items():
            self._remember_end(tp, end)
        return self._offered

    def splits(self, start: Offsets, end: Offsets) -> list[Split]:
        """What the batch [start, end) has to read; `tasks_of` makes tasks of it.

        Raises DataLoss where failOnDataLoss is true.
        """
        if end != self._offered:  # a batch of the run before
            self._look([*start, *end])
        ranges = batch_ranges(
            start,
            end,
            self._states(),
            {tp: live.log_end.offset for tp, live in self._logs.items()},
            first=start == self._initial,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        hints = {}
        for asked in ranges:
            known = self._known_end(asked.topic_partition, asked.start)
            if known is not None:
                hints[asked.topic_partition] = (known.segment, known.position)
        logs = {r.topic_partition: self._logs[r.topic_partition] for r in ranges}
        facts = {r.topic_partition: self._facts(r, logs[r.topic_partition], hints) for r in ranges}
        self.planned_bytes = sum(segment.size for segments in facts.values() for segment in segments)
        splits = splits_of(
            ranges,
            facts,
            {tp: live.place for tp, live in logs.items()},
            {tp: live.log for tp, live in logs.items()},
            self._options,
            RowFilter(),
            hints,
        )
        return [replace(split, topic_id=logs[split.range.topic_partition].topic_id) for split in splits]

    def _look(self, known: Iterable[TopicPartition] | Collection[str]) -> None:
        self._logs = self._live.look({part if isinstance(part, str) else part[0] for part in known})

    def _states(self) -> dict[TopicPartition, LogState]:
        return {tp: LogState(live.log_start, live.readers_end, live.topic_id) for tp, live in self._logs.items()}

    def _by_timestamp(self) -> Offsets:
        """A timestamp without a match stays LATEST, as the option latest does."""
        views = {
            tp: LogView(live.log_start, live.readers_end, partial(_offset_for_timestamp, live.log))
            for tp, live in self._logs.items()
        }
        ranges = resolve_bounds(self._options.start, Latest(), views, on_no_match=self._options.on_no_match)
        return {r.topic_partition: r.start if r.start < r.end else LATEST for r in ranges}

    def _report(self, losses: list[DataLoss]) -> None:
        if losses and self._options.fail_on_data_loss:
            raise losses[0]
        texts = [str(loss) for loss in losses]
        if texts != self._warned:  # a batch that is held back finds the same again
            for text in texts:
                _log.warning("%s", text)
        self._warned = texts

    def _has_records(self, tp: TopicPartition, found: Continuation) -> bool:
        """Whether there is a record in what the partition has new; asked again only when that has grown."""
        asked = found.starts[tp], found.ends[tp]
        if self._without_records.get(tp) == asked:
            return False
        known = self._known_end(tp, asked[0])
        hint = None if known is None else (known.segment, known.position)
        read_committed = self._options.read_committed
        if holds_records(self._logs[tp].log, *asked, read_committed=read_committed, hint=hint):
            return True
        self._without_records[tp] = asked
        return False

    def _limited(self, found: Continuation, news: Mapping[TopicPartition, int], limits: Limits) -> Offsets:
        ends = dict(found.ends)
        if limits.max_offsets is not None:
            ends |= limited_ends(limits.max_offsets, found.starts, {tp: ends[tp] for tp in news})
        if limits.max_bytes is not None:
            logs = {tp: self._logs[tp].log for tp in news}
            sizes = {tp: bytes_of(log, found.starts[tp], ends[tp]) for tp, log in logs.items()}
            if sum(sizes.values()) > limits.max_bytes:
                taken = shares(limits.max_bytes, sizes)
                ends |= {tp: end_of_bytes(log, found.starts[tp], ends[tp], taken[tp]) for tp, log in logs.items()}
        return dict(sorted(ends.items()))

    def _remember_end(self, tp: TopicPartition, end: int) -> None:
        """The next batch begins where this one ends: at a position that is known when that is the log's end."""
        known = self._logs[tp].log_end
        before = self._ends.get(tp, ())
        if known.offset == end and known not in before:
            self._ends[tp] = (*before[-1:], known)

    def _known_end(self, tp: TopicPartition, offset: int) -> LogEnd | None:
        return next((end for end in self._ends.get(tp, ()) if end.offset == offset), None)

    def _facts(
        self, asked: OffsetRange, live: LiveLog, hints: Mapping[TopicPartition, tuple[int, int]]
    ) -> list[SegmentFacts]:
        """As segment_facts; without opening anything for what was appended to the last segment since the last batch."""
        hint, end = hints.get(asked.topic_partition), live.log_end
        if hint is not None and hint[0] == end.segment and asked.end == end.offset:
            size = end.position - hint[1]
            if 0 < size <= self._options.max_partition_bytes:
                return [SegmentFacts(asked.start, asked.end, size)]
        return segment_facts(live.log, asked, RowFilter(), self._options)


def _stop_at(target: Mapping[TopicPartition, int], start: Offsets, found: Continuation) -> None:
    """Nothing past `target`; a query from latest begins there."""
    for tp, end in found.ends.items():
        last = min(end, target.get(tp, 0))  # 0: it was not there then
        if start.get(tp) == LATEST:
            found.starts[tp] = found.ends[tp] = last
        elif tp not in found.moved:
            found.ends[tp] = max(last, found.starts[tp])


def _specific(
    offsets: Mapping[TopicPartition, int], topics: Mapping[str, int], assigned: Collection[TopicPartition]
) -> Offsets:
    found = {tp: topics[tp[0]] for tp in assigned if tp[0] in topics} | dict(offsets)
    if found.keys() != set(assigned) or topics.keys() - {topic for topic, _ in assigned}:
        raise OptionError(
            "If startingOffsets contains specific offsets, you must specify all TopicPartitions. Use -1 for latest, -2 "
            f"for earliest, if you don't care. Specified: {set_text(found, SpecificOffsets(offsets, topics))} "
            f"Assigned: {set_text(assigned)}"
        )
    return dict(sorted(found.items()))


def _offset_for_timestamp(log: PartitionLog, timestamp: int) -> int | None:
    # reading records needs the kernels: loaded only when the start is a timestamp
    from kafkalog_spark.log.read.partition_scan import offset_for_timestamp

    return offset_for_timestamp(log, timestamp)
