"""The records that kafkalog-cat prints: partition by partition, and after that what is written, if that is wanted."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalog_spark.commands.cat_options import CatOptions, Start, Where
from kafkalog_spark.errors import DataLoss, KafkalogError, UnknownPartition
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_scan import ScanRequest, ScanStatistics, offset_for_timestamp, scan_partition
from kafkalog_spark.log.read.replicas import chosen_places, topic_id_of
from kafkalog_spark.log.read.tail import tail_start

if TYPE_CHECKING:
    from kafkalog_spark.source.live_log import LiveLog

TopicPartition = tuple[str, int]
OnError = Callable[[KafkalogError], None]
OnProgress = Callable[[str, int, int], None]
OnNote = Callable[[str], None]
"""Called with a partition's name, offsets done, and offsets in all that are known of."""


@dataclass(frozen=True, slots=True)
class Followed:
    """How far a partition was read. next_offset: where it goes on, which lies past `end` where an offset was asked for
    that is not written yet. end: where readers had to stop when it was looked at last. topic_id: of the topic that was
    read, None before Kafka 2.8. floor: the offset asked for, below which nothing is printed even when the log is
    truncated. was_gone: it was not there at the last look."""

    next_offset: int
    end: int
    topic_id: uuid.UUID | None
    floor: int = 0
    was_gone: bool = False

    def is_another(self, topic_id: uuid.UUID | None) -> bool:
        """Whether what lies there now, with this id, is another topic of the same name. Without ids, one that was
        deleted meanwhile does not come back; with them it may, moved between two disks."""
        if self.topic_id is None or topic_id is None:
            return self.was_gone
        return self.topic_id != topic_id


@dataclass(slots=True)
class CatReader:
    """on_error: called with damage that is passed over, and with records that went away meanwhile. followed: how far
    each partition is, after `records`."""

    dirs: LogDirs
    options: CatOptions
    columns: tuple[str, ...]
    on_error: OnError
    on_progress: OnProgress
    on_note: OnNote
    followed: dict[TopicPartition, Followed]
    left: int | None = None

    @classmethod
    def of(
        cls,
        dirs: LogDirs,
        options: CatOptions,
        columns: tuple[str, ...],
        on_error: OnError,
        on_progress: OnProgress,
        on_note: OnNote = lambda _: None,
    ) -> CatReader:
        """Raises UnknownPartition for a topic or a partition that is not there."""
        for topic in options.topics:
            known = dirs.topics.get(topic)
            if known is None:
                raise UnknownPartition(
                    f"topic {topic} is not in {', '.join(dirs.paths)}",
                    hint=f"there are: {', '.join(list(dirs.topics)[:10])}",
                )
            for partition in options.partitions:
                if partition not in known:
                    raise UnknownPartition(
                        f"not in {', '.join(dirs.paths)} ({topic} has {', '.join(map(str, known))})",
                        topic_partition=f"{topic}-{partition}",
                    )
        return cls(dirs, options, columns, on_error, on_progress, on_note, {}, options.count)

    @property
    def request(self) -> ScanRequest:
        options = self.options
        return ScanRequest(
            columns=self.columns,
            timestamp_from_ms=options.from_ms,
            timestamp_until_ms=options.until_ms,
            read_committed=options.read_committed,
            drop_malformed=options.past_damage,
            wanted=options.wanted,
        )

    @property
    def wanted_partitions(self) -> list[TopicPartition]:
        chosen = self.options.partitions
        return [
            (topic, partition)
            for topic in self.options.topics
            for partition in self.dirs.topics.get(topic, ())
            if not chosen or partition in chosen
        ]

    def records(self) -> Iterator[pa.RecordBatch]:
        """What lies there. Raises CorruptBatch and whatever else reading raises; see scan_partition."""
        wanted = self.wanted_partitions
        places = chosen_places(self.dirs.places, self.dirs.copies, wanted, pass_over_damage=self.options.past_damage)
        done = total = 0
        for tp in wanted:
            topic_id = topic_id_of(places[tp]) if self.options.follow else None
            log = places[tp].open(pass_over_damage=self.options.past_damage)
            end = last_stable_offset(log) if self.options.read_committed else log.log_end_offset
            start = self._start(log, end, self.options.bounds.start)
            asked = self.options.bounds.start
            if asked.where is Where.OFFSET and asked.value >= end and not self.options.follow:
                what = "last stable offset" if self.options.read_committed else "log end offset"
                self.on_note(f"{log.name} has no record at offset {asked.value} or after it: its {what} is {end}")
            stop = self._stop(log, end)
            total += max(stop - start, 0)
            for rows in self._scan(log, start, stop):
                yield rows
                self.on_progress(log.name, done, total)
            done = total
            self.followed[tp] = Followed(max(end, start), end, topic_id, self.options.bounds.start.floor)
            if self.left == 0:
                return

    def _scan(self, log: PartitionLog, start: int, end: int) -> Iterator[pa.RecordBatch]:
        statistics, reported = ScanStatistics(), 0
        for rows in scan_partition(log, start, end, self.request, statistics=statistics, on_loss=self.on_error):
            for error in statistics.dropped[reported:]:
                self.on_error(error)
            reported = len(statistics.dropped)
            if self.left is not None and rows.num_rows >= self.left:
                rows = rows.slice(0, self.left)
            if self.left is not None:
                self.left -= rows.num_rows
            yield rows
            if self.left == 0:
                return
        for error in statistics.dropped[reported:]:
            self.on_error(error)

    def _start(self, log: PartitionLog, end: int, start: Start) -> int:
        first = log.log_start_offset
        if start.where is Where.TAIL:
            return tail_start(log, first, end, start.value, self.request) if start.value else end
        if start.where is Where.TIMESTAMP:
            found = offset_for_timestamp(log, start.value)
            return end if found is None else found
        if start.where is Where.END:
            return end
        return max(first, start.value) if start.where is Where.OFFSET else first

    def _stop(self, log: PartitionLog, end: int) -> int:
        stop_ms = self.options.bounds.stop_ms
        found = None if stop_ms is None else offset_for_timestamp(log, stop_ms)
        return end if found is None else min(found, end)

    def follow(
        self, paths: tuple[str, ...], storage: Mapping[str, str], wait: Callable[[], bool]
    ) -> Iterator[pa.RecordBatch]:
        """What is written after `records`, forever. wait: called when there is nothing new; False ends it. New
        partitions of the topics are read from their beginning. storage: what --option says.

        It looks as a stream does: see live_logs.LiveLogs.
        """
        from kafkalog_spark.source.live_logs import LiveLogs
        from kafkalog_spark.source.options import parse_read_options

        options = {"paths": json.dumps(list(paths)), "subscribe": ",".join(self.options.topics), **storage}
        options["isolationLevel"] = "read_committed" if self.options.read_committed else "read_uncommitted"
        options["mode"] = "DROPMALFORMED" if self.options.past_damage else "FAILFAST"
        logs = LiveLogs(parse_read_options(options, streaming=True, quiet=True))
        while self.left != 0:
            seen = False
            found = logs.look(may_be_gone=self.options.topics)
            for tp, live in found.items():
                if self.options.partitions and tp[1] not in self.options.partitions:
                    continue
                start, floor = self._goes_on(tp, live)
                for rows in self._scan(live.log, start, live.readers_end):
                    seen = True
                    yield rows
                    if self.left == 0:
                        return
                self.followed[tp] = Followed(max(start, live.readers_end), live.readers_end, live.topic_id, floor)
            for tp in self.followed.keys() - found.keys():
                self.followed[tp] = replace(self.followed[tp], was_gone=True)
            if not seen and not wait():
                return

    def _goes_on(self, tp: TopicPartition, live: LiveLog) -> tuple[int, int]:
        """(start, floor) of the next scan; on_error gets what was lost before it."""
        before = self.followed.get(tp)
        if before is None:
            return live.log_start, 0
        if before.is_another(live.topic_id):
            what = f"the topic was deleted and created again; it goes on at the new one's offset {live.log_start}"
            self.on_error(DataLoss(what, topic_partition=live.log.name, offset=before.next_offset))
            return live.log_start, 0
        if live.readers_end < before.end:
            start = max(live.readers_end, before.floor)
            what = f"the log was truncated to offset {live.readers_end}; it goes on from offset {start}"
            self.on_error(DataLoss(what, topic_partition=live.log.name, offset=before.end))
            return start, before.floor
        return before.next_offset, before.floor
