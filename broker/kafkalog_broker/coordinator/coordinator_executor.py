"""Tasks of a coordinator shard that take too long for the event loop (Kafka's CoordinatorExecutor)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from kafkalog_broker.coordinator.coordinator_result import CoordinatorResult
from kafkalog_broker.coordinator.coordinator_timer import Commit
from kafkalog_broker.errors import BrokerError

_log = logging.getLogger(__name__)

T = TypeVar("T")

RunInBackground = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""Runs the first function in a thread, then the second in the event loop with its result or exception."""


class CoordinatorExecutor:
    """Tasks of one partition, by key. Not thread-safe; call from the event loop."""

    def __init__(self, run_in_background: RunInBackground, commit: Commit) -> None:
        self._run_in_background = run_in_background
        self._commit = commit
        self._scheduled: dict[Hashable, object] = {}

    def schedule(
        self,
        key: Hashable,
        task: Callable[[], T],
        operation: Callable[[T | Exception], CoordinatorResult[Any, Any] | None],
    ) -> None:
        """Run `task` in a thread, then commit the result of `operation`. No-op while a task with this key is scheduled.

        Args:
            task: Must not read state that changes meanwhile; pass it a snapshot.
            operation: Gets what the task returned or raised, in the event loop. Not called if the task was cancelled.
                A BrokerError that it or the commit raises is logged: the next request tries again.
        """
        if key in self._scheduled:
            return
        token = self._scheduled[key] = object()

        def finish(outcome: T | Exception) -> None:
            if self._scheduled.get(key) is not token:
                return
            del self._scheduled[key]
            try:
                result = operation(outcome)
                if result is not None:
                    self._commit(result)
            except BrokerError as error:
                _log.warning("the result of %.200r could not be written: %s", key, error)

        self._run_in_background(task, finish)

    def is_scheduled(self, key: Hashable) -> bool:
        return key in self._scheduled

    def cancel(self, key: Hashable) -> None:
        """Drop the outcome of a task that is running."""
        self._scheduled.pop(key, None)

    def cancel_all(self) -> None:
        self._scheduled.clear()
