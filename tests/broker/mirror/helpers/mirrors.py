"""Mirrors that tests start, and comparison of the logs of both sides."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from kafkalog_broker.mirror.command import run_mirror
from kafkalog_broker.mirror.mirror_options import MirrorOptions
from kafkalog_broker.mirror.source_address import parse_bootstrap
from kafkalog_spark.log.check.log_dir_check import check_log_dirs


def mirror_once(bootstrap: str, directory: Path, topics: str = ".*", **options) -> None:
    """Copy the source's current records, in this process."""
    made = MirrorOptions(
        bootstrap=parse_bootstrap(bootstrap), directory=directory, topics=re.compile(topics), once=True, **options
    )
    assert asyncio.run(run_mirror(made)) == 0


class MirrorProcess:
    """kafkalog-mirror as its users run it; what it logs goes to `log_file`."""

    def __init__(self, bootstrap: str, directory: Path, *arguments: str, topics: str = ".*") -> None:
        self.log_file = directory.with_name(directory.name + ".mirror.log")
        self._command = [
            sys.executable, "-P", "-m", "kafkalog_broker.mirror", "--bootstrap", bootstrap, "--log-dir", str(directory),
            "--topics", topics, *arguments,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self.log_file.open("ab") as log:
            path = os.pathsep.join(part for part in sys.path if part)
            self._process = subprocess.Popen(
                self._command, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}
            )
        return self

    def log(self) -> str:
        return self.log_file.read_text()

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, seconds: float = 120) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


def log_data(directory: Path, topic: str, partition: int = 0) -> bytes:
    """Return the concatenated .log files of a partition. Raises FileNotFoundError if there is none."""
    paths = sorted((directory / f"{topic}-{partition}").glob("*.log"))
    if not paths:
        raise FileNotFoundError(f"{directory} holds no segment of {topic}-{partition}")
    return b"".join(path.read_bytes() for path in paths)


def same_logs(one: Path, other: Path, topic: str, partition: int = 0) -> bool:
    """Whether two directories hold the same of a partition now: not while it is being made in one of them, nor while a
    segment is replaced as it is read."""
    try:
        return log_data(one, topic, partition) == log_data(other, topic, partition)
    except FileNotFoundError:
        return False


def findings(directory: Path) -> list[str]:
    """Return the errors of kafkalog-check. Its notes, about files that await deletion, are left out."""
    result = check_log_dirs([str(directory)], decode_records=True)
    return [str(finding) for finding in result.findings.kept if finding.is_error]
