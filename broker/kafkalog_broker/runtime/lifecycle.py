"""State of a broker between its start and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum

from kafkalog_broker.runtime.state_machine import next_state


class BrokerState(Enum):
    """States of a broker, named as in Kafka's BrokerState."""

    STARTING = "starting"  # addresses are bound and log directories locked; no part that handles requests exists
    RECOVERY = "recovery"  # logs are loaded and the parts are made
    RUNNING = "running"  # clients are served
    SHUTTING_DOWN = "shutting down"
    NOT_RUNNING = "not running"


TRANSITIONS: Mapping[BrokerState, frozenset[BrokerState]] = {
    BrokerState.STARTING: frozenset({BrokerState.RECOVERY, BrokerState.NOT_RUNNING}),
    BrokerState.RECOVERY: frozenset({BrokerState.RUNNING, BrokerState.NOT_RUNNING}),
    BrokerState.RUNNING: frozenset({BrokerState.SHUTTING_DOWN}),
    BrokerState.SHUTTING_DOWN: frozenset({BrokerState.NOT_RUNNING}),
    BrokerState.NOT_RUNNING: frozenset(),
}


class Lifecycle:
    """State of a broker, and why it has to be stopped.

    Attributes:
        state: The current state.
        failed: Set when the broker cannot continue; the process that runs it then stops it.
        failure: Why `failed` was set; None if all log directories have failed.
        coordinators_loaded: Set once groups, transactions and share partitions have been loaded.
    """

    def __init__(self) -> None:
        self.state = BrokerState.STARTING
        self.failed = asyncio.Event()
        self.failure: str | None = None
        self.coordinators_loaded = asyncio.Event()

    def enter(self, state: BrokerState) -> None:
        """Change the state. Raises RuntimeError for a transition that is not in TRANSITIONS."""
        self.state = next_state(TRANSITIONS, self.state, state)

    def fail(self, reason: str) -> None:
        """Request that the broker stops, and record the reason."""
        self.failure = reason
        self.failed.set()

    def not_ready_reason(self) -> str | None:
        """Return why the broker is not ready, or None if all requests are served, including those to coordinators."""
        if self.failed.is_set():
            return self.failure or "all log directories have failed"
        if self.state is not BrokerState.RUNNING:
            return "the broker is starting or stopping"
        return None if self.coordinators_loaded.is_set() else "groups and transactions are being loaded"
