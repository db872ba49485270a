"""Committed offsets of the groups of one partition (Kafka's OffsetMetadataManager).

An offset that is committed in a transaction is pending until the transaction marker is appended. Until then the
committed offset of the partition is unstable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.offset_records import OffsetAndMetadata, OffsetKey
from kafkalog_broker.groups.offset_requests import NO_EPOCH, NO_OFFSET


class CommittedOffset(NamedTuple):
    """Committed offset of a partition in the response to OffsetFetch. Offset and leader epoch are -1 if absent."""

    partition_index: int
    committed_offset: int = NO_OFFSET
    committed_leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error_code: int = ErrorCode.none


class _Pending(NamedTuple):
    """Offset committed in an open transaction.

    Attributes:
        position: Orders commits like their records in the log.
        committed: None if a later commit supersedes it.
    """

    position: int
    committed: OffsetAndMetadata | None


class OffsetStore:
    """Committed and pending offsets. Not thread-safe; filled in any thread, then used in the event loop."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, OffsetAndMetadata]]] = {}
        self._pending: dict[int, dict[OffsetKey, _Pending]] = {}  # by producer ID
        self._producers: dict[str, dict[OffsetKey, set[int]]] = {}
        """By group ID and key, the IDs of the producers with a pending offset."""
        self._next_position = 0

    def get(self, key: OffsetKey) -> OffsetAndMetadata | None:
        return self._groups.get(key.group_id, {}).get(key.topic, {}).get(key.partition)

    def put(self, key: OffsetKey, committed: OffsetAndMetadata) -> None:
        """Commit an offset outside of a transaction."""
        self._supersede(key, self._next_position)
        self._put(key, committed)

    def _supersede(self, key: OffsetKey, position: int) -> None:
        """Supersede the earlier pending offsets of a key by a commit at `position`, even if their transactions commit.

        The offset of the partition stays unstable until these transactions end.
        """
        for producer_id in self._producers.get(key.group_id, {}).get(key, ()):
            pending = self._pending[producer_id]
            earlier = pending[key]
            if earlier.position < position:
                pending[key] = earlier._replace(committed=None)

    def _put(self, key: OffsetKey, committed: OffsetAndMetadata) -> None:
        self._groups.setdefault(key.group_id, {}).setdefault(key.topic, {})[key.partition] = committed

    def remove(self, key: OffsetKey) -> None:
        """Remove an offset, and the pending ones with the same key."""
        topics = self._groups.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self._groups.pop(key.group_id, None)
        for producer_id in tuple(self._producers.get(key.group_id, {}).get(key, ())):
            del self._pending[producer_id][key]
            self._forget_producer(key, producer_id)

    def _forget_producer(self, key: OffsetKey, producer_id: int) -> None:
        keys = self._producers[key.group_id]
        producers = keys[key]
        producers.discard(producer_id)
        if not producers:
            del keys[key]
            if not keys:
                del self._producers[key.group_id]

    def group_ids(self) -> set[str]:
        """Return the groups that have offsets, including pending ones."""
        return self._groups.keys() | self._producers.keys()

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, OffsetAndMetadata]]:
        """Return the committed offsets of a group by topic and partition."""
        return self._groups.get(group_id, {})

    def keys(self, group_id: str, topics: Collection[str] | None = None) -> list[OffsetKey]:
        """Return the keys of all offsets of a group, or of its offsets of some topics, including pending ones."""
        keys = [
            OffsetKey(group_id, topic, partition)
            for topic, partitions in self.of_group(group_id).items()
            if topics is None or topic in topics
            for partition in partitions
        ]
        pending = (key for key in self._producers.get(group_id, ()) if topics is None or key.topic in topics)
        return keys + sorted(key for key in pending if self.get(key) is None)

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    def put_pending(
        self, producer_id: int, key: OffsetKey, committed: OffsetAndMetadata | None, position: int | None = None
    ) -> None:
        """Put an offset of an open transaction.

        Args:
            committed: None if a later commit supersedes it.
            position: Log offset of the record, if it is loaded from the log; None for the latest record.
        """
        if position is None:
            position = self._next_position
        self._next_position = max(self._next_position, position + 1)
        self._pending.setdefault(producer_id, {})[key] = _Pending(position, committed)
        self._producers.setdefault(key.group_id, {}).setdefault(key, set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Commit or drop the pending offsets of a producer. For each key, the commit with the last record wins."""
        for key, pending in self._pending.pop(producer_id, {}).items():
            self._forget_producer(key, producer_id)
            if commit and pending.committed is not None:
                self._supersede(key, pending.position)
                self._put(key, pending.committed)

    def is_pending(self, key: OffsetKey) -> bool:
        return key in self._producers.get(key.group_id, ())

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._producers

    def fetch(
        self, group_id: str, topic: str, partitions: Iterable[int], topic_id: UUID | None = None, *,
        require_stable: bool = False,
    ) -> list[CommittedOffset]:  # fmt: skip
        """Return the committed offsets of partitions of a topic.

        Args:
            topic_id: Offsets that were committed for another topic ID count as absent.
            require_stable: Report UNSTABLE_OFFSET_COMMIT for partitions with a pending offset.
        """
        committed_of = self.of_group(group_id).get(topic, {})
        fetched = []
        for partition in partitions:
            if require_stable and self._pending and self.is_pending(OffsetKey(group_id, topic, partition)):
                fetched.append(CommittedOffset(partition, error_code=ErrorCode.unstable_offset_commit))
                continue
            committed = committed_of.get(partition)
            if committed is None or (committed.topic_id and topic_id and committed.topic_id != topic_id):
                fetched.append(CommittedOffset(partition))
            else:
                fetched.append(CommittedOffset(partition, committed.offset, committed.leader_epoch, committed.metadata))
        return fetched
