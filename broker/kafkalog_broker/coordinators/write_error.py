"""What a client is answered when its coordinator could not write (CoordinatorOperationExceptionHelper)."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode

_WRITE_ERRORS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
    ErrorCode.invalid_fetch_size: ErrorCode.unknown_server_error,
}


def write_error(code: ErrorCode) -> ErrorCode:
    """The answer when an append to the coordinator's partition failed with `code`."""
    return _WRITE_ERRORS.get(code, code)
