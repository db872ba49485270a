"""Calls from a cleaner thread to the thread that owns the logs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TypeVar

from kafkalog_broker.storage.compaction.cleaning_request import CleaningAborted

_STOP_CHECK_INTERVAL_S = 0.2  # interval at which a waiting cleaner thread checks whether it must stop

T = TypeVar("T")


@dataclass(eq=False)
class OwnerThread:
    """Proxy of the thread that owns the logs, for cleaner threads.

    Attributes:
        is_stopping: Set when the cleaner stops; calls that have not begun are then cancelled.
    """

    _call_soon: Callable[[Callable[[], object]], object]
    is_stopping: threading.Event = field(init=False, default_factory=threading.Event)

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the owning thread and return its result.

        Raises:
            CleaningAborted: If the cleaner stops, or the event loop is closed, before the function has begun.
            Exception: Any exception that the function raises, including TimeoutError.
        """
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - raised by `future.result()` on the calling thread
                    future.set_exception(error)

        try:
            self._call_soon(run)
        except RuntimeError as error:  # the event loop is closed
            raise CleaningAborted(str(error)) from None
        # `wait` is used because a TimeoutError of `future.result` could also have been raised by the function.
        while not future.done():
            wait([future], _STOP_CHECK_INTERVAL_S)
            if self.is_stopping.is_set():
                future.cancel()  # no-op once the function has begun
        if future.cancelled():
            raise CleaningAborted("the broker stops")
        return future.result()
