"""Error codes of a source: which of them pass, and their texts."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode

PASSING = frozenset(
    {
        ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available, ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available, ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available, ErrorCode.unknown_topic_id, ErrorCode.inconsistent_topic_id,
        ErrorCode.kafka_storage_error, ErrorCode.unknown_server_error,
    }
)  # fmt: skip
"""Error codes of a partition whose leader is another one, or not ready: the metadata are looked at again."""
SESSION_ERRORS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)  # fmt: skip
"""Error codes of a response that ask for a new session."""


def error_text(code: int) -> str:
    return code.name.upper() if isinstance(code, ErrorCode) else f"error code {code}"  # of a later release
