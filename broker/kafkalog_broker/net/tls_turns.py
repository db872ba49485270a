"""Scheduling of TLS handshakes, so that many clients that reconnect together do not hold the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from kafkalog_broker.net.loop_watch import LoopWatch

HANDSHAKE_SLICE_S = 0.002
"""Time for handshake steps in one iteration of the event loop; one step always runs. A step with an RSA key takes about
a millisecond. Requests of other connections run between iterations."""

RECEIVED_BYTES = 64 << 10
"""Largest read from an encrypted socket, in bytes. One read receives many TLS records, while OpenSSL on a socket would
make two system calls for each record. OpenSSL keeps a buffer of this size for as long as the connection exists."""


class TlsTurns:
    """Queue of handshake steps. One per event loop, called from its thread.

    Attributes:
        done, failed: Number of handshakes so far.
        received: Buffer for encrypted bytes, shared by all connections.
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
        self._loop = loop
        self._watch = watch
        self._clock = clock
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
        while self._waiting and now < began + HANDSHAKE_SLICE_S:
            self._waiting.popleft()()
            now = self._clock()
        self._watch.record_duration("TLS handshakes", now - began)
        if self._waiting:
            self._loop.call_soon(self._run_steps)
