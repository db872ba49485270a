"""The offsets that groups have committed, as __consumer_offsets has them (Kafka's OffsetMetadataManager).

Offsets that a transaction commits are kept apart until its marker comes; until then they are unstable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.messages import NO_EPOCH, NO_OFFSET
from kafkalog_broker.groups.classic.offset_records import OffsetAndMetadata, OffsetKey


class CommittedOffset(NamedTuple):
    """Committed offset of a partition, as OffsetFetch tells it; -1 for no offset, and for no leader epoch."""

    partition_index: int
    committed_offset: int = NO_OFFSET
    committed_leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error_code: int = ErrorCode.none


class _Pending(NamedTuple):
    """position: orders commits as their records lie. committed: None when a later commit has come after it."""

    position: int
    committed: OffsetAndMetadata | None


class OffsetStore:
    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, OffsetAndMetadata]]] = {}
        self._pending: dict[int, dict[OffsetKey, _Pending]] = {}  # by producer id
        self._producers: dict[str, dict[OffsetKey, set[int]]] = {}
        """By group: who has something pending for a key."""
        self._next_position = 0

    def get(self, key: OffsetKey) -> OffsetAndMetadata | None:
        return self._groups.get(key.group_id, {}).get(key.topic, {}).get(key.partition)

    def put(self, key: OffsetKey, committed: OffsetAndMetadata) -> None:
        """A plain commit."""
        self._supersede(key, self._next_position)
        self._put(key, committed)

    def _supersede(self, key: OffsetKey, position: int) -> None:
        """Let a commit at `position` supersede what open transactions hold for `key` from before, however they end. The
        partition is unstable until they end, all the same."""
        for producer_id in self._producers.get(key.group_id, {}).get(key, ()):
            pending = self._pending[producer_id]
            held = pending[key]
            if held.position < position:
                pending[key] = _Pending(held.position, None)

    def _put(self, key: OffsetKey, committed: OffsetAndMetadata) -> None:
        self._groups.setdefault(key.group_id, {}).setdefault(key.topic, {})[key.partition] = committed

    def remove(self, key: OffsetKey) -> None:
        """A tombstone: also what transactions have pending for it is gone."""
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
        """Groups that have offsets, pending ones too."""
        return self._groups.keys() | self._producers.keys()

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, OffsetAndMetadata]]:
        """topic -> partition -> offset; empty for an unknown group."""
        return self._groups.get(group_id, {})

    def keys(self, group_id: str, topics: Collection[str] | None = None) -> list[OffsetKey]:
        """Keys of all offsets of a group, or those of some topics, pending ones too, each once."""
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

    # transactions

    def put_pending(
        self, producer_id: int, key: OffsetKey, committed: OffsetAndMetadata | None, position: int | None = None
    ) -> None:
        """Put an offset into an open transaction; None when a later commit has come after it. position: of its record
        in the log during replay; afterwards it comes after all."""
        if position is None:
            position = self._next_position
        self._next_position = max(self._next_position, position + 1)
        self._pending.setdefault(producer_id, {})[key] = _Pending(position, committed)
        self._producers.setdefault(key.group_id, {}).setdefault(key, set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Its marker has come. Of several commits of one partition that with the last record stays."""
        for key, held in self._pending.pop(producer_id, {}).items():
            self._forget_producer(key, producer_id)
            if commit and held.committed is not None:
                self._supersede(key, held.position)
                self._put(key, held.committed)

    def is_pending(self, key: OffsetKey) -> bool:
        return key in self._producers.get(key.group_id, ())

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._producers

    # OffsetFetch

    def fetch(
        self, group_id: str, topic: str, partitions: Iterable[int], topic_id: UUID | None = None, *,
        require_stable: bool = False,
    ) -> list[CommittedOffset]:  # fmt: skip
        """Committed offsets of a topic's partitions; none where committed to another topic id than `topic_id`."""
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
