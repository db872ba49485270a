"""Changes of SCRAM users by AlterUserScramCredentials."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.config.sasl_settings import SCRAM_MECHANISMS
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, derive_credential
from kafkalog_broker.security.scram_users import Users

Outcome = tuple[ErrorCode, str | None]
"""Error code of the change of one user, or `none`, and the message for the client."""

_MECHANISMS_BY_NUMBER = dict(enumerate(SCRAM_MECHANISMS, start=1))  # as numbered in the protocol


def mechanism_number(mechanism: str) -> int:
    """Return the protocol's number of a mechanism."""
    return SCRAM_MECHANISMS.index(mechanism) + 1


def apply_changes(users: Users, request: Any) -> dict[str, Outcome]:
    """Apply the changes of an AlterUserScramCredentials request to `users` (Kafka: ScramControlManager).

    Args:
        users: Changed in place.
        request: The request entity.

    Returns:
        The error of each user, or `none`. A user that is named twice is not changed.
    """
    valid: dict[str, Any] = {}
    failed: dict[str, Outcome] = {}
    for change in (*request.deletions, *request.upsertions):
        if change.name in failed:
            continue
        if valid.pop(change.name, None) is not None:
            outcome: Outcome | None = (
                ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
            )  # fmt: skip
        else:
            outcome = _check_change(change, users)
        if outcome is None:
            valid[change.name] = change
        else:
            failed[change.name] = outcome
    for name, change in valid.items():
        mechanism = _MECHANISMS_BY_NUMBER[change.mechanism]
        if _is_deletion(change):
            del users[mechanism][name]
        else:
            users[mechanism][name] = derive_credential(
                mechanism, change.salted_password, change.salt, change.iterations
            )
    return dict.fromkeys(valid, (ErrorCode.none, None)) | failed


def _is_deletion(change: Any) -> bool:
    return not hasattr(change, "iterations")


def _check_change(change: Any, users: Users) -> Outcome | None:
    """Return the error of a change, or None if it is valid."""
    if not change.name:
        return ErrorCode.unacceptable_credential, "Username must not be empty"
    mechanism = _MECHANISMS_BY_NUMBER.get(change.mechanism)
    if mechanism is None:
        return ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"
    if _is_deletion(change):
        if change.name in users[mechanism]:
            return None
        return ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
    if change.iterations < MIN_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too few iterations"
    if change.iterations > MAX_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too many iterations"
    if not change.salted_password:
        return ErrorCode.unknown_server_error, None  # as in Kafka, whose cryptography refuses an empty key
    return None
