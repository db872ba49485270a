"""What TLS may take of one round of the event loop, over all connections.

A handshake is a millisecond of arithmetic with an RSA key of 2,048 bits: of 200 clients that come back together, each
takes a step when it is its turn, and requests of others are served between two rounds. What is written is bounded
likewise, since encryption of what many consumers read at once is work too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from kafkalog_broker.net.loop_watch import NOTED_S, LoopWatch
from kafkalog_broker.net.tls_records import PIECE_BYTES

HANDSHAKES_S = 0.002
"""Time for steps of handshakes in one round; one step is always taken."""

WRITTEN_BYTES = 4 << 20
"""What all connections encrypt in one round: 2 to 4 ms."""


class TlsTurns:
    """For one event loop, in its thread. clock: seconds. watch: where it is noted how long handshakes held the loop.
    done, failed: handshakes so far."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = perf_counter,
        watch: LoopWatch | None = None,
    ) -> None:
        self._loop, self._clock, self._watch = loop, clock, watch
        self.done = self.failed = 0
        self.received = memoryview(bytearray(PIECE_BYTES))
        """Where encrypted bytes are received, one connection after the other."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._left_bytes = WRITTEN_BYTES
        self._moving = False  # `_next_round` is called in the loop's next round

    def handshake(self, step: Callable[[], None]) -> None:
        """Call `step` in a later round, after those that came before it."""
        self._waiting.append(step)
        self._move()

    def written(self, count: int) -> bool:
        """So many bytes are about to be encrypted; False when that has to wait for another round."""
        if self._left_bytes <= 0:
            return False
        self._left_bytes -= count
        self._move()
        return True

    def held(self, what: str, seconds: float) -> None:
        """TLS has held the loop for so long."""
        if seconds > NOTED_S and self._watch is not None:
            self._watch.note_named(what, seconds)

    def _move(self) -> None:
        if not self._moving:
            self._moving = True
            self._loop.call_soon(self._next_round)

    def _next_round(self) -> None:
        self._moving = False
        self._left_bytes = WRITTEN_BYTES
        if not self._waiting:
            return
        began = self._clock()
        now, end = began, began + HANDSHAKES_S
        while self._waiting and now < end:
            self._waiting.popleft()()
            now = self._clock()
        self.held("TLS handshakes", now - began)
        if self._waiting:
            self._move()
