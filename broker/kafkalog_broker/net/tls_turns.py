"""Scheduling of TLS handshakes, so that many clients that reconnect together do not hold the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from kafkalog_broker.net.loop_watch import LoopWatch

HANDSHAKES_S = 0.002
"""Time for handshake steps in one iteration of the event loop; one step is always taken. A step is about a millisecond
of arithmetic with an RSA key of 2,048 bits. Requests of other connections run between two iterations."""

RECEIVED_BYTES = 64 << 10
"""Bytes of one read from an encrypted socket, which are many records: OpenSSL on a socket would make two system calls
for each record, and librdkafka makes a record of each message of a kilobyte. OpenSSL keeps a buffer of this size for as
long as the connection exists."""


class TlsTurns:
    """Handshake steps that wait, in order. One per event loop, called from its thread.

    done, failed: number of handshakes so far.
    received: buffer into which encrypted bytes are received, used by one connection after the other.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, watch: LoopWatch, clock: Callable[[], float] = perf_counter
    ) -> None:
        """
        Args:
            loop: The event loop.
            watch: Records how long handshakes held the loop.
            clock: Monotonic seconds.
        """
        self._loop, self._watch, self._clock = loop, watch, clock
        self.done = self.failed = 0
        self.received = memoryview(bytearray(RECEIVED_BYTES))
        self._waiting: deque[Callable[[], None]] = deque()

    def schedule(self, step: Callable[[], None]) -> None:
        """Call `step` in a later iteration, after the steps that were scheduled before."""
        self._waiting.append(step)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._run_steps)

    def _run_steps(self) -> None:
        began = now = self._clock()
        while self._waiting and now < began + HANDSHAKES_S:
            self._waiting.popleft()()
            now = self._clock()
        self._watch.note_task("TLS handshakes", now - began)
        if self._waiting:
            self._loop.call_soon(self._run_steps)
