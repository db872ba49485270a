"""Java members of share groups (ShareWorker.java) in separate processes, and the events that they report."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.interop.real_kafka import QUICK_JAVA, classpath, end_with_parent

_SOURCE = Path(__file__).with_name("ShareWorker.java")


class Said(NamedTuple):
    """what: G given, A accepted, R rejected, L released. time: ns of the machine's clock. delivery_count: of G."""

    what: str
    time: int
    partition: int
    first: int
    last: int
    delivery_count: int = 0


def compiled(directory: Path) -> Path:
    """The class files of ShareWorker."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["javac", "-d", directory, "-cp", classpath(), _SOURCE], check=True, timeout=120)
    return directory


class ShareWorker:
    """A member that runs within a `with` block; at its end it leaves the group unless it was killed."""

    def __init__(
        self, classes: Path, bootstrap: str, group: str, topic: str, mode: str = "accept", *properties: str,
        java: Sequence[str] = QUICK_JAVA,
    ) -> None:  # fmt: skip
        command = ["java", "-Xmx256m", *java, "-cp", f"{classes}:{classpath()}", "ShareWorker"]
        self._process = subprocess.Popen(
            [*command, bootstrap, group, topic, mode, *properties], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, preexec_fn=end_with_parent,
        )  # fmt: skip
        self.lines: list[str] = []
        self.is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # else it was killed while it said that
                self.lines.append(line.rstrip())
                self.is_ready.set()

    def said(self) -> Iterator[Said]:
        for line in list(self.lines):
            what, *numbers = line.split()
            if what in "GARL" and len(numbers) >= 4:
                yield Said(what, *map(int, numbers))

    @property
    def errors(self) -> list[str]:
        return [line for line in self.lines if line.startswith("E ")]

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """Let the member leave its group and end."""
        if self._process.poll() is not None:
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except OSError:
            pass
        self._end(60)

    def _end(self, seconds: float = 20) -> None:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._reader.join(20)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop() if error is None else self.kill()
