"""States of a transaction, and the transitions between them (Kafka's TransactionState)."""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """State of a transactional ID, as numbered in the records of __transaction_state.

    Kafka uses DEAD and PREPARE_EPOCH_FENCE while a change waits for its append. Here appends do not wait, so these
    states are read but never written.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name of the state, such as `PrepareCommit`."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """True if the outcome is persisted and markers are outstanding."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def may_expire(self) -> bool:
        """True if no transaction is open, so that the ID may be removed after transactional.id.expiration.ms."""
        return self in _NOT_OPEN


_NOT_OPEN = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

STATES_BY_LABEL = {state.label: state for state in TransactionState}

VALID_PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _NOT_OPEN,
    TransactionState.ONGOING: _NOT_OPEN | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    # From states without an open transaction only with transaction version 2: a producer may abort without knowing
    # whether the coordinator has received any part of its transaction.
    TransactionState.PREPARE_ABORT: _NOT_OPEN | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
}
"""By state, the states that it may follow."""
