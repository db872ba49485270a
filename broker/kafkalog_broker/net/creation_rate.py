"""Limit on the rate of new connections (max.connection.creation.rate)."""

from __future__ import annotations

UNLIMITED = 2**31 - 1  # Kafka's default of max.connection.creation.rate


class CreationRate:
    """Rate limiter of new connections, with a burst of one second.

    As in Kafka, excess connections wait, at most a full backlog of them.
    """

    def __init__(self) -> None:
        self._last_start = 0.0  # when the latest admitted connection may start, in the clock of the caller

    def reserve_start(self, rate: int, backlog: int, now_s: float) -> float | None:
        """Reserve a start for a new connection.

        Args:
            rate: Connections per second, at least 1.
            backlog: Number of connections that may wait.
            now_s: Current time in monotonic seconds.

        Returns:
            Seconds until the connection may start, or None, with nothing reserved, if `backlog` connections wait.
        """
        if rate >= UNLIMITED:
            return 0.0
        start = max(self._last_start, now_s - 1.0) + 1.0 / rate
        wait = start - now_s
        if wait * rate > max(backlog, 1):
            return None
        self._last_start = start
        return max(0.0, wait)
