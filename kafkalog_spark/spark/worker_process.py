"""Control of Spark's Python worker processes: their end when Spark stops reading, and their garbage collection."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from types import FrameType

import pyarrow as pa
from pyspark import TaskContext


@cache
def freeze_gc_once() -> None:
    """Freeze all present objects if this process is a Spark worker, so that the garbage collector skips them.

    PySpark's daemon collects garbage after every task, which takes long with the objects of numba, llvmlite and
    pyarrow. The first task of a worker calls this at its end, when the kernels are loaded.
    """
    if TaskContext.get() is not None:
        gc.collect()
        gc.freeze()


def yield_until_spark_stops(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task. If Spark closes the connection before the last row, end this process silently.

    Spark closes the connection when it needs no more rows (limit, take, show). PySpark's daemon would then fail to
    write the remaining rows and print a traceback, although this is the normal end of such a query.
    """
    connection = _connection_to_spark()
    try:
        yield from rows
    finally:  # PySpark closes this iterator if it fails to write a batch
        freeze_gc_once()  # all modules and kernels of a task are loaded now
        if connection is not None:
            if closed_by_peer(connection):
                os._exit(0)
            _end_quietly_on_broken_pipe()


def _end_quietly_on_broken_pipe() -> None:
    """Let SIGPIPE end this process while PySpark writes its buffered rows: Spark may close the connection first.

    The signal is ignored again at the next full garbage collection, which the daemon runs at the end of the task.
    """

    def ignore_again(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            gc.callbacks.remove(ignore_again)

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    gc.callbacks.append(ignore_again)


def closed_by_peer(connection: socket.socket) -> bool:
    """Return True if the peer has closed a stream socket, even if there are bytes left to read."""
    poller = select.poll()
    poller.register(connection, getattr(select, "POLLRDHUP", 0))  # POLLHUP and POLLERR are always reported
    return bool(poller.poll(0))


def _connection_to_spark() -> socket.socket | None:
    """Return the socket of the running task, a parameter of a calling function of PySpark's daemon.

    None if this process was not started by the daemon.
    """
    if TaskContext.get() is None or not hasattr(select, "poll"):
        return None
    sockets = (frame.f_locals.get("sock") for frame in running_frames() if frame.f_code.co_name == "worker")
    return next((sock for sock in sockets if isinstance(sock, socket.socket)), None)


def running_frames() -> Iterator[FrameType]:
    """Yield the frames of the calling functions of this thread, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
