"""A member of a classic group (Kafka's ClassicGroupMember)."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_broker.groups.classic.classic_requests import JoinCallback, Protocols, SyncCallback


@dataclass(slots=True, eq=False)
class ClassicGroupMember:
    """A member of a classic group.

    Attributes:
        awaiting_join: Callback of a JoinGroup request that waits for the next generation.
        awaiting_sync: Callback of a SyncGroup request that waits for the assignment.
        is_new: The member has not been in a generation yet, so it cannot send heartbeats.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaiting_join: JoinCallback | None = None
    awaiting_sync: SyncCallback | None = None
    is_new: bool = False

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """True if a waiting request shows that the member is alive. A new member may have lost its connection."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    @property
    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str | None) -> bytes:
        """Return the metadata for a protocol. Raises KeyError if the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(f"member {self.member_id!r} does not support protocol {protocol!r}")
