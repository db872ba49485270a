"""Reader of kafkalog-cat: the records of the partitions that its options name, and those that are written later."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalog_spark.cli.cat_options import CatOptions, Start
from kafkalog_spark.errors import DataLoss, KafkalogError, UnknownPartition
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.names import similar_topics
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.missing_segments import missing_segments_warning
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_scan import ScanStatistics
from kafkalog_spark.log.read.tail import tail_start
from kafkalog_spark.log.read.timestamp_search import offset_for_timestamp

if TYPE_CHECKING:
    from kafkalog_spark.source.live_log import LiveLog


@dataclass(frozen=True, slots=True)
class FollowedPartition:
    """Position of a partition between two polls of --follow.

    Attributes:
        next_offset: Offset at which reading resumes. Above `end` if the requested start is not written yet.
        end: End of the visible records at the last poll.
        topic_id: None before Kafka 2.8.
        floor: The requested start offset. No record below it is printed, even if the log is truncated.
        was_missing: True if the partition did not exist at the last poll.
    """

    next_offset: int
    end: int
    topic_id: uuid.UUID | None
    floor: int = 0
    was_missing: bool = False


@dataclass
class CatReader:
    """Reads records, partition by partition.

    Attributes:
        dirs: The log directories.
        options: Options of the command.
        columns: Columns of the batches.
        on_error: Called with skipped damage, and with the loss of records.
        on_progress: Called with a partition's name, the number of offsets read, and the number known in all.
        on_note: Called with notes for the user.
        followed: Positions by partition, for `follow`.
        partitions: The partitions to read.

    Raises:
        UnknownPartition: If a topic or partition of the options does not exist.
    """

    dirs: LogDirs
    options: CatOptions
    columns: tuple[str, ...]
    on_error: Callable[[KafkalogError], None]
    on_progress: Callable[[str, int, int], None]
    on_note: Callable[[str], None] = lambda _: None
    followed: dict[TopicPartition, FollowedPartition] = field(default_factory=dict)
    partitions: list[TopicPartition] = field(default_factory=list)

    def __post_init__(self) -> None:
        dirs, options = self.dirs, self.options
        self.left = options.count
        self.request = replace(options.request, columns=self.columns)
        for topic in options.topics:
            partitions = dirs.topics.get(topic)
            if partitions is None:
                near = similar_topics(topic, dirs.topics)
                raise UnknownPartition(
                    f"topic {topic} is not in {', '.join(dirs.paths)}",
                    hint=(f"did you mean {', '.join(near)}? There are: " if near else "there are: ")
                    + (", ".join(list(dirs.topics)[:10]) or "no topics"),
                )
            for partition in options.partitions:
                if partition not in partitions:
                    raise UnknownPartition(
                        f"not in {', '.join(dirs.paths)} ({topic} has {', '.join(map(str, partitions))})",
                        topic_partition=f"{topic}-{partition}",
                    )
            chosen = options.partitions
            self.partitions += [(topic, number) for number in partitions if not chosen or number in chosen]

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield the records that the logs hold now. Raises as `scan_partition`."""
        options = self.options
        past_damage, read_committed = options.request.drop_malformed, self.request.read_committed
        floor = options.start.value if options.start.where == "offset" else 0  # no record below it is requested
        locations = self.dirs.choose_locations(self.partitions, pass_over_damage=past_damage)
        done = total = 0
        for tp in self.partitions:
            topic_id = locations[tp].topic_id() if options.follow else None
            log = locations[tp].open(pass_over_damage=past_damage)
            if missing := missing_segments_warning(log):
                self.on_note(f"records may be missing: {missing}")
            end = last_stable_offset(log) if read_committed else log.log_end_offset
            start = self._start(log, end, options.start)
            if floor >= end and options.start.where == "offset" and not options.follow:
                end_text = "its last stable offset is" if read_committed else "the log ends at offset"
                self.on_note(f"{log.name}: nothing to read at offset {floor}: {end_text} {end}")
            stop = None if options.stop_ms is None else offset_for_timestamp(log, options.stop_ms)
            stop = end if stop is None else min(stop, end)
            total += max(stop - start, 0)
            for rows in self._scan(log, start, stop):
                yield rows
                self.on_progress(log.name, done, total)
            done = total
            self.followed[tp] = FollowedPartition(max(end, start), end, topic_id, floor)
            if self.left == 0:
                return

    def _scan(self, log: PartitionLog, start: int, end: int) -> Iterator[pa.RecordBatch]:
        statistics = ScanStatistics()
        batches = scan_partition(log, start, end, self.request, statistics=statistics, on_loss=self.on_error)
        while self.left != 0:
            rows = next(batches, None)
            for error in statistics.dropped:
                self.on_error(error)
            statistics.dropped.clear()
            if rows is None:
                return
            if self.left is not None:
                rows = rows.slice(0, self.left)
                self.left -= rows.num_rows
            yield rows

    def _start(self, log: PartitionLog, end: int, start: Start) -> int:
        first = log.log_start_offset
        match start.where:
            case "tail":
                return tail_start(log, first, end, start.value, self.request) if start.value else end
            case "timestamp":
                offset = offset_for_timestamp(log, start.value)
                return end if offset is None else offset
            case "end":
                return end
        return max(first, start.value)

    def follow(
        self, paths: tuple[str, ...], storage: Mapping[str, str], wait: Callable[[], bool]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records that are written after those of `records`. New partitions are read from their beginning.

        Args:
            paths: The log directories as given.
            storage: Storage options.
            wait: Called when there are no new records. The method returns if it returns False.
        """
        from kafkalog_spark.source.live_logs import LiveLogs
        from kafkalog_spark.source.option_parsing import parse_read_options

        options = {"paths": json.dumps(list(paths)), "subscribe": ",".join(self.options.topics), **storage}
        options["isolationLevel"] = "read_committed" if self.request.read_committed else "read_uncommitted"
        options["mode"] = "DROPMALFORMED" if self.request.drop_malformed else "FAILFAST"
        logs = LiveLogs(parse_read_options(options, streaming=True, quiet=True))
        while self.left != 0:
            has_new_records = False
            live_logs = logs.look(may_be_gone=self.options.topics)
            for tp, live in live_logs.items():
                if self.options.partitions and tp[1] not in self.options.partitions:
                    continue
                start, floor = self._resume(tp, live)
                for rows in self._scan(live.log, start, live.readers_end):
                    has_new_records = True
                    yield rows
                    if self.left == 0:
                        return
                self.followed[tp] = FollowedPartition(
                    max(start, live.readers_end), live.readers_end, live.topic_id, floor
                )
            for tp in self.followed.keys() - live_logs.keys():
                self.followed[tp] = replace(self.followed[tp], was_missing=True)
            if not has_new_records and not wait():
                return

    def _resume(self, tp: TopicPartition, live: LiveLog) -> tuple[int, int]:
        """Return start and floor of the next scan. Passes the loss of records before it to `on_error`."""
        before = self.followed.get(tp)
        if before is None:
            return live.log_start, 0
        # With equal topic IDs, a partition that was missing was moved between two disks. Without IDs it is a new topic.
        has_ids = before.topic_id is not None and live.topic_id is not None
        if before.topic_id != live.topic_id if has_ids else before.was_missing:
            problem = (
                f"the topic was deleted and created again; reading resumes at the new one's offset {live.log_start}"
            )
            self.on_error(DataLoss(problem, topic_partition=live.log.name, offset=before.next_offset))
            return live.log_start, 0
        if live.readers_end < before.end:
            start = max(live.readers_end, before.floor)
            problem = f"the log was truncated to offset {live.readers_end}; reading resumes at offset {start}"
            self.on_error(DataLoss(problem, topic_partition=live.log.name, offset=before.end))
            return start, before.floor
        return before.next_offset, before.floor
