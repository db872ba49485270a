"""A member of a classic group (Kafka's ClassicGroupMember)."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_broker.groups.messages import JoinCallback, Protocols, SyncCallback


@dataclass(slots=True, eq=False)
class Member:
    """One member. Times in ms. It waits for a generation while `awaiting_join` is set, then for its assignment."""

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
    """Has not seen a generation yet, so it cannot send heartbeats."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Who waits for an answer is alive, except a new member: its client may be long gone (see Rebalances.add)."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    @property
    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol of its own. Raises KeyError for another."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(f"member {self.member_id!r} does not support protocol {protocol!r}")
