"""What an attack costs others: how long their ApiVersions waits, and how the broker's memory (RssAnon) grows.

The other client is a process of its own: it does not wait for the attackers' interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
import statistics
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.attacks.delivery import receive
from tests.attacks.requests import api_versions

PAUSE = 0.002
"""Seconds between an answer and the next question."""
PATIENCE = 60.0
"""Seconds after which a broker that does not answer is given up."""


EVERY_S = 0.01
"""Seconds between two looks at a process's memory: what is held for less is of no harm."""


class Waits(NamedTuple):
    """Of one client's ApiVersions in a stretch of time, in ms. `lost`: the broker closed the connection."""

    longest: float
    p99: float
    answers: int
    lost: bool


class Probe:
    """A process that asks for ApiVersions without end. `with Probe(host, port) as probe: ...; probe.waits()`."""

    def __init__(self, host: str, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_ask_for_ever, args=(host, port, other), daemon=True)
        self._process.start()
        other.close()
        self._pipe.recv()  # it has its first answer

    def waits(self) -> Waits:
        """Since the last call. A question that has no answer yet is waited for."""
        self._pipe.send("waits")
        if not self._pipe.poll(PATIENCE + 10):
            raise RuntimeError("the probe does not report")
        seconds, lost = self._pipe.recv()
        ms = [1000 * second for second in seconds] or [0.0]
        p99 = statistics.quantiles(ms, n=100, method="inclusive")[98] if len(ms) > 1 else ms[0]
        return Waits(max(ms), p99, len(seconds), lost)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.join()
        self._pipe.close()


def _ask_for_ever(host: str, port: int, pipe: Connection) -> None:
    question, waits, lost = api_versions(), list[float](), False
    try:
        connection: socket.socket | None = socket.create_connection((host, port), PATIENCE)
    except OSError:
        connection, lost = None, True
    first = True
    while True:
        if connection is not None:
            begin = time.perf_counter()
            try:
                connection.sendall(question)
                lost = not receive(connection)
            except OSError:
                lost = True
            waits.append(time.perf_counter() - begin)
            if lost:
                connection.close()
                connection = None
        if first:
            pipe.send(None)
            first = False
        if pipe.poll(PAUSE):
            pipe.recv()
            pipe.send((waits, lost))
            waits = []


class Memory:
    """RssAnon of /proc/PID/status, anonymous resident memory, and the most of it since `reset`. Linux only.

    Pages of files (shared libraries such as LLVM's, segments that are mapped) are not counted: the kernel drops them
    when it likes. It keeps no peak of RssAnon, so a thread looks every EVERY_S.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def now(self) -> float:
        """MB of 10^6 bytes; 0 for a process that has ended."""
        try:
            status = Path(f"/proc/{self._pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return 0.0
        found = re.search(r"^RssAnon:\s*(\d+) kB", status, re.MULTILINE)
        return int(found[1]) * 1024 / 1e6 if found is not None else 0.0

    def reset(self) -> None:
        self._peak = self.now()

    @property
    def peak(self) -> float:
        """At most since `reset`, in the same MB."""
        return max(self._peak, self.now())

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(EVERY_S):
            self._peak = max(self._peak, self.now())


def lives(pid: int) -> bool:
    """Return True if the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        return not re.search(r"^State:\s*Z", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except (ProcessLookupError, FileNotFoundError):
        return False
