"""One bucket as this process reaches it: the library's client, requests with their tries, what was counted.

The library (obstore) is imported when the first request is made. Clients are shared by all stores of a process that
are equal, so that tasks of one worker go on with open connections.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.store.client_settings import client_of, settings_of, vendor_of
from kafkalog_spark.log.store.object_errors import Asked, Failure, failure_of
from kafkalog_spark.log.store.request_counts import RequestCounts, RequestTally
from kafkalog_spark.log.store.retrying import Retrying
from kafkalog_spark.log.store.storage_options import RetryPolicy, StorageOptions

T = TypeVar("T")
Wait = Callable[[float], bool]
"""Wait for so many seconds; True to give up before."""


class TryFailed(Exception):
    """What a request came back with is wrong, though the library does not say so."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


class ObjectClient:
    """Threads share it. Not to be pickled: `client_for` finds it again in another process."""

    def __init__(self, scheme: str, bucket: str, options: StorageOptions) -> None:
        self.tally = RequestTally()
        self._place = scheme, bucket
        self._settings = settings_of(scheme, bucket, options)
        endpoint = self._settings.config.get("endpoint", self._settings.config.get("base_url"))
        host = urlsplit(endpoint.text) if endpoint is not None else None
        shown = "" if host is None else (host.hostname or "") + (f":{host.port}" if host.port else "")
        self._asked = Asked(bucket.partition("@")[0], shown, vendor_of(scheme))
        self._known = False

    @cached_property
    def _once(self) -> Any:
        """Makes each request once."""
        return client_of(*self._place, self._settings, RetryPolicy(1, 0))

    @cached_property
    def _patient(self) -> Any:
        """Repeats what failed by itself: pages of a listing, parts of an upload."""
        return client_of(*self._place, self._settings, self._settings.retry)

    def ask(
        self, path: str, call: Callable[[Any], T], *, in_parts: bool = False, wait: Wait | None = None, **kind: int
    ) -> T:
        """`call` with the library's client, again while that may help. in_parts: the library makes several requests of
        it, and should repeat those that fail instead of all. kind: what to count for each try (`get=1`).

        Raises OSError with a sentence that holds nothing of the library's text.
        """
        _expect_own_threads(path)
        retrying = Retrying(self._settings.retry, self._known)
        while True:
            self.tally.add(**kind)
            # The OSError is raised outside `except`: a traceback that shows it would show the library's text above it.
            failure, result = self._try(call, in_parts=in_parts)
            if failure is None:
                self._known = True
                return result  # type: ignore[return-value]
            self._known = self._known or failure.answered
            seconds = retrying.wait_after(failure)
            if seconds is None or (wait or _sleep)(seconds):
                raise failure.error(path, retrying.tries)

    def _try(self, call: Callable[[Any], T], *, in_parts: bool) -> tuple[Failure | None, T | None]:
        try:
            return None, call(self._patient if in_parts and self._known else self._once)
        except TryFailed as error:
            return error.failure, None
        except (OptionError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - the library raises classes without a common base but this one
            return failure_of(error, self._asked), None


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


_lock = threading.Lock()
_clients: dict[tuple[str, str, StorageOptions], ObjectClient] = {}
_used_in: int | None = None
"""The process in which the library's threads were started."""


def client_for(scheme: str, bucket: str, options: StorageOptions) -> ObjectClient:
    """The client of this process. Raises OptionError."""
    key = scheme, bucket, options
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = ObjectClient(scheme, bucket, options)
        return client


def all_counts() -> RequestCounts:
    """Of all clients of this process together."""
    with _lock:
        total = RequestCounts()
        for client in _clients.values():
            total = total.plus(client.tally.counts())
        return total


def _expect_own_threads(path: str) -> None:
    """The library starts threads with its first request, and a fork has none of them: a request there would wait for
    ever. Spark's daemon makes none before it forks."""
    global _used_in
    if _used_in is None:
        _used_in = os.getpid()
    elif _used_in != os.getpid():
        raise OSError(
            errno.ENOTSUP,
            "this process was forked from one that had read from an object store, which does not work in a fork: start "
            "processes by spawn or forkserver (multiprocessing.set_start_method)",
            path,
        )


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
