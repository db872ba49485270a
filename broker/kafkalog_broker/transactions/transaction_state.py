"""The states of a transactional id, and which follows which (Kafka's TransactionState).

| from \\ to       | Empty | Ongoing | PrepareCommit | PrepareAbort | CompleteCommit | CompleteAbort |
|---|---|---|---|---|---|---|
| Empty           | x | x |   | x |   |   |
| Ongoing         |   | x | x | x |   |   |
| PrepareCommit   |   |   |   |   | x |   |
| PrepareAbort    |   |   |   |   |   | x |
| Complete...     | x | x |   | x |   |   |

Empty and Complete... lead to PrepareAbort in the second version only: there a producer may abort without knowing
whether the coordinator has seen anything of its transaction. Kafka has two states more, Dead and PrepareEpochFence,
for changes that wait for an append. Here an append does not wait; both are read and never written.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """The value is what stands in the records of __transaction_state; `label` is what administrators see."""

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
        """`PrepareCommit`."""
        return _LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """How the transaction ends is decided and written down, markers are outstanding."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def may_expire(self) -> bool:
        """Nothing is open: the id may be forgotten after transactional.id.expiration.ms."""
        return self in _ENDED


_S = TransactionState
_LABELS = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
_ENDED = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

BY_LABEL = {label: state for state, label in _LABELS.items()}

MAY_FOLLOW: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: _ENDED,
    _S.ONGOING: _ENDED | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: _ENDED | {_S.ONGOING},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
}
"""To each state those that it may follow."""


class IllegalTransition(RuntimeError):
    """A defect of this program: the table has no such step."""

    def __init__(self, transactional_id: str, before: TransactionState, after: TransactionState) -> None:
        super().__init__(f"transactional id {transactional_id!r} cannot go from {before.label} to {after.label}")
