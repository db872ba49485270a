"""How long the event loop was held at a stretch, by API: a figure that must stay below 10 ms.

What is measured is a step of a request: from where it begins or goes on to where it waits for something or ends. It
costs one look at the clock for a request that waits for nothing.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from kafkalog_broker.protocol.api_registry import registry
from kafkalog_broker.protocol.codec import api_name

T = TypeVar("T")

NOTED_S = 0.001
"""Shorter ones are not noted: they hold up nobody, and most requests cost one comparison then."""


class LoopWatch:
    """The longest hold of each API, in seconds; of what has no API under the name it was noted with."""

    def __init__(self) -> None:
        self._longest: dict[str, float] = {}

    def note(self, api: bytes, seconds: float) -> None:
        """`api`: the first two bytes of the request."""
        key = int.from_bytes(api, "big", signed=True)
        self.note_named(api_name(key) if key in registry() else "unknown", seconds)

    def note_named(self, name: str, seconds: float) -> None:
        if seconds > self._longest.get(name, 0.0):
            self._longest[name] = seconds

    @property
    def longest(self) -> Mapping[str, float]:
        """Seconds by API name, the longest first."""
        return dict(sorted(self._longest.items(), key=lambda item: -item[1]))

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in list(self.longest.items())[:10])
        return shown or f"nobody more than {NOTED_S * 1000:.0f} ms"


@types.coroutine
def rest_of(request: Coroutine[Any, Any, T], waits_for: Any, watch: LoopWatch, api: bytes) -> Generator[Any, Any, T]:
    """What `request` returns, which waits for the future `waits_for` now: each of its further steps timed."""
    step: Callable[[], Any]
    while True:
        try:
            value = yield waits_for
            step = partial(request.send, value)
        except BaseException as error:  # noqa: BLE001 - what is thrown into this is for the request
            step = partial(request.throw, error)
        began = perf_counter()
        try:
            waits_for = step()
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            held = perf_counter() - began
            if held > NOTED_S:
                watch.note(api, held)
