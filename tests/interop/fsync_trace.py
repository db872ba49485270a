"""System calls by which a traced process makes files durable or changes names, read from the output of strace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SYNCS = frozenset({"fsync", "fdatasync", "msync"})
NAMES = frozenset({"create", "mkdir", "rename", "unlink", "rmdir"})
"""Changes of names, which are on disk when their directory was fsynced."""

_TRACED = (
    "fsync,fdatasync,msync,sync_file_range,mmap,open,openat,creat,rename,renameat,renameat2,unlink,unlinkat,rmdir,"
    "mkdir,mkdirat"
)
_LINE = re.compile(r"(?P<pid>\d+) +(?P<time>\d+\.\d+) (?P<rest>.*)")
_CALL = re.compile(r"(?P<call>\w+)\((?P<arguments>.*)\) += (?P<result>\S+).*?(?: <(?P<seconds>[\d.]+)>)?$")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(?P<rest>.*)")
_UNFINISHED = " <unfinished ...>"
_FD = re.compile(r"(?:-?\d+|AT_FDCWD)<(?P<path>[^>]*?)(?: \(deleted\))?>")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SEGMENT_FILE = re.compile(r"\d{20}(?:-\d{10})?(\.\w+)$")
_PARTITION = re.compile(r"(?P<topic>.+)-\d+(?:\.[0-9a-f]{32}-delete)?$")
_ADDED = re.compile(r"\.(?:tmp|deleted|part)$")
_UUID_FILE = re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b")


@cache
def unavailable() -> str | None:
    """Return why system calls cannot be traced on this machine; None if they can."""
    if shutil.which("strace") is None:
        return "strace is not on PATH"
    with tempfile.TemporaryDirectory() as directory:
        ran = subprocess.run(
            [*Trace(Path(directory)).command, "true"], capture_output=True, text=True, check=False, timeout=60
        )
    return None if ran.returncode == 0 else f"strace cannot trace a process: {ran.stderr.strip()}"


@dataclass(frozen=True)
class Event:
    """One successful system call. `ended`: wall-clock time in s at which it returned. `path`: of a rename the old one,
    then `target` is the new one."""

    ended: float
    call: str
    path: str
    target: str = ""


class Trace:
    """The trace of a process and its children below `directory`, which must not be a log directory.

    `command` is put before the command line of the process; several processes may be traced one after the other. strace
    detaches itself (-D), so the started process is the traced one, and signals reach it. strace writes the line of a
    system call before the process goes on: when a response is received, the calls before it are in the file.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / "strace.out"
        self._position = 0
        self._unfinished: dict[str, str] = {}
        self._mapped: list[tuple[int, int, str]] = []
        self._known: set[str] = set()

    @property
    def command(self) -> list[str]:
        options = ["-D", "-f", "-qq", "-y", "-T", "-ttt", "-A", "--seccomp-bpf", "-s", "4096"]
        return ["strace", *options, "-e", f"trace={_TRACED}", "-e", "signal=none", "-o", str(self._file)]

    def read(self) -> list[Event]:
        """Return the events since the last call."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        return [event for line in whole.decode(errors="replace").splitlines() for event in self._events(line)]

    def _events(self, line: str) -> Iterable[Event]:
        found = _LINE.match(line)
        if found is None:
            return
        pid, rest = found["pid"], found["rest"]
        if rest.endswith(_UNFINISHED):
            self._unfinished[pid] = found["time"] + " " + rest.removesuffix(_UNFINISHED)
            return
        time = found["time"]
        if resumed := _RESUMED.match(rest):
            time, _, begin = self._unfinished.pop(pid, "0 ").partition(" ")
            rest = begin + resumed["rest"]
        call = _CALL.match(rest)
        if call is None or call["result"].startswith(("-", "?")):
            return
        ended = float(time) + float(call["seconds"] or 0)
        event = self._event(ended, call["call"], call["arguments"], call["result"])
        if event is not None:
            yield event

    def _event(self, ended: float, call: str, arguments: str, result: str) -> Event | None:
        descriptors = [found["path"] for found in _FD.finditer(arguments)]
        names = _QUOTED.findall(arguments)
        if call == "mmap":
            if "MAP_SHARED" in arguments and descriptors:
                start = int(result, 16)
                self._mapped.append((start, start + int(arguments.split(",")[1]), descriptors[0]))
            return None
        if call == "msync":
            address = int(arguments.split(",")[0], 16)
            path = next((path for start, end, path in reversed(self._mapped) if start <= address < end), "")
            return Event(ended, call, path)
        if call in SYNCS or call == "sync_file_range":
            return Event(ended, call, descriptors[0])
        paths = _joined(descriptors, names) if call.endswith(("at", "at2")) else names
        if call in ("open", "openat", "creat"):
            path = paths[0]
            if call != "creat" and "O_CREAT" not in arguments:
                return None
            is_new = path not in self._known
            self._known.add(path)
            return Event(ended, "create", path) if is_new else None
        if call.startswith("rename"):
            self._known.discard(paths[0])
            self._known.add(paths[1])
            return Event(ended, "rename", paths[0], paths[1])
        if call.startswith("mkdir"):
            return Event(ended, "mkdir", paths[0])
        self._known.discard(paths[0])
        return Event(ended, "rmdir" if call == "rmdir" or "AT_REMOVEDIR" in arguments else "unlink", paths[0])


def _joined(descriptors: list[str], names: list[str]) -> list[str]:
    """Paths relative to directory descriptors (AT_FDCWD is one) as absolute paths."""
    return [os.path.join(directory, name) for directory, name in zip(descriptors, names, strict=False)]


def counts(events: Iterable[Event], log_dir: Path) -> Counter[str]:
    """Return how often each system call was made on each kind of file, as `"fsync topic .log"`."""
    found: Counter[str] = Counter()
    for event in events:
        kind = kind_of(event.target or event.path, log_dir)
        if kind is not None:
            found[f"{event.call} {kind}"] += 1
    return found


def kind_of(path: str, log_dir: Path) -> str | None:
    """Return the owner and the kind of a file: `topic .log`, `__consumer_offsets directory`, `meta.properties`.

    The file that is written aside (.tmp) and a file that waits for its removal (.deleted) are of the kind of the file
    itself. All topics whose names do not begin with `__` are `topic`. None for files outside of the log directory.
    """
    if path == str(log_dir.parent):
        return "parent of the log directory"
    if path == str(log_dir):
        return "log directory"
    if not path.startswith(f"{log_dir}/"):
        return None
    first, *rest = path.removeprefix(f"{log_dir}/").split("/")
    partition = _PARTITION.match(first)
    if partition is None or (not rest and first.endswith((".json", "-checkpoint", ".tmp"))):
        return _UUID_FILE.sub("ID", _ADDED.sub("", "/".join([first, *rest])))
    topic = partition["topic"] if partition["topic"].startswith("__") else "topic"
    if not rest:
        return f"{topic} directory"
    name = rest[0]
    while _ADDED.search(name):  # a removed segment's file that was being written aside has two
        name = _ADDED.sub("", name)
    segment_file = _SEGMENT_FILE.match(name)
    return f"{topic} {segment_file[1] if segment_file else name}"
