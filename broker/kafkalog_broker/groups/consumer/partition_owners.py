"""Owners of the partitions of a consumer group (Kafka: `ConsumerGroup.currentPartitionEpoch`)."""

from __future__ import annotations

from uuid import UUID

from kafkalog_broker.groups.modern.group_records import Owned
from kafkalog_broker.groups.modern.modern_group import ReconcilingMember

_NO_OWNER_EPOCH = -1  # epoch of a partition without owner, and of a member that has left


class PartitionOwners:
    """Epochs of the members that own partitions, or have not revoked them yet."""

    def __init__(self) -> None:
        self._epochs: dict[UUID, dict[int, int]] = {}

    def has_owner(self, topic_id: UUID, partition: int) -> bool:
        return self._epochs.get(topic_id, {}).get(partition, _NO_OWNER_EPOCH) != _NO_OWNER_EPOCH

    def add(self, member: ReconcilingMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            self._add(owned, member.epoch)

    def discard(self, member: ReconcilingMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            self._discard(owned, member.epoch)

    def _add(self, owned: Owned, epoch: int) -> None:
        for topic_id, partitions in owned.items():
            epochs = self._epochs.setdefault(topic_id, {})
            for partition in partitions:
                epochs[partition] = max(epoch, epochs.get(partition, epoch))

    def _discard(self, owned: Owned, epoch: int) -> None:
        """Remove the partitions that are still owned in this epoch.

        Another epoch means another owner: a static member that has replaced this one.
        """
        for topic_id, partitions in owned.items():
            epochs = self._epochs.get(topic_id, {})
            for partition in partitions:
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                self._epochs.pop(topic_id, None)
