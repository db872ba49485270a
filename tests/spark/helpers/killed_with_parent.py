"""For query processes that tests start with a pipe as stdin, in a process group of their own: no test run, however it
ends, leaves a query with its JVM behind."""

from __future__ import annotations

import os
import signal
import threading


def kill_with_parent() -> None:
    """From now on, end this process and its group when its stdin does, which is when the parent closes it or ends."""

    def watch() -> None:
        while os.read(0, 1):  # not through sys.stdin, whose lock a thread must not hold when Python ends
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
