"""Choice of the copy of each partition that a stream reads, repeated at every trigger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read import replica_choice
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.replica_choice import ReplicaChoice, Replicas
from kafkalog_spark.source.live_log import LiveLog
from kafkalog_spark.source.topic_partitions import TopicPartition


class LiveCopies:
    """Chooses the copies of partitions that are in several log directories.

    Offsets are the same in every copy, so a batch may read another copy than the batch before. Among equally good
    copies, the previous choice is kept.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._last_looks: dict[str, LiveLog] = {}
        self._changes: dict[TopicPartition, ReplicaChoice] = {}

    def check(self, dirs: LogDirs, assigned: Collection[TopicPartition]) -> None:
        """Check a new listing of the log directories, and forget copies that are gone.

        Raises:
            NotALogDirectory: As `LogDirs.choose_locations`.
        """
        if self._replicas == "error":
            replica_choice.refuse_copies(dirs.copies, assigned)
        replica_choice.check_one_topic(dirs.locations, dirs.copies, assigned)
        directories = {location.directory for locations in dirs.copies.values() for location in locations}
        self._last_looks = {path: live for path, live in self._last_looks.items() if path in directories}

    def look(
        self,
        locations: Sequence[PartitionLocation],
        before: LiveLog | None,
        look_at: Callable[[PartitionLocation, LiveLog | None], LiveLog | None],
    ) -> LiveLog | None:
        """Return the copy of a partition to read now; None if all copies have been deleted.

        Args:
            locations: The copies.
            before: The previous choice; None if there is none.
            look_at: Looks at a copy again, given the last look at it. Only called for copies with the highest leader
                epoch, because no other copy can be chosen.
        """
        current = None if before is None else before.log.location

        def log_end(location: PartitionLocation) -> int | None:
            live = look_at(location, self._last_looks.get(location.directory))
            if live is None:
                return None
            self._last_looks[location.directory] = live
            return live.log_end.offset

        # The first of equally good copies is chosen, so the previous choice is sorted to the front.
        choice = replica_choice.choose_leading_copy(
            sorted(locations, key=lambda location: location != current), log_end, always_find_end=True
        )
        if choice is None:
            return None
        chosen, copies = choice.chosen, choice.copies
        if chosen.location != current:
            order = [location.directory for location in locations]
            copies.sort(key=lambda copy: order.index(copy.location.directory))
            self._changes[chosen.location.topic, chosen.location.partition] = choice
        return self._last_looks[chosen.location.directory]

    def report(self) -> None:
        """Log, in one line, the partitions that are now read from another copy."""
        replica_choice.log_choices(self._changes)
        self._changes = {}
