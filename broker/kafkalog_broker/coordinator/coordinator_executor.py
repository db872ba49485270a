"""Tasks of a coordinator shard that would block the event loop for too long (Kafka's CoordinatorExecutor)."""

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
"""Runs the first function in a thread, then calls the second one in the event loop with the result or exception."""


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
            operation: Called in the event loop with the return value or the exception of the task, unless the task was
                cancelled. If it or the commit raises BrokerError, the error is logged; a later request schedules the
                task again.
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
                _log.warning("the result of the background task %.200r could not be written: %s", key, error)

        self._run_in_background(task, finish)

    def is_scheduled(self, key: Hashable) -> bool:
        return key in self._scheduled

    def cancel(self, key: Hashable) -> None:
        """Discard the outcome of a running task. No-op if there is none."""
        self._scheduled.pop(key, None)

    def cancel_all(self) -> None:
        self._scheduled.clear()
