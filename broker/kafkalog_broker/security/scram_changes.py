"""What AlterUserScramCredentials makes of the users: decisions only (ScramControlManager)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafkalog_broker.config.sasl_settings import SCRAM
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, credential
from kafkalog_broker.security.scram_users import Users

Outcome = tuple[ErrorCode, str | None]

_NUMBERS = {1: SCRAM[0], 2: SCRAM[1]}
"""Mechanisms as the protocol numbers them."""


@dataclass(frozen=True, slots=True)
class Deletion:
    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    name: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


def number_of(mechanism: str) -> int:
    """As the protocol has it."""
    return SCRAM.index(mechanism) + 1


def changed(users: Users, deletions: Iterable[Deletion], upsertions: Iterable[Upsertion]) -> dict[str, Outcome]:
    """Make the changes in `users`; what became of each user. One that is named twice is not changed at all."""
    planned: dict[str, Deletion | Upsertion] = {}
    failed: dict[str, Outcome] = {}
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for change in changes:
        if change.name in failed:
            continue
        if planned.pop(change.name, None) is not None:
            failed[change.name] = (
                ErrorCode.duplicate_resource,
                "A user credential cannot be altered twice in the same request",
            )
            continue
        outcome = _wrong(change, users)
        if outcome is None:
            planned[change.name] = change
        else:
            failed[change.name] = outcome
    for change in planned.values():
        mechanism = _NUMBERS[change.mechanism]
        if isinstance(change, Deletion):
            del users[mechanism][change.name]
        else:
            users[mechanism][change.name] = credential(
                mechanism, change.salted_password, change.salt, change.iterations
            )
    return dict.fromkeys(planned, (ErrorCode.none, None)) | failed


def _wrong(change: Deletion | Upsertion, users: Users) -> Outcome | None:
    if not change.name:
        return ErrorCode.unacceptable_credential, "Username must not be empty"
    mechanism = _NUMBERS.get(change.mechanism)
    if mechanism is None:
        return ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"
    if isinstance(change, Deletion):
        if change.name in users[mechanism]:
            return None
        return ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
    if change.iterations < MIN_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too few iterations"
    if change.iterations > MAX_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too many iterations"
    if not change.salted_password:
        return ErrorCode.unknown_server_error, None  # as Kafka, whose cryptography takes no empty key
    return None
