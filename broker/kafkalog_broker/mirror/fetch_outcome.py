"""What a partition's part of a Fetch response means for its mirror: a table."""

from __future__ import annotations

from enum import Enum

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.fetch_client import Fetched


class Outcome(Enum):
    """What is to be done."""

    APPEND = "append what came"
    PARTED = "the leader's log is another one from some offset on: find it, truncate"
    OUT_OF_RANGE = "the leader has no such offset: ask where its log begins and ends"
    ASK_AGAIN = "the leader is another one, or not ready: look at the metadata"
    REFUSED = "it will not be answered until somebody changes something"


_OF_ERROR = {
    ErrorCode.none: Outcome.APPEND,
    ErrorCode.offset_out_of_range: Outcome.OUT_OF_RANGE,
    ErrorCode.unknown_topic_or_partition: Outcome.ASK_AGAIN,
    ErrorCode.leader_not_available: Outcome.ASK_AGAIN,
    ErrorCode.not_leader_or_follower: Outcome.ASK_AGAIN,
    ErrorCode.replica_not_available: Outcome.ASK_AGAIN,
    ErrorCode.fenced_leader_epoch: Outcome.ASK_AGAIN,
    ErrorCode.unknown_leader_epoch: Outcome.ASK_AGAIN,
    ErrorCode.offset_not_available: Outcome.ASK_AGAIN,
    ErrorCode.unknown_topic_id: Outcome.ASK_AGAIN,
    ErrorCode.inconsistent_topic_id: Outcome.ASK_AGAIN,
    ErrorCode.kafka_storage_error: Outcome.ASK_AGAIN,
    ErrorCode.unknown_server_error: Outcome.ASK_AGAIN,
}

SESSION_ERRORS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)
"""Of a whole response: begin a new session."""


def outcome_of_error(number: int) -> Outcome:
    """The table's entry of Kafka's code."""
    code = error_code(number)
    return Outcome.REFUSED if code is None else _OF_ERROR.get(code, Outcome.REFUSED)


def outcome_of(fetched: Fetched) -> Outcome:
    """What is to be done about a partition's part."""
    found = outcome_of_error(fetched.error)
    return Outcome.PARTED if found is Outcome.APPEND and fetched.diverging is not None else found


def error_code(number: int) -> ErrorCode | None:
    """None for a code of a later release."""
    try:
        return ErrorCode(number)
    except ValueError:
        return None


def error_text(number: int) -> str:
    """Kafka's name of the code."""
    code = error_code(number)
    return f"error code {number}" if code is None else code.name.upper()
