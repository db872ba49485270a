"""The copies of a stream's partitions that lie in several log directories, and which of them is read at a trigger.

Offsets are the same in every copy, so a batch may read another copy than the one before. Between copies that are level
the one that was read stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalog_spark.log.read.replicas import Copy, Replicas, best, check_one_topic, leader_epoch, refuse_copies, report

if TYPE_CHECKING:
    from kafkalog_spark.log.log_dir import LogDirs
    from kafkalog_spark.log.read.partition_place import PartitionPlace
    from kafkalog_spark.source.live_log import LiveLog
    from kafkalog_spark.source.offset_range_limit import TopicPartition

LookAt = Callable[["PartitionPlace", "LiveLog | None"], "LiveLog | None"]
"""A look at one copy, from the one before; None when it has been deleted."""


class LiveCopies:
    """What is known of the copies between looks. Keeps no file open."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._seen: dict[str, LiveLog] = {}
        self._news: dict[TopicPartition, tuple[Copy, Sequence[Copy]]] = {}

    def check(self, dirs: LogDirs, assigned: Collection[TopicPartition]) -> None:
        """What was listed again, for the partitions that are read. Raises NotALogDirectory: see `chosen_places`."""
        if self._replicas == "error":
            refuse_copies(dirs.copies, assigned)
        check_one_topic(dirs.places, dirs.copies, assigned)
        there = {place.directory for places in dirs.copies.values() for place in places}
        self._seen = {directory: live for directory, live in self._seen.items() if directory in there}

    def look(self, places: Sequence[PartitionPlace], before: LiveLog | None, look_at: LookAt) -> LiveLog | None:
        """The copy to read now; `before`: the one that was read. None when all have been deleted.

        Looks at the logs of the highest leader epoch alone: what an older one holds decides nothing.
        """
        epochs = {place.directory: leader_epoch(place) for place in places}
        current = None if before is None else before.place
        there = sorted(places, key=lambda place: place != current)  # the first one stays where others are level
        while there:
            highest = max(epochs[place.directory] for place in there)
            leaders = [place for place in there if epochs[place.directory] == highest]
            found = []
            for place in leaders:
                live = look_at(place, self._seen.get(place.directory))
                if live is not None:
                    self._seen[place.directory] = live
                    found.append((Copy(place, highest, live.log_end.offset), live))
            if found:
                chosen = best([copy for copy, _ in found])
                if chosen.place != current:
                    looked_at = {copy.place: copy for copy, _ in found}
                    others = [
                        looked_at.get(place, Copy(place, epochs[place.directory], None))
                        for place in places
                        if place != chosen.place
                    ]
                    self._news[chosen.place.topic, chosen.place.partition] = (chosen, [chosen, *others])
                return next(live for copy, live in found if copy is chosen)
            there = [place for place in there if place not in leaders]
        return None

    def report(self) -> None:
        """Log, in one line, what is read from another copy than before."""
        news: Mapping[TopicPartition, tuple[Copy, Sequence[Copy]]] = self._news
        self._news = {}
        report(news)
