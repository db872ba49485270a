"""Identity of the Spark driver as a process, by which other sinks find out whether it has ended.

A process ID alone is reused after a while, and means another process in another container. Together with the start
time, the boot of the machine and the PID namespace it is unique.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class DriverProcess:
    """A driver process. .job files contain the fields under these names (jobs).

    Attributes:
        boot: ID of the boot of the machine.
        pid_namespace: PID namespace, which differs between containers.
        pid: Process ID in that namespace.
        start: Start time in clock ticks after the boot.
    """

    boot: str
    pid_namespace: str
    pid: int
    start: int


def find_driver() -> DriverProcess | None:
    """Return the Spark driver of this worker: the nearest JVM among its ancestors, or this process if none is a JVM.

    Returns:
        None if the system has no /proc.
    """
    driver_pid, pid = os.getpid(), os.getppid()
    # PID 1 is examined too: `docker run IMAGE spark-submit` makes the JVM the first process. Its parent is 0.
    while pid > 0 and (process := _read_process(pid)) is not None:
        if process.name == "java":
            driver_pid = pid
            break
        pid = process.parent
    (boot, namespace), process = _boot_and_namespace(), _read_process(driver_pid)
    return None if not boot or process is None else DriverProcess(boot, namespace, driver_pid, process.start)


def is_visible(driver: DriverProcess) -> bool:
    """Return True if the driver ran in this PID namespace since the last boot, so that `has_ended` can find it."""
    return (driver.boot, driver.pid_namespace) == _boot_and_namespace()


def has_ended(driver: DriverProcess) -> bool:
    """Return True if a visible driver has ended. Raises OSError if that cannot be determined."""
    process = _read_process(driver.pid)
    return process is None or process.start != driver.start


def _boot_and_namespace() -> tuple[str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""


class _Process(NamedTuple):
    name: str
    parent: int
    start: int  # clock ticks after the boot


def _read_process(pid: int) -> _Process | None:
    """Read /proc/<pid>/stat (proc(5)); None if the process has ended, or the system has no /proc.

    Raises OSError for any other failure, such as a lack of file descriptors: the process may be alive, and its staged
    files must stay.
    """
    try:
        # The kernel cuts the name after 15 bytes, perhaps within a character, so it need not be valid UTF-8.
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent, *more = rest.split()
    if state in "ZX":  # Z: ended, but its parent has not waited for it
        return None
    return _Process(name, int(parent), int(more[17]))
