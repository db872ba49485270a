"""Interface to Spark: its types in Arrow, the base of its stream writers, errors as its users meet them (our sentence
in the first line, nothing after it), the set-up of its Python worker processes."""

from __future__ import annotations

import functools
import gc
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from inspect import signature
from types import FrameType
from typing import Any, NoReturn, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from kafkalog_spark.errors import DecompressesTooFar, KafkalogError
from kafkalog_spark.kernels.cache_directories import has_compiled

F = TypeVar("F", bound=Callable[..., Any])


def raise_first_line(error: KafkalogError) -> NoReturn:
    """Raise `error` so that Spark's message begins with its text instead of "Traceback (most recent call last)": the
    worker, which ends with the exception it reports, leaves that out (pyspark.util.handle_worker_exception)."""
    os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    if isinstance(error, DecompressesTooFar) and error.hint:  # the log format knows no options
        error.hint = "raise the option maxDecompressedBatchBytes if such batches are meant to be there"
    raise error


def first_line(function: F) -> F:
    """Decorator for what Spark calls: a KafkalogError leaves it with its text in the first line."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except KafkalogError as error:
            raise_first_line(error)

    return call  # type: ignore[return-value]


def first_line_of(batches: Iterator[Any]) -> Iterator[Any]:
    """The same for what an iterator raises while it is read."""
    try:
        yield from batches
    except KafkalogError as error:
        raise_first_line(error)


class RefusedStreamReader(datasource.DataSourceStreamReader):
    """Reader of a stream whose options cannot be used. Raises `error` when the query starts: what creating a reader
    raises Spark replaces by a NameError of its own (python_streaming_source_runner.py)."""

    def __init__(self, error: KafkalogError) -> None:
        self._error = error

    def _refuse(self, *_: Any) -> NoReturn:
        raise_first_line(self._error)

    getDefaultReadLimit = initialOffset = latestOffset = reportLatestOffset = partitions = read = _refuse


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark expects a batch of these columns, or hands it over but for zones."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # before 4.2 timestamps are in UTC without being asked


StreamWriterBase: Any = getattr(datasource, "DataSourceStreamArrowWriter", object)
"""Base of stream writers that are given Arrow batches; `object` in Spark 4.0, which has none."""


_log = logging.getLogger(__name__)


@cache
def freeze_gc_once() -> None:
    """Take what is imported by now out of the garbage collector's sight, when this process is a Spark worker.

    pyspark's daemon collects garbage after every task: with numba, llvmlite and pyarrow 400,000 objects, 30 to 70 ms of
    processor time. A worker's first task calls this at its end: before it has read, the kernels are not loaded.
    """
    if TaskContext.get() is not None:
        gc.collect()
        gc.freeze()


def until_spark_has_enough(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows, read in a process that ends without a word when Spark has closed the connection before it has them all.

    Spark does that when it stops taking rows (limit, take, show). pyspark's daemon would try to write the rest all the
    same, and print the error with its traceback, for what is the normal end of such a query.
    """
    connection = _connection_to_spark()
    try:
        yield from rows
    finally:  # pyspark closes this iterator when writing a batch has failed
        freeze_gc_once()  # now that everything a task needs is loaded
        if connection is not None:
            if closed_by_peer(connection):
                os._exit(0)
            _end_quietly_while_the_rest_is_written()


def _end_quietly_while_the_rest_is_written() -> None:
    """pyspark still writes what it has buffered, and Spark may close the connection in that moment: SIGPIPE then ends
    this process. It is ignored again when the daemon collects garbage, as it does when a task is through."""

    def ignore_again(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            gc.callbacks.remove(ignore_again)

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    gc.callbacks.append(ignore_again)


def closed_by_peer(connection: socket.socket) -> bool:
    """True if the other side has closed a stream socket, whatever is left to be read from it."""
    poller = select.poll()
    poller.register(connection, getattr(select, "POLLRDHUP", 0))  # POLLHUP and POLLERR are always reported
    return bool(poller.poll(0))


def _connection_to_spark() -> socket.socket | None:
    """Socket of the task that runs here, a parameter of the daemon's function around it; None outside a daemon."""
    if TaskContext.get() is None or not hasattr(select, "poll"):
        return None
    sockets = (frame.f_locals.get("sock") for frame in _frames() if frame.f_code.co_name == "worker")
    return next((sock for sock in sockets if isinstance(sock, socket.socket)), None)


def _frames() -> Iterator[FrameType]:
    """The functions that are running in this thread, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def session_time_zone() -> str:
    """Name of the session's time zone in a task, UTC elsewhere, where nothing is decoded. Spark tells tasks of each
    setting that was made; of the zone of the driver's JVM only its own Python code, in `runner_conf` (4.3)."""
    context = TaskContext.get()
    if context is None:
        return "UTC"
    if zone := context.getLocalProperty("spark.sql.session.timeZone"):
        return str(zone)
    confs = (frame.f_locals.get("runner_conf") for frame in _frames())
    return next((str(zone) for conf in confs if (zone := getattr(conf, "timezone", None))), None) or _unknown_zone()


@cache
def _unknown_zone() -> str:
    _log.warning(
        "spark.sql.session.timeZone is not set, and this release of Spark does not say what it is then: timestamps "
        "that name no zone are read as UTC; set it, or the option timeZone"
    )
    return "UTC"


_KERNELS = {
    "read": "kafkalog_spark.kernels.decode_v2",
    "json": "kafkalog_spark.typed.json.kernel",
    "avro": "kafkalog_spark.typed.avro.kernel",
    "protobuf": "kafkalog_spark.typed.protobuf.kernel",
}
"""Module of the largest kernel of each group that reads."""
_is_compiled = cache(has_compiled)  # asked of each load, and what was compiled stays
_warming: list[subprocess.Popen[bytes]] = []
"""The process that compiles in the background: one in a process's life."""


def warm_in_background(formats: Iterable[str]) -> None:
    """Have the kernels of a read compiled by a process of its own, unless some process has done so before: the first
    task that needs one waits for it. Called on the driver when a load is planned. formats: of values and keys."""
    names = (*(format.removeprefix("confluent-") for format in formats), "read")
    groups = [name for name in names if name in _KERNELS and not _is_compiled(_KERNELS[name])]
    if groups and not _warming:
        _log.warning("kernels are compiled, once on this machine: %s, some 10 s", ", ".join(groups))
        command = [sys.executable, "-m", "kafkalog_spark.warm", "--only", ",".join(groups)]
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        _warming.append(subprocess.Popen(command, start_new_session=True, **silent))  # type: ignore[call-overload]
