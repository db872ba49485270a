"""Measures for how long the steps of a coroutine hold the event loop."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")

NOT_BEGUN: Any = object()
"""Stands for a coroutine that has not been started."""


@types.coroutine
def timed(
    work: Coroutine[Any, Any, T], note: Callable[[float], None], waits_for: Any = NOT_BEGUN
) -> Generator[Any, Any, T]:
    """Run a coroutine to its result and report how long each of its steps held the event loop.

    Args:
        work: The coroutine.
        note: Called with the seconds of each step.
        waits_for: The future that `work` awaits, if it has been started already.
    """
    step: Callable[[], Any] = partial(work.send, None)
    while True:
        if waits_for is not NOT_BEGUN:
            try:
                step = partial(work.send, (yield waits_for))
            except BaseException as error:  # noqa: BLE001 - passed on to `work`
                step = partial(work.throw, error)
        began = perf_counter()
        try:
            waits_for = step()
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            note(perf_counter() - began)
