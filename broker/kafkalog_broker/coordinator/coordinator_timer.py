"""Named timers of a coordinator shard (Kafka's CoordinatorTimer)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from kafkalog_broker.coordinator.coordinator_result import CoordinatorResult
from kafkalog_broker.errors import BrokerError

_log = logging.getLogger(__name__)

RETRY_MS = 500  # delay after an operation that could not be committed (Kafka's CoordinatorTimerImpl)


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


Scheduler = Callable[[int, Callable[[], None]], TimerHandle]  # calls a function after a delay in ms
TimedOperation = Callable[[], CoordinatorResult[Any, Any] | None]
Commit = Callable[[CoordinatorResult[Any, Any]], Any]  # CoordinatorRuntime.commit of one partition


class CoordinatorTimer:
    """Timers of one partition, by key. Not thread-safe; call from the event loop."""

    def __init__(self, scheduler: Scheduler, commit: Commit) -> None:
        self._scheduler = scheduler
        self._commit = commit
        self._handles: dict[Hashable, TimerHandle] = {}

    def schedule(self, key: Hashable, delay_ms: int, operation: TimedOperation) -> None:
        """Run `operation` after `delay_ms` and commit its result. Replaces the timer with the same key, if any.

        If the operation or the commit raises BrokerError, the operation is run again after `RETRY_MS`.
        """
        self.cancel(key)

        def fire() -> None:
            self._handles.pop(key, None)
            try:
                result = operation()
                if result is not None:
                    self._commit(result)
            except BrokerError as error:
                _log.warning("the operation of timer %.200r failed and is retried: %s", key, error)
                self.schedule(key, RETRY_MS, operation)

        self._handles[key] = self._scheduler(delay_ms, fire)

    def is_scheduled(self, key: Hashable) -> bool:
        return key in self._handles

    def cancel(self, key: Hashable) -> None:
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def cancel_all(self) -> None:
        for key in list(self._handles):
            self.cancel(key)
