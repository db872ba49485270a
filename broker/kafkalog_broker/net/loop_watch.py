"""Longest time for which a request of each API held the event loop in one step. The target is below 50 ms.

A step of a request runs from where it starts or resumes to where it awaits something or ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.api_registry import registry

MIN_HOLD_S = 0.001  # shorter steps are ignored, so that most requests cost one comparison


class LoopWatch:
    """Longest step by API name, or by task name for work outside requests."""

    def __init__(self) -> None:
        self._longest: dict[str, float] = {}

    def note(self, api_key: bytes, seconds: float) -> None:
        """Record a step of a request. `api_key`: the first two bytes of the request."""
        if seconds <= MIN_HOLD_S:
            return
        key = int.from_bytes(api_key, "big", signed=True)
        self.record_duration(api_name(key) if key in registry() else "unknown", seconds)

    def record_duration(self, name: str, seconds: float) -> None:
        """Record a step under a name."""
        if seconds > self._longest.get(name, MIN_HOLD_S):
            self._longest[name] = seconds

    @property
    def longest(self) -> Mapping[str, float]:
        """Seconds by name, in descending order."""
        return dict(sorted(self._longest.items(), key=lambda item: -item[1]))

    def __str__(self) -> str:
        top = ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in list(self.longest.items())[:10])
        return top or f"nothing longer than {MIN_HOLD_S * 1000:.0f} ms"
