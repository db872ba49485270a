"""Staging area of a task in a bucket."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor

from kafkalog_spark.sink.bucket_directory import BucketDirectory

_log = logging.getLogger(__name__)

STAGED = "kafkalog.staged"
_PUTS_AT_ONCE = 2  # as many others wait in the queue: 64 MiB in all


class BucketStage:
    """Objects `kafkalog.staged/<job>/<task>-<attempt>-<n>.log`. A later sink removes the objects of a killed task."""

    piece_bytes = 16 << 20
    """Large enough that a request costs little, small enough that the driver can hold several pieces."""
    held_bytes = 64 << 20

    def __init__(self, directory: BucketDirectory, job: str) -> None:
        self._directory = directory
        self._job = job
        self._open: dict[str, bytearray] = {}
        self._names: list[str] = []
        self._threads = ThreadPoolExecutor(min(_PUTS_AT_ONCE, directory.parallel), "stage")
        self._running: list[Future[None]] = []

    def begin(self, task: int, attempt: str, number: int) -> str:
        name = f"{STAGED}/{self._job}/{task}-{attempt}-{number}.log"
        self._open[name] = bytearray()
        return name

    def append(self, name: str, data: memoryview) -> None:
        self._open[name] += data

    def finish(self, name: str) -> None:
        """Put the object in the background. Raises the error of an earlier put."""
        data = self._open.pop(name)
        while len(self._running) >= 2 * _PUTS_AT_ONCE:
            self._running.pop(0).result()
        self._names.append(name)
        self._running.append(self._threads.submit(self._directory.replace, name, data))

    def close(self) -> None:
        running, self._running = self._running, []
        for put in running:
            put.result()
        self._threads.shutdown()

    def discard(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        try:
            self._directory.delete(self._names)
        except OSError as error:
            _log.warning("staged objects could not be removed, a later sink will remove them: %s", error)
