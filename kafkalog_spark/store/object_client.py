"""Clients of buckets, with retries and counts of requests.

The library (obstore) is imported at the first request. The stores of a process share the clients. Errors are OSErrors
with a sentence about bucket, endpoint or credentials, never with the library's text, which may hold a secret.
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
from kafkalog_spark.store.failures import TryFailed, failure_of, words_of
from kafkalog_spark.store.obstore_clients import client_of
from kafkalog_spark.store.paths import GCS_SCHEMES, S3_SCHEMES
from kafkalog_spark.store.request_counts import RequestCounts
from kafkalog_spark.store.retrying import wait_after
from kafkalog_spark.store.storage_options import AZURE_NAMES, GCS_NAMES, RetryPolicy, StorageOptions

T = TypeVar("T")
Wait = Callable[[float], bool]
"""Waits for a number of seconds; returns True to give up the request."""


class ObjectClient:
    """Client of one bucket. Thread-safe; not picklable, since `client_for` finds it again in another process.

    Requests are retried here and not by the library's RetryConfig, because each try is counted, a conditional put must
    know whether an earlier try may have written, closing a file ends the wait, and an endpoint that never answered is
    given up after INITIAL_CONNECT_TRIES. The library retries single pages of a listing and parts of an upload.

    Args:
        wait: Waits between tries of requests that have no `wait` of their own.
    """

    def __init__(self, scheme: str, bucket: str, options: StorageOptions, wait: Wait | None = None) -> None:
        self._wait = wait or _sleep
        self.counts = RequestCounts()
        self._counting = threading.Lock()
        self._place = scheme, bucket
        if scheme in S3_SCHEMES:
            self._settings, vendor = options.for_s3(bucket), "s3"
        elif scheme in GCS_SCHEMES:
            self._settings, vendor = options.for_gcs_or_azure(GCS_NAMES), "gs"
        else:
            self._settings, vendor = options.for_gcs_or_azure(AZURE_NAMES), "abfss"
        endpoint = self._settings.config.get("endpoint", self._settings.config.get("base_url"))
        host = urlsplit(endpoint) if endpoint is not None else None
        shown = "" if host is None else (host.hostname or "") + (f":{host.port}" if host.port else "")
        self._words = words_of(bucket.partition("@")[0], shown, vendor)
        self._known = False

    def check_settings(self) -> None:
        """Make the library's client, without a request. Raises OptionError for settings that it refuses."""
        _ = self._once

    @cached_property
    def _once(self) -> Any:
        return client_of(*self._place, self._settings, RetryPolicy(1, 0))

    @cached_property
    def _repeating(self) -> Any:
        return client_of(*self._place, self._settings, self._settings.retry)

    def count(self, **counts: int) -> None:
        """Add to `counts`, by the fields' names."""
        with self._counting:
            self.counts = self.counts.plus(RequestCounts(**counts))

    def ask(
        self, path: str, call: Callable[[Any], T], *, in_parts: bool = False, wait: Wait | None = None, **kind: int
    ) -> T:
        """Run `call` with the library's client, with retries.

        Args:
            in_parts: True if the library makes several requests of it, and should retry them singly.
            kind: Counts to add for each try (`get=1`).

        Raises:
            OSError: With a sentence that holds none of the library's text.
        """
        global _used_in
        if _used_in is None:
            _used_in = os.getpid()
        elif _used_in != os.getpid():
            # The library starts threads at its first request. A fork has none of them, and a request there would never
            # end. Spark's daemon makes no request before it forks.
            raise OSError(
                errno.ENOTSUP,
                "this process was forked from one that had read from an object store, which does not work in a fork: "
                "start processes by spawn or forkserver (multiprocessing.set_start_method)",
                path,
            )
        begun, tries = time.monotonic(), 0
        while True:
            tries += 1
            self.count(**kind)
            try:
                result = call(self._repeating if in_parts and self._known else self._once)
            except TryFailed as error:
                failure = error.failure
            except (OptionError, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - the library raises classes without a common base but this one
                failure = failure_of(error, self._words)
            else:
                self._known = True
                return result
            # Outside `except`: a traceback that shows the OSError would show the library's text above it.
            self._known = self._known or failure.answered
            taken = time.monotonic() - begun
            seconds = wait_after(failure, tries, taken, self._settings.retry, known=self._known, part=random.random())
            if seconds is None or (wait or self._wait)(seconds):
                raise failure.error(path, tries)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


_lock = threading.Lock()
_clients: dict[tuple[str, str, StorageOptions], ObjectClient] = {}
_used_in: int | None = None  # the process in which the library's threads were started


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


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_forget)
