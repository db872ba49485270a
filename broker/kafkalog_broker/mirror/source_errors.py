"""Error codes of a source: which are transient, and their texts."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode

TRANSIENT = frozenset(
    {
        ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available, ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available, ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available, ErrorCode.unknown_topic_id, ErrorCode.inconsistent_topic_id,
        ErrorCode.kafka_storage_error, ErrorCode.unknown_server_error,
    }
)  # fmt: skip
"""Error codes of a partition whose leader has changed or is not ready; the metadata is requested again."""
SESSION_ERRORS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)  # fmt: skip
"""Error codes that require a new fetch session."""


def error_text(code: int) -> str:
    """Return the name of an error code; its number if a later release defines it."""
    return code.name.upper() if isinstance(code, ErrorCode) else f"error code {code}"
