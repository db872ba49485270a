"""Errors of the share coordinator as members see them (Kafka's SharePartition.fetchPersisterError)."""

from __future__ import annotations

from kafkalog_broker.errors import BrokerError, ErrorCode

_MEMBER_CODES = {
    ErrorCode.not_coordinator: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_not_available: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress: ErrorCode.coordinator_not_available,
    ErrorCode.group_id_not_found: ErrorCode.group_id_not_found,
    ErrorCode.unknown_topic_or_partition: ErrorCode.unknown_topic_or_partition,
    ErrorCode.fenced_leader_epoch: ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_state_epoch: ErrorCode.not_leader_or_follower,
}

_STALE_CODES = frozenset(
    {ErrorCode.not_leader_or_follower, ErrorCode.group_id_not_found, ErrorCode.unknown_topic_or_partition}
)


def member_error(error: BrokerError) -> BrokerError:
    """Return the error for the member; unknown_server_error for codes that are not expected."""
    return BrokerError(_MEMBER_CODES.get(error.code, ErrorCode.unknown_server_error), error.what)


def means_stale_state(error: BrokerError) -> bool:
    """Return whether a member's error means that the loaded share partition is out of date and must be dropped."""
    return error.code in _STALE_CODES
