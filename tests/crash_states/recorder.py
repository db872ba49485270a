"""Recorder of everything that a process does to files below some directories, as a `disk.Trace`.

It replaces the functions of `os` that change files, and writable mappings, so it sees every caller, whatever module
calls. A change is recorded under one lock together with its system call, so that the order of the events is the order
of the changes. Functions that it does not know raise below the roots, and so does the builtin `open` for writing;
`Recorder.check` compares what was recorded with the file system, so a byte that passes by is found.
"""

from __future__ import annotations

import functools
import mmap
import os
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.crash_states.disk import (
    Event,
    Link,
    Rename,
    Send,
    SyncBegin,
    SyncEnd,
    Trace,
    Tree,
    Truncate,
    Unlink,
    Write,
    build_tree,
    differences,
    read_tree,
)

_UNKNOWN = ("posix_fallocate", "copy_file_range", "sendfile", "splice", "symlink", "mkfifo", "mknod")
"""Functions that change files and that the product does not call: they raise below the roots."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_active: Recorder | None = None
"""The recorder of this process; the audit hook cannot be removed, so it asks for this one."""


class NotRecorded(RuntimeError):
    """Something changes files below the roots in a way that the recorder does not see."""


class Recorder:
    """Records while `running`. roots: directories by their names in the trace; all of them exist.

    One recorder a process at a time. Thread-safe. sync_delay_s: how long each fsync takes at least, as on a disk, so
    that other threads write meanwhile. `events` grows while it runs; `len(recorder.events)` is the point of
    now.
    """

    def __init__(self, roots: Mapping[str, Path], sync_delay_s: float = 0.0005) -> None:
        self.sync_delay_s = sync_delay_s
        self.roots = {name: Path(os.path.realpath(path)) for name, path in roots.items()}
        self.events: list[Event] = []
        self.lock = threading.RLock()
        self._prefixes = tuple(str(path) for path in self.roots.values())
        self._real: dict[str, Any] = {}
        self._directories: set[int] = set()
        self._names: defaultdict[int, dict[str, int]] = defaultdict(dict)
        self._inodes = iter(range(1, sys.maxsize))
        self._calls = iter(range(1, sys.maxsize))
        self._fds: dict[int, tuple[int, tuple[int, int]]] = {}  # model inode, and device and inode of the system
        self._mappings: dict[int, list[_Mapping]] = defaultdict(list)
        self._sent: dict[int, int] = defaultdict(int)
        self._initial_files: dict[int, bytes] = {}
        self._roots = {name: self._take_in(path) for name, path in self.roots.items()}
        self._initial_names = {directory: dict(entries) for directory, entries in self._names.items()}

    def _take_in(self, path: Path) -> int:
        """Make what is there before the first event part of the model; it counts as safe."""
        inode = next(self._inodes)
        if path.is_dir():
            self._directories.add(inode)
            for child in sorted(path.iterdir()):
                self._names[inode][child.name] = self._take_in(child)
        else:
            self._initial_files[inode] = path.read_bytes()
        return inode

    # ---- results

    def trace(self) -> Trace:
        """Return what was recorded so far."""
        with self.lock:
            self._see_mappings()
            return Trace(
                self._roots, frozenset(self._directories), tuple(self.events), self._initial_files, self._initial_names
            )

    def check(self) -> None:
        """Raise NotRecorded unless all events together give exactly the files that are there. Nothing may run."""
        trace = self.trace()
        found: Tree = read_tree(self.roots)
        different = differences(build_tree(trace, len(trace.events)), found)
        if different:
            raise NotRecorded("not recorded: " + "; ".join(different[:20]))

    def sent_bytes(self, port: int) -> int:
        """Return how many bytes have been sent to the client at `port`, also to an earlier one that had the port."""
        with self.lock:
            return self._sent.get(port, 0)

    def sent_at(self, port: int, end: int) -> int:
        """Return the point after which the client at `port` can have had the first `end` bytes of its stream."""
        with self.lock:
            for index in range(len(self.events) - 1, -1, -1):
                event = self.events[index]
                if isinstance(event, Send) and event.port == port and event.end < end:
                    break
            else:
                index = -1
            for later in range(index + 1, len(self.events)):
                event = self.events[later]
                if isinstance(event, Send) and event.port == port and event.end >= end:
                    return later
        raise LookupError(f"no send of byte {end} to port {port} was recorded")

    # ---- running

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record what the block does."""
        global _active
        if _active is not None:
            raise RuntimeError("another recorder runs")
        patches: dict[str, Callable[..., Any]] = {
            "open": self._open, "close": self._close, "dup": self._dup, "write": self._write, "writev": self._writev,
            "pwrite": self._pwrite, "pwritev": self._pwritev, "ftruncate": self._ftruncate, "truncate": self._truncate,
            "rename": functools.partial(self._rename, "rename"), "replace": functools.partial(self._rename, "replace"),
            "link": self._link, "unlink": functools.partial(self._unlink, "unlink"),
            "remove": functools.partial(self._unlink, "remove"), "rmdir": functools.partial(self._unlink, "rmdir"),
            "mkdir": self._mkdir, "fsync": functools.partial(self._sync, "fsync"),
            "fdatasync": functools.partial(self._sync, "fdatasync"),
        }  # fmt: skip
        patches |= {name: functools.partial(self._unknown, name) for name in _UNKNOWN if hasattr(os, name)}
        self._real = {name: getattr(os, name) for name in patches}
        real_mmap, real_send, real_sendmsg = mmap.mmap, socket.socket.send, socket.socket.sendmsg
        recorder = self

        def send(sock: socket.socket, data: Any, *flags: int) -> int:
            return recorder._send(sock, functools.partial(real_send, sock, data, *flags))

        def sendmsg(sock: socket.socket, *arguments: Any) -> int:
            return recorder._send(sock, functools.partial(real_sendmsg, sock, *arguments))

        _watch_open()
        _active = self
        for name, function in patches.items():
            setattr(os, name, function)
        mmap.mmap = _Mapping  # type: ignore[misc]
        socket.socket.send, socket.socket.sendmsg = send, sendmsg  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            del socket.socket.send, socket.socket.sendmsg
            mmap.mmap = real_mmap  # type: ignore[misc]
            for name, function in self._real.items():
                setattr(os, name, function)
            _active = None

    # ---- names

    def _is_below(self, path: str) -> bool:
        return any(path.startswith(prefix + "/") or path == prefix for prefix in self._prefixes)

    def _absolute(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Return the path below a root with its directory's links resolved; None elsewhere."""
        text = os.fsdecode(path)
        if dir_fd is not None and not os.path.isabs(text):
            text = f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{text}"
        text = os.path.abspath(text)
        head, tail = os.path.split(text)
        text = os.path.join(os.path.realpath(head), tail)
        return text if self._is_below(text) else None

    def _place(self, path: str) -> tuple[int, str]:
        """Return directory and name of a path below a root. Raises NotRecorded if the model has no such directory."""
        for name, root in self.roots.items():
            if path.startswith(f"{root}/"):
                *parents, last = path[len(str(root)) + 1 :].split("/")
                inode = self._roots[name]
                for parent in parents:
                    found = self._names[inode].get(parent)
                    if found is None:
                        raise NotRecorded(f"{path}: the directory {parent} was made without being recorded")
                    inode = found
                return inode, last
        raise NotRecorded(f"{path} is a root, which cannot be changed")

    def _inode(self, path: str) -> int | None:
        for name, root in self.roots.items():
            if path == str(root):
                return self._roots[name]
        directory, name = self._place(path)
        return self._names[directory].get(name)

    # ---- descriptors

    def _of(self, fd: Any) -> int | None:
        """Return the model's inode of a descriptor; None for one of another file."""
        number = fd if isinstance(fd, int) else fd.fileno()
        known = self._fds.get(number)
        if known is None:
            return None
        try:
            stat = os.fstat(number)
        except OSError:
            return None
        if (stat.st_dev, stat.st_ino) != known[1]:  # closed without os.close, and the number is used again
            del self._fds[number]
            return None
        return known[0]

    def _know(self, fd: int, inode: int) -> None:
        stat = os.fstat(fd)
        self._fds[fd] = inode, (stat.st_dev, stat.st_ino)

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        absolute = self._absolute(path, dir_fd)
        if absolute is None:
            fd: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
            with self.lock:
                self._fds.pop(fd, None)
            return fd
        with self.lock:
            fd = self._real["open"](path, flags, mode, dir_fd=dir_fd)
            try:
                inode = self._inode(absolute)
                if inode is None:
                    if not flags & os.O_CREAT:
                        raise NotRecorded(f"{absolute} was made without being recorded")
                    inode = next(self._inodes)
                    directory, name = self._place(absolute)
                    self._names[directory][name] = inode
                    self.events.append(Link(directory, name, inode))
                elif flags & os.O_TRUNC and inode not in self._directories:
                    self._see_mappings(inode)
                    self.events.append(Truncate(inode, 0))
                self._know(fd, inode)
            except BaseException:
                self._real["close"](fd)
                raise
            return fd

    def _close(self, fd: int) -> None:
        with self.lock:
            self._fds.pop(fd, None)
            self._real["close"](fd)

    def _dup(self, fd: int) -> int:
        with self.lock:
            inode, new = self._of(fd), self._real["dup"](fd)
            if inode is not None:
                self._know(new, inode)
            return int(new)

    # ---- bytes

    def _write(self, fd: int, data: Any) -> int:
        inode = self._of(fd)
        if inode is None:
            return int(self._real["write"](fd, data))
        with self.lock:
            before = os.lseek(fd, 0, os.SEEK_CUR)
            written = int(self._real["write"](fd, data))
            # with O_APPEND the place is known only afterwards
            at = os.lseek(fd, 0, os.SEEK_CUR) - written if _appends(fd) else before
            self._wrote(inode, at, memoryview(data).cast("B")[:written])
            return written

    def _writev(self, fd: int, buffers: Sequence[Any]) -> int:
        if self._of(fd) is None:
            return int(self._real["writev"](fd, buffers))
        return self._write(fd, b"".join(buffers))

    def _pwrite(self, fd: int, data: Any, offset: int) -> int:
        inode = self._of(fd)
        if inode is None:
            return int(self._real["pwrite"](fd, data, offset))
        with self.lock:
            written = int(self._real["pwrite"](fd, data, offset))
            self._wrote(inode, offset, memoryview(data).cast("B")[:written])
            return written

    def _pwritev(self, fd: int, buffers: Sequence[Any], offset: int, flags: int = 0) -> int:
        if self._of(fd) is None:
            return int(self._real["pwritev"](fd, buffers, offset, flags))
        return self._pwrite(fd, b"".join(buffers), offset)

    def _wrote(self, inode: int, offset: int, data: memoryview) -> None:
        if len(data):
            self.events.append(Write(inode, offset, bytes(data)))
        for mapping in self._mappings.get(inode, ()):
            mapping.take_in()

    def _ftruncate(self, fd: int, length: int) -> None:
        inode = self._of(fd)
        if inode is None:
            self._real["ftruncate"](fd, length)
            return
        with self.lock:
            self._see_mappings(inode)
            before = os.fstat(fd).st_size
            self._real["ftruncate"](fd, length)
            if length != before:
                self.events.append(Truncate(inode, length))

    def _truncate(self, path: Any, length: int) -> None:
        if isinstance(path, int):
            self._ftruncate(path, length)
            return
        absolute = self._absolute(path)
        if absolute is None:
            self._real["truncate"](path, length)
            return
        with self.lock:
            inode = self._inode(absolute)
            if inode is not None:
                self._see_mappings(inode)
            self._real["truncate"](path, length)
            if inode is None:
                raise NotRecorded(f"{absolute} was made without being recorded")
            self.events.append(Truncate(inode, length))

    def _see_mappings(self, inode: int | None = None) -> None:
        """Record what was stored through writable mappings since they were last looked at."""
        for one in [inode] if inode is not None else list(self._mappings):
            for mapping in self._mappings.get(one, ()):
                for at, data in mapping.changes():
                    self.events.append(Write(one, at, data))

    # ---- directory entries

    def _rename(
        self, real: str, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        call = functools.partial(self._real[real], src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        old, new = self._absolute(src, src_dir_fd), self._absolute(dst, dst_dir_fd)
        if old is None and new is None:
            call()
            return
        if old is None or new is None:
            raise NotRecorded(f"a rename from {src!r} to {dst!r} crosses the roots")
        with self.lock:
            call()
            (directory, name), (new_directory, new_name) = self._place(old), self._place(new)
            if (directory, name) == (new_directory, new_name):
                return
            inode = self._names[directory].pop(name)
            self._names[new_directory][new_name] = inode
            self.events.append(Rename(directory, name, new_directory, new_name, inode))

    def _link(self, src: Any, dst: Any, **options: Any) -> None:
        old, new = self._absolute(src, options.get("src_dir_fd")), self._absolute(dst, options.get("dst_dir_fd"))
        if new is None:
            self._real["link"](src, dst, **options)
            return
        if old is None:
            raise NotRecorded(f"a link from {src!r} to {dst!r} crosses the roots")
        with self.lock:
            self._real["link"](src, dst, **options)
            (directory, name), inode = self._place(new), self._inode(old)
            if inode is None:
                raise NotRecorded(f"{old} was made without being recorded")
            self._names[directory][name] = inode
            self.events.append(Link(directory, name, inode))

    def _unlink(self, real: str, path: Any, *, dir_fd: int | None = None) -> None:
        absolute = self._absolute(path, dir_fd)
        if absolute is None:
            self._real[real](path, dir_fd=dir_fd)
            return
        with self.lock:
            self._real[real](path, dir_fd=dir_fd)
            directory, name = self._place(absolute)
            del self._names[directory][name]
            self.events.append(Unlink(directory, name))

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        absolute = self._absolute(path, dir_fd)
        if absolute is None:
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            return
        with self.lock:
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            directory, name = self._place(absolute)
            inode = self._names[directory][name] = next(self._inodes)
            self._directories.add(inode)
            self.events.append(Link(directory, name, inode))

    # ---- durability

    def _sync(self, real: str, fd: Any) -> None:
        inode = self._of(fd)
        if inode is None:
            self._real[real](fd)
            return
        with self.lock:
            self._see_mappings(inode)
            call = next(self._calls)
            self.events.append(SyncBegin(inode, call))
        self._real[real](fd)
        time.sleep(self.sync_delay_s)
        with self.lock:
            self.events.append(SyncEnd(inode, call))

    def _unknown(self, name: str, *arguments: Any, **options: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, int):
                below = self._of(argument) is not None
            else:
                below = isinstance(argument, str | bytes | os.PathLike) and self._absolute(argument) is not None
            if below and not (name == "sendfile" and argument is not arguments[0]):  # it reads from the second
                raise NotRecorded(f"os.{name} changes a file below the roots, and the recorder does not know it")
        return self._real[name](*arguments, **options)

    # ---- sockets

    def _send(self, sock: socket.socket, send: Callable[[], int]) -> int:
        with self.lock:
            try:
                port = sock.getpeername()[1]
            except (OSError, IndexError, TypeError):
                port = None
            if not isinstance(port, int):
                return send()
            count = send()
            self._sent[port] += count
            self.events.append(Send(port, self._sent[port]))
            return count


def _appends(fd: int) -> bool:
    import fcntl

    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND)


class _Mapping(mmap.mmap):
    """A mapping whose stores are recorded when it is flushed or closed, and whenever its file is synced or written."""

    _recorder: Recorder | None = None
    _before: bytes = b""
    _offset = 0
    _model_inode = 0

    def __new__(cls, fileno: int, length: int, *arguments: Any, **options: Any) -> _Mapping:
        self = super().__new__(cls, fileno, length, *arguments, **options)
        recorder, access = _active, options.get("access", mmap.ACCESS_DEFAULT)
        flags, prot = options.get("flags", mmap.MAP_SHARED), options.get("prot", mmap.PROT_READ | mmap.PROT_WRITE)
        if recorder is None or fileno == -1 or access in (mmap.ACCESS_READ, mmap.ACCESS_COPY):
            return self
        inode = recorder._of(fileno)
        if inode is not None and flags & mmap.MAP_SHARED and prot & mmap.PROT_WRITE:
            with recorder.lock:
                self._recorder, self._model_inode = recorder, inode
                self._offset, self._before = options.get("offset", 0), self[:]
                recorder._mappings[inode].append(self)
        return self

    def changes(self) -> list[tuple[int, bytes]]:
        """Return what was stored since the last call, as (offset in the file, bytes) by page."""
        found, now = [], self[:]
        for at in range(0, len(now), mmap.PAGESIZE):
            page = now[at : at + mmap.PAGESIZE]
            if page != self._before[at : at + mmap.PAGESIZE]:
                found.append((self._offset + at, page))
        self._before = now
        return found

    def take_in(self) -> None:
        """Take what a write has changed; it was recorded as such."""
        self._before = self[:]

    def flush(self, *arguments: Any) -> Any:
        recorder = self._recorder
        if recorder is not None:
            # msync of part of a mapping may sync more, never less: what it covers counts as written, not as safe
            with recorder.lock:
                recorder._see_mappings(self._model_inode)
        return super().flush(*arguments)

    def close(self) -> None:
        recorder = self._recorder
        if recorder is not None:
            with recorder.lock:
                recorder._see_mappings(self._model_inode)
                recorder._mappings[self._model_inode].remove(self)
                self._recorder = None
        super().close()

    def __exit__(self, *exc: object) -> None:
        self.close()


@functools.cache
def _watch_open() -> None:
    """Let the builtin `open` raise when it would write below the roots of the active recorder."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or _active is None:
            return
        path, mode, flags = arguments
        if mode is None or isinstance(path, int) or not flags & _WRITING:  # os.open has no mode
            return
        if _active._absolute(path) is not None:
            raise NotRecorded(f"open({path!r}, {mode!r}) writes below the roots without os.open")

    sys.addaudithook(hook)
