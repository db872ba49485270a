"""Keep copiers (copier.py) running: restart those that ended, kill and restart those that make no progress.

librdkafka needs that. When its broker goes, `send_offsets_to_transaction` can stay forever in the search for the group
coordinator: nothing wakes its state machine while the cached coordinator is down (confluentinc/librdkafka#5511), and
the timeout of the call is never looked at (confluentinc/librdkafka#5456, open with release 2.16.1). The group waits for
such a member as long as its heartbeats go on, and it sends them from another thread.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.broker.clients.helpers.copier import RESTART

COPIER = Path(__file__).with_name("copier.py")
PATIENCE_S = 4.0
"""Seconds without a commit, while there is work, before a copier is killed. A start takes one on an idle machine."""


class Copier:
    """One copier, over all its processes. script: the program, which gets client, bootstrap and name."""

    def __init__(self, client: str, bootstrap: str, name: str, directory: Path, *, script: Path = COPIER) -> None:
        self.client, self.name = client, name
        self.commits = self.starts = self.stalls = 0
        self.failed: list[str] = []
        self.command = [sys.executable, "-P", str(script), client, bootstrap, name]
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._stalls_on_end = 0
        self._moved = 0.0

    def start(self) -> None:
        """Start a new process; the previous one has ended."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,  # closes when the tests end, however they do: the copier ends with it
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1
        self._moved = time.monotonic()
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """Kill it with -9; return when all commits that it reported are counted."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        assert self._reader is not None
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process = None

    def tend(self, *, has_work: bool, serves_since: float) -> None:
        """Restart the copier if it has ended or makes no progress; in the latter case kill it first.

        serves_since: time (time.monotonic) since which the broker serves; commits are impossible before.
        """
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            if code != RESTART:
                self.failed.append(f"{self.name} ended with {code}: {self.log()}")
            self.kill()
            self.start()
        elif has_work and time.monotonic() - max(self._moved, serves_since) > self.patience:
            self.stalls += 1
            self._stalls_on_end += 1
            self.kill()
            self.start()

    @property
    def patience(self) -> float:
        """Seconds. Longer with each kill that did not help: on a busy machine a start takes its time too."""
        return PATIENCE_S * (1 + self._stalls_on_end)

    def log(self) -> str:
        """The end of its stderr."""
        return self._log.read_text(errors="replace")[-1500:]

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if self.take(line):
                self.commits += 1
                self._moved = time.monotonic()
                self._stalls_on_end = 0

    def take(self, line: bytes) -> bool:
        """Return whether a line of the process reports a commit; here each does."""
        return True


class Supervisor:
    """Tends all copiers in a thread of its own. Leaving it kills them, whatever happened."""

    def __init__(self, copiers: Iterable[Copier]) -> None:
        self.copiers = list(copiers)
        self.have_work = {copier.client for copier in self.copiers}
        """Clients with records left to copy: theirs are blamed for standing still."""
        self._serves_since: float | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        for copier in self.copiers:
            copier.start()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        for copier in self.copiers:
            copier.kill()

    def broker_serves(self, serves: bool) -> None:
        """Note that the broker serves: copiers are not expected to commit without one."""
        self._serves_since = time.monotonic() if serves else None

    def wait_for_commits(self, more: int, seconds: float) -> None:
        """Return when the copiers have committed so many more. AssertionError when they do not in time."""
        enough = self.commits + more
        end = time.monotonic() + seconds
        while self.commits < enough:
            assert time.monotonic() < end, f"{enough - self.commits} commits do not come: {self.logs()}"
            time.sleep(0.002)

    @property
    def commits(self) -> int:
        """Number of commits of all copiers."""
        return sum(copier.commits for copier in self.copiers)

    def logs(self) -> dict[str, str]:
        """The end of each copier's stderr."""
        return {copier.name: copier.log() for copier in self.copiers}

    def kill_one(self, chance: random.Random) -> None:
        """Kill a random copier with -9; it is restarted at once."""
        with self._lock:
            copier = chance.choice(self.copiers)
            copier.kill()
            copier.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            since = self._serves_since
            with self._lock:
                for copier in self.copiers:
                    has_work = since is not None and copier.client in self.have_work
                    copier.tend(has_work=has_work, serves_since=since or 0.0)
