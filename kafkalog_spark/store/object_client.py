"""Clients of buckets, which retry and count requests.

The library (obstore) is imported at the first request. All stores of a process share the clients. Errors are OSErrors
with a sentence about bucket, endpoint or credentials, never with the library's text, which may contain a secret.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kafkalog_spark.errors import OptionError
from kafkalog_spark.store.failures import TryFailed, failure_of, placeholders_for
from kafkalog_spark.store.obstore_clients import client_of
from kafkalog_spark.store.obstore_options import AZURE_NAMES, GCS_NAMES
from kafkalog_spark.store.paths import GCS_SCHEMES, S3_SCHEMES
from kafkalog_spark.store.request_counts import RequestCounts
from kafkalog_spark.store.retrying import wait_after
from kafkalog_spark.store.storage_options import RetryPolicy, StorageOptions

T = TypeVar("T")
Wait = Callable[[float], bool]
"""Waits for a number of seconds; returns True to give up the request."""


class ObjectClient:
    """Client of one bucket. Thread-safe. Not picklable: another process gets its own client from `client_for`.

    Requests are retried here and not by the library's RetryConfig, because each try is counted, a conditional put must
    know whether an earlier try may have written, closing a file ends the wait, and requests to an endpoint that never
    responded fail after INITIAL_CONNECT_TRIES. The library retries single pages of a listing and parts of an upload.

    Args:
        scheme: Normalised scheme, such as "s3".
        bucket: Bucket, or Azure's `container@account.dfs.core.windows.net`.
        options: Storage options.
        wait: Waits between the tries of requests without a `wait` of their own.
    """

    def __init__(self, scheme: str, bucket: str, options: StorageOptions, wait: Wait | None = None) -> None:
        self._wait = wait or _sleep
        self.counts = RequestCounts()
        self._counting = threading.Lock()
        self._scheme, self._bucket = scheme, bucket
        if scheme in S3_SCHEMES:
            self._settings, vendor = options.for_s3(bucket), "s3"
        elif scheme in GCS_SCHEMES:
            self._settings, vendor = options.for_gcs_or_azure(GCS_NAMES), "gs"
        else:
            self._settings, vendor = options.for_gcs_or_azure(AZURE_NAMES), "abfss"
        endpoint = self._settings.config.get("endpoint", self._settings.config.get("base_url"))
        url = urlsplit(endpoint) if endpoint is not None else None
        host = "" if url is None else (url.hostname or "") + (f":{url.port}" if url.port else "")
        self._placeholders = placeholders_for(bucket.partition("@")[0], host, vendor)
        self._has_answered = False

    def check_settings(self) -> None:
        """Create the library's client, without a request. Raises OptionError for settings that it refuses."""
        _ = self._without_retries

    @cached_property
    def _without_retries(self) -> Any:
        """The library's client, which sends each request once."""
        return client_of(self._scheme, self._bucket, self._settings, RetryPolicy(1, 0))

    @cached_property
    def _with_retries(self) -> Any:
        """The library's client, which retries by itself."""
        return client_of(self._scheme, self._bucket, self._settings, self._settings.retry)

    def count(self, **counts: int) -> None:
        """Add to `counts`, by the fields' names."""
        with self._counting:
            self.counts = self.counts.plus(RequestCounts(**counts))

    def request(
        self, path: str, call: Callable[[Any], T], *, in_parts: bool = False, wait: Wait | None = None, **counts: int
    ) -> T:
        """Run `call` with the library's client, with retries.

        Args:
            path: Path for the error.
            call: Sends the request with the client that it is given.
            in_parts: True if the library divides the call into several requests, which it retries one by one.
            wait: Waits between tries; None for the client's own wait.
            counts: Counts to add for each try (`get=1`).

        Raises:
            OSError: With a sentence that contains none of the library's text.
        """
        global _process_of_library
        if _process_of_library is None:
            _process_of_library = os.getpid()
        elif _process_of_library != os.getpid():
            # The library starts threads at its first request. A forked process has none of them, and a request there
            # would never end. Spark's daemon sends no request before it forks.
            raise OSError(
                errno.ENOTSUP,
                "this process is a fork of one that has sent requests to an object store, and cannot send any itself: "
                "start processes with spawn or forkserver (multiprocessing.set_start_method)",
                path,
            )
        begun, tries = time.monotonic(), 0
        while True:
            tries += 1
            self.count(**counts)
            try:
                result = call(self._with_retries if in_parts and self._has_answered else self._without_retries)
            except TryFailed as error:
                failure = error.failure
            except (OptionError, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - the library's exceptions have no other common base class
                failure = failure_of(error, self._placeholders)
            else:
                self._has_answered = True
                return result
            # Raised outside of `except`, so that the traceback does not include the library's text.
            self._has_answered = self._has_answered or failure.was_answered
            seconds = wait_after(
                failure,
                tries,
                time.monotonic() - begun,
                self._settings.retry,
                has_answered=self._has_answered,
                jitter=random.random(),
            )
            if seconds is None or (wait or self._wait)(seconds):
                raise failure.error(path, tries)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


_lock = threading.Lock()
_clients: dict[tuple[str, str, StorageOptions], ObjectClient] = {}
_process_of_library: int | None = None  # ID of the process in which the library has started its threads


def client_for(scheme: str, bucket: str, options: StorageOptions) -> ObjectClient:
    """Return this process's client of a bucket. Raises OptionError."""
    key = scheme, bucket, options
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = ObjectClient(scheme, bucket, options)
        return client


def all_counts() -> RequestCounts:
    """Return the counts of all clients of this process."""
    with _lock:
        total = RequestCounts()
        for client in _clients.values():
            total = total.plus(client.counts)
        return total


def _reset_after_fork() -> None:
    """Replace the lock, which may be held by a thread that does not exist in the fork, and drop the clients."""
    global _lock
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
