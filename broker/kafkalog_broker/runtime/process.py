"""Free memory goes back to the operating system when nobody is about to use it again."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import sys
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

from kafkalog_spark.errors import OptionError, escaped, install_hint

TRIM_AFTER_S = 1.0  # seconds without work that takes much memory after which what it used is given back


class IdleTrim:
    """Calls `run(trim)`, in a thread, when `soon` was not called for TRIM_AFTER_S. For one event loop."""

    def __init__(self, run: Callable[[Callable[[], object]], object], trim: Callable[[], object] | None = None) -> None:
        self._run = run
        self._trim = trim or trim_memory
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # in the loop's time

    def soon(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + TRIM_AFTER_S
        if self._timer is None:
            self._timer = loop.call_at(self._due, self._look)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._due:
            self._timer = loop.call_at(self._due, self._look)
        else:
            self._timer = None
            self._run(self._trim)


def trim_memory() -> None:
    """Give free memory of the C library back to the operating system, where it can (glibc): it keeps what lies below
    the last piece in use. Waits for no Python code, so it is for a thread."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return
    trim(0)


# Log lines that any client can cause: so many at once, so many a second, and how many were left out is said.

AT_ONCE = 200  # lines that may come together: what a restarted fleet of clients with one wrong setting causes

A_SECOND = 10  # lines a second after that: 1.5 MB of log in an hour, and enough to see who it is


class LogRate:
    """Lines of one kind to one logger. `clock`: seconds, of time.monotonic. For one thread."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        at_once: int = AT_ONCE,
        a_second: float = A_SECOND,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._logger = logger
        self._at_once, self._a_second, self._clock = at_once, a_second, clock
        self._left: float = at_once
        self._at = clock()
        self._left_out = 0

    def log(self, level: int, line: str, *arguments: object) -> None:
        """Log `line`, or count it. Lines of a level that is switched off count as none."""
        if not self._logger.isEnabledFor(level):
            return
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._at) * self._a_second)
        self._at = now
        if self._left < 1:
            self._left_out += 1
            return
        self._left -= 1
        self.tell_left_out()
        self._logger.log(level, line, *arguments)

    def tell_left_out(self) -> None:
        count, self._left_out = self._left_out, 0
        if count:
            self._logger.warning(
                "%d lines like the one before were left out: more than %g came in a second", count, self._a_second
            )


class LineFormatter(logging.Formatter):
    """Formats a record as one line that changes no terminal, and its traceback as lines that do not either.

    Names in messages come from clients, topics and directories, and may hold line breaks and escape sequences.
    """

    def __init__(self) -> None:
        # as in Kafka's log4j2.yaml: the logger comes last
        super().__init__("%(asctime)s %(levelname)s %(message)s (%(name)s)")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(escaped, super().formatException(ei).split("\n")))


def set_up_logging(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level != "debug":
        logging.getLogger("asyncio").setLevel(logging.WARNING)


# The packages of the extras [broker], [metrics] and [mirror]: kafkalog for Spark alone comes without them.

_NEEDED = {
    "xxhash": ("the broker", "broker"),
    "cryptography": ("the broker", "broker"),
    "joserfc": ("the broker", "broker"),
    "prometheus_client": ("--metrics", "metrics"),
    "aiokafka": ("a mirror", "mirror"),
}
"""By package: who needs it, and the extra that brings it. uvloop is used where it is installed, and missed nowhere."""


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """For the imports of a command. Raises OptionError for a package of an extra that is not installed."""
    try:
        import xxhash  # noqa: F401  all commands need the extra [broker], and load this package of it in any case

        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        who, extra = _NEEDED[missing]
        raise OptionError(f"{who} needs the package {missing}", hint=install_hint(extra)) from None
