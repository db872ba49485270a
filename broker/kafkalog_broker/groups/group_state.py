"""The states of a classic group, and the events that lead from one to the next (Kafka's ClassicGroupState).

Empty ──MEMBER_JOINED──► PreparingRebalance ──JOINED──► CompletingRebalance ──ASSIGNED──► Stable
  ▲                        │    ▲   ▲                         │                             │
  └────────ALL_GONE────────┘    │   └────────REBALANCE────────┘                             │
                                └────────────────────REBALANCE──────────────────────────────┘
and DELETED leads from every state to Dead, where a group stays.
"""

from __future__ import annotations

from enum import Enum, auto


class GroupState(Enum):
    """The value is the name that ListGroups and DescribeGroups show."""

    EMPTY = "Empty"
    """No members. Its offsets expire, and it goes when the last one has."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until every member has (re)joined, or the rebalance timeout is over."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has begun and waits for its leader's assignment."""
    STABLE = "Stable"
    """Every member has its assignment."""
    DEAD = "Dead"
    """Deleted, or handed to another coordinator. Only who kept the object still sees it."""


class GroupEvent(Enum):
    """What happens to a group as a whole."""

    MEMBER_JOINED = auto()
    """The first member of an empty group."""
    REBALANCE = auto()
    """Members came, went, or changed what they can do: all have to join again."""
    JOINED = auto()
    """The join phase ended with members: the next generation begins."""
    ALL_GONE = auto()
    """The join phase ended without a member."""
    ASSIGNED = auto()
    """The leader's assignment is in the log."""
    DELETED = auto()


class IllegalTransition(RuntimeError):
    """An event in a state that cannot have it: a defect of the coordinator, never of a client."""

    def __init__(self, group_id: str, state: GroupState, event: GroupEvent) -> None:
        expected = ", ".join(known.value for known, wanted in TRANSITIONS if wanted is event)
        super().__init__(f"group {group_id!r}: {event.name} in state {state.value}, expected one of {expected}")


_S, _E = GroupState, GroupEvent

TRANSITIONS: dict[tuple[GroupState, GroupEvent], GroupState] = {
    (_S.EMPTY, _E.MEMBER_JOINED): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.REBALANCE): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.REBALANCE): _S.PREPARING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.JOINED): _S.COMPLETING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.ALL_GONE): _S.EMPTY,
    (_S.COMPLETING_REBALANCE, _E.ASSIGNED): _S.STABLE,
    **{(state, _E.DELETED): _S.DEAD for state in GroupState},
}


def next_state(group_id: str, state: GroupState, event: GroupEvent) -> GroupState:
    """Where `event` leads from `state`. Raises IllegalTransition."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(group_id, state, event) from None
