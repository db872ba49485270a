"""State of a broker between its start and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum

from kafkalog_broker.runtime.state_machine import next_state


class BrokerState(Enum):
    """The names are those of Kafka's BrokerState."""

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

    failed: set when the broker cannot go on; the process that runs it then stops it.
    failure: the reason, or None if all log directories have failed.
    coordinators_loaded: set once groups, transactions and share partitions have been read.
    """

    def __init__(self) -> None:
        self.state = BrokerState.STARTING
        self.failed = asyncio.Event()
        self.failure: str | None = None
        self.coordinators_loaded = asyncio.Event()

    def enter(self, state: BrokerState) -> None:
        self.state = next_state(TRANSITIONS, self.state, state)

    def fail(self, why: str) -> None:
        """Ask for the broker to be stopped."""
        self.failure = why
        self.failed.set()

    def not_ready(self) -> str | None:
        """Return why clients are not served, or None if they are, including groups and transactions."""
        if self.failed.is_set():
            return "all log directories have failed"
        if self.state is not BrokerState.RUNNING:
            return "it starts, or stops"
        return None if self.coordinators_loaded.is_set() else "groups and transactions are being read"
