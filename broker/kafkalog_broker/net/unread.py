"""Responses that peers do not read: bounded per connection by the one response that waits, and here in all.

Kafka has no such bound. A response that lies in files costs one buffer (`response_stream`), so what counts here are
the others: a few kB as a rule, megabytes where a client asks for everything there is.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

UNREAD_BYTES = 32 << 20
"""What all connections together may hold for longer than CHECK_S."""

CHECK_S = 1.0
"""A peer that reads nothing for so long while there is too much is closed."""


class Unread(Protocol):
    """A connection."""

    @property
    def unread_bytes(self) -> int: ...

    def close_unread(self, held: int, bound: int) -> None: ...


class UnreadResponses:
    """The connections that wait for their peers to read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: dict[Unread, int] = {}  # bytes, when it was last looked at
        self._total = 0
        self._check: asyncio.TimerHandle | None = None

    def waits(self, connection: Unread) -> None:
        """`connection` writes no further before its peer reads."""
        self._hold(connection, connection.unread_bytes)
        if self._total > UNREAD_BYTES and self._check is None:
            self._check = self._loop.call_later(CHECK_S, self.close_those_that_do_not_read)

    def read(self, connection: Unread) -> None:
        """The peer has read, or the connection has ended."""
        self._total -= self._held.pop(connection, 0)

    def close_those_that_do_not_read(self) -> None:
        """While there is too much: those that have read nothing since they were last looked at, the largest first."""
        self._check = None
        idle = []
        for connection, before in list(self._held.items()):
            held = connection.unread_bytes
            if held == before:
                idle.append((held, connection))
            self._hold(connection, held)
        for held, connection in sorted(idle, key=lambda one: -one[0]):
            if self._total <= UNREAD_BYTES:
                break
            self.read(connection)
            connection.close_unread(held, UNREAD_BYTES)
        if self._total > UNREAD_BYTES:
            self._check = self._loop.call_later(CHECK_S, self.close_those_that_do_not_read)

    def stop(self) -> None:
        """Look no more."""
        if self._check is not None:
            self._check.cancel()

    def _hold(self, connection: Unread, size: int) -> None:
        self._total += size - self._held.get(connection, 0)
        self._held[connection] = size
