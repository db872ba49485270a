"""The copy of a partition that a stream reads, chosen again at every trigger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read import replica_choice
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.replica_choice import ReplicaCopy, Replicas
from kafkalog_spark.source.live_log import LiveLog
from kafkalog_spark.source.offsets import TopicPartition


class LiveCopies:
    """Copies of partitions in several log directories, and which is read at a trigger: offsets are the same in each, so
    a batch may read another copy than the one before. Of level copies the one that was read stays."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._seen: dict[str, LiveLog] = {}
        self._news: dict[TopicPartition, tuple[ReplicaCopy, Sequence[ReplicaCopy]]] = {}

    def check(self, dirs: LogDirs, assigned: Collection[TopicPartition]) -> None:
        """Take a new listing, for the partitions that are read. Raises NotALogDirectory: see LogDirs.chosen."""
        if self._replicas == "error":
            replica_choice.refuse_copies(dirs.copies, assigned)
        replica_choice.check_one_topic(dirs.locations, dirs.copies, assigned)
        there = {location.directory for locations in dirs.copies.values() for location in locations}
        self._seen = {directory: live for directory, live in self._seen.items() if directory in there}

    def look(
        self,
        locations: Sequence[PartitionLocation],
        before: LiveLog | None,
        look_at: Callable[[PartitionLocation, LiveLog | None], LiveLog | None],
    ) -> LiveLog | None:
        """The copy to read now; `before`: the one that was read. None when all have been deleted. `look_at`: of one
        copy, from the look before; asked of the highest leader epoch alone: what an older one holds decides nothing."""
        current = None if before is None else before.log.location

        def log_end(location: PartitionLocation) -> int | None:
            live = look_at(location, self._seen.get(location.directory))
            if live is None:
                return None
            self._seen[location.directory] = live
            return live.log_end.offset

        # the first one stays where others are level
        choice = replica_choice.leading_copy(
            sorted(locations, key=lambda location: location != current), log_end, alone_too=True
        )
        if choice is None:
            return None
        chosen, copies = choice
        if chosen.location != current:
            order = [location.directory for location in locations]
            copies.sort(key=lambda copy: order.index(copy.location.directory))
            self._news[chosen.location.topic, chosen.location.partition] = choice
        return self._seen[chosen.location.directory]

    def report(self) -> None:
        """Log, in one line, what is read from another copy than before."""
        replica_choice.report(self._news)
        self._news = {}
