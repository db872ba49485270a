"""Locks of a log directory on a disk, against brokers and other sinks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark.errors import BrokerOwnsDirectory, LogDirLocked
from kafkalog_spark.format.names import LOCK_FILE
from kafkalog_spark.log.write.log_dir_lock import LogDirLock

SINK_LOCK_FILE = "kafkalog.sink.lock"
"""Held by a sink that commits, in addition to Kafka's `.lock`. A process that holds only the latter is a broker."""

COMMIT_WAIT_SECONDS = 300.0
"""How long a commit waits for the commit of another sink, which flushes many gigabytes if it is large."""

_PROBE_SECONDS = 0.2  # longer than another sink holds a lock to probe it
_STEP_SECONDS = 0.02  # between two tries


@dataclass(frozen=True)
class DirectoryLocks:
    """The two locks of a log directory: Kafka's `.lock` and SINK_LOCK_FILE.

    Attributes:
        log_dir: The log directory.
        wait_s: Longest wait for another sink.
    """

    log_dir: Path
    wait_s: float

    def check_no_broker(self) -> None:
        """Raise BrokerOwnsDirectory if a broker holds Kafka's lock. Creates no file. A sink may hold both locks."""
        if not (self.log_dir / LOCK_FILE).exists():
            return
        for _ in _tries(_PROBE_SECONDS):
            if self._is_free(LOCK_FILE):
                return
            if (self.log_dir / SINK_LOCK_FILE).exists() and not self._is_free(SINK_LOCK_FILE):
                return
        raise self._owned_by_broker()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold both locks. The kernel releases them when the process ends.

        Raises:
            LogDirLocked: If another sink holds them for longer than `wait_s`.
            BrokerOwnsDirectory: If a broker holds Kafka's lock. Does not wait for it.
        """
        sink_lock = self._acquire(SINK_LOCK_FILE, self.wait_s)
        if sink_lock is None:
            raise LogDirLocked(
                f"another sink has been committing here for more than {self.wait_s:g} s",
                path=str(self.log_dir / SINK_LOCK_FILE),
                hint="if that sink hangs, end its process, which releases the lock",
            )
        with ExitStack() as held:
            held.callback(sink_lock.release)
            kafka_lock = self._acquire(LOCK_FILE, _PROBE_SECONDS)  # another sink may be probing it
            if kafka_lock is None:
                raise self._owned_by_broker()
            held.callback(kafka_lock.release)
            yield

    def _acquire(self, file_name: str, seconds: float = 0.0) -> LogDirLock | None:
        for _ in _tries(seconds):
            with suppress(LogDirLocked):
                return LogDirLock.acquire(self.log_dir, file_name)
        return None

    def _is_free(self, file_name: str) -> bool:
        lock = self._acquire(file_name)
        if lock is not None:
            lock.release()
        return lock is not None

    def _owned_by_broker(self) -> BrokerOwnsDirectory:
        return BrokerOwnsDirectory(
            f"a running broker owns this log directory ({LOCK_FILE} is locked)",
            path=str(self.log_dir),
            hint="send the records to the broker with option kafka.bootstrap.servers (at least once), or stop it first",
        )


def _tries(seconds: float) -> Iterator[None]:
    """Yield immediately, and then every _STEP_SECONDS until `seconds` have passed."""
    deadline = time.monotonic() + seconds
    yield
    while time.monotonic() < deadline:
        time.sleep(_STEP_SECONDS)
        yield
