"""A task's staged objects: pieces of up to 16 MiB, each put whole: a task holds few bytes of each partition."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.sink.bucket import Bucket
from kafkalog_spark.sink.bucket_names import piece_name
from kafkalog_spark.sink.bucket_target import topics_in_bucket

_log = logging.getLogger(__name__)

PIECE_BYTES = 16 << 20
"""Of a staged object: large enough that its request costs little, small enough that the driver can hold some."""
_PUTS_AT_ONCE = 2
"""With as many that wait, 64 MiB."""


class BucketStage:
    """Objects below kafkalog.staged. What a task that is killed leaves there, a later sink removes."""

    held_bytes = 64 << 20

    def __init__(self, bucket: Bucket, job: str) -> None:
        self._bucket = bucket
        self._job = job
        self._open: dict[str, bytearray] = {}
        self._names: list[str] = []
        self._threads: ThreadPoolExecutor | None = None
        self._running: list[Future[None]] = []

    def file_bytes(self, segment_bytes: int) -> int:
        """A segment is made of several."""
        return min(PIECE_BYTES, segment_bytes)

    def topics(self) -> dict[str, list[int]]:
        """See Stage. A topic that another sink is making has all its partitions at once: see bucket_publish."""
        return topics_in_bucket(self._bucket)

    def begin(self, task: int, attempt: str, number: int) -> str:
        """See Stage."""
        name = piece_name(self._job, task, attempt, number)
        self._open[name] = bytearray()
        return name

    def append(self, name: str, data: memoryview) -> None:
        """See Stage."""
        self._open[name] += data

    def finish(self, name: str) -> None:
        """Put it, while the task goes on. Raises what an earlier put raised."""
        data = self._open.pop(name)
        while len(self._running) >= 2 * _PUTS_AT_ONCE:
            self._running.pop(0).result()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(min(_PUTS_AT_ONCE, self._bucket.parallel), "stage")
        self._names.append(name)
        self._running.append(self._threads.submit(self._bucket.put, name, data))

    def close(self) -> None:
        """See Stage."""
        running, self._running = self._running, []
        for put in running:
            put.result()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def discard(self) -> None:
        """See Stage."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
            self._threads = None
        try:
            self._bucket.delete(self._names)
        except OSError as error:
            _log.warning("staged objects are left, a later sink removes them: %s", error)

    def error(self, error: OSError) -> KafkalogError:
        """See Stage."""
        return self._bucket.unwritable(error)
