"""Error codes that clients get when the log of a coordinator fails (Kafka's CoordinatorOperationExceptionHelper)."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode


def coordinator_error_code(code: ErrorCode) -> ErrorCode:
    """Return the error code for the client when the log of the coordinator failed with `code`."""
    match code:
        case ErrorCode.unknown_topic_or_partition | ErrorCode.not_enough_replicas | ErrorCode.request_timed_out:
            return ErrorCode.coordinator_not_available
        case ErrorCode.not_leader_or_follower | ErrorCode.kafka_storage_error:
            return ErrorCode.not_coordinator
        case ErrorCode.message_too_large | ErrorCode.record_list_too_large | ErrorCode.invalid_fetch_size:
            return ErrorCode.unknown_server_error
    return code
