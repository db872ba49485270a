"""State machines as tables: an enum of states, and for each state those that may follow it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)


def next_state(transitions: Mapping[State, frozenset[State]], before: State, after: State) -> State:
    """Return `after` if it may follow `before`.

    Raises:
        RuntimeError: If it may not. This is a defect of this program; a client cannot cause it.
    """
    if after not in transitions[before]:
        raise RuntimeError(f"{type(before).__name__} cannot go from {before.name} to {after.name}")
    return after
