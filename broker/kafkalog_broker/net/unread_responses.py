"""Limit on the memory of responses that peers do not read. Kafka has no such limit.

Each connection holds at most one response that waits to be written. A response with records in files costs one buffer
(`ResponseStream`), so mostly other responses count here: usually a few kB, but megabytes if a client lists everything.
Responses with remote records also hold leases of a smaller budget, for which other reads may be waiting.
"""

from __future__ import annotations

import asyncio
from operator import itemgetter

from kafkalog_broker.net.open_connection import OpenConnection

MAX_UNREAD_BYTES = 32 << 20  # limit on the bytes of unread responses of all connections together

PROGRESS_CHECK_INTERVAL_S = (
    1.0  # while the limit is exceeded, peers that have read nothing for this long are disconnected
)


class UnreadResponses:
    """Connections that cannot write until their peers read. Not thread-safe; call from the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: dict[OpenConnection, int] = {}  # unread bytes of each connection at its last check
        self._total = 0
        self._check: asyncio.TimerHandle | None = None

    def add(self, connection: OpenConnection) -> None:
        """Watch a connection that cannot write until its peer reads."""
        self._hold(connection, connection.unread_bytes)
        if self._check is None and (self._total > MAX_UNREAD_BYTES or connection.leases):
            self._check = self._loop.call_later(PROGRESS_CHECK_INTERVAL_S, self.close_idle_readers)

    def discard(self, connection: OpenConnection) -> None:
        """Stop watching a connection: its peer has read, or it has ended. A no-op if it is not watched."""
        self._total -= self._held.pop(connection, 0)

    def close_idle_readers(self) -> None:
        """While the limit is exceeded, close connections whose peers read nothing since the last check, largest
        first."""
        self._check = None
        idle: list[tuple[int, OpenConnection]] = []
        for connection, before in list(self._held.items()):
            held = connection.unread_bytes
            if held == before:
                idle.append((held, connection))
            self._hold(connection, held)
        for held, connection in sorted(idle, key=itemgetter(0), reverse=True):
            if self._total > MAX_UNREAD_BYTES:
                reason = f"all connections together hold more than {MAX_UNREAD_BYTES}"
            elif any(lease.is_wanted for lease in connection.leases):
                reason = "other reads of remote storage wait for their memory"
            else:
                continue
            self.discard(connection)
            connection.abort_with(f"its peer has not read a byte for a second, {held} bytes wait for it, and {reason}")
            connection.release_leases()
        if self._total > MAX_UNREAD_BYTES or any(connection.leases for connection in self._held):
            self._check = self._loop.call_later(PROGRESS_CHECK_INTERVAL_S, self.close_idle_readers)

    def stop(self) -> None:
        if self._check is not None:
            self._check.cancel()

    def _hold(self, connection: OpenConnection, size: int) -> None:
        self._total += size - self._held.get(connection, 0)
        self._held[connection] = size
