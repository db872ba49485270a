"""Counts of requests for the metrics: 0.3 us a request, so plain numbers, changed by the event loop alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Coroutine, Mapping
from time import perf_counter
from types import CoroutineType
from typing import Any

from kafkalog_broker.metrics.exposition import BUCKETS_S
from kafkalog_broker.net.dispatch import Answer, ConnectionClosed, Dispatch, Frame
from kafkalog_broker.protocol.api_registry import ConnectionInfo, registry
from kafkalog_broker.protocol.codec import api_name

_KEYS = 256  # Kafka's API keys are below 100


class ApiCounts:
    """Counts of an API. buckets: answered requests by the first of BUCKETS_S not below their latency, not cumulative.
    Seconds and bytes are sums."""

    __slots__ = ("buckets", "closed", "request_bytes", "response_bytes", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0
        self.request_bytes = self.response_bytes = self.closed = 0

    def answered(self, seconds: float, pieces: Answer) -> Answer:
        """A request was answered with these pieces, which are returned."""
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        if pieces is not None:
            self.response_bytes += len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        return pieces


class RequestCounts:
    """Counts by API key. Unknown keys, which clients make up, are counted together."""

    def __init__(self) -> None:
        self.known: list[ApiCounts | None] = [None] * _KEYS
        """By the second byte of a request, of APIs that were asked for; the first is 0."""
        self._unknown = ApiCounts()

    def of(self, frame: Frame) -> ApiCounts:
        key = int.from_bytes(frame[:2], "big") if len(frame) > 1 else _KEYS
        if key >= _KEYS or key not in registry():
            return self._unknown
        found = self.known[key]
        if found is None:
            found = self.known[key] = ApiCounts()
        return found

    @property
    def by_api(self) -> Mapping[str, ApiCounts]:
        """By name of the API, of those that were asked for."""
        named = {api_name(key): counts for key, counts in enumerate(self.known) if counts is not None}
        return {**named, "unknown": self._unknown} if self._unknown.request_bytes else named


def counted(serve: Dispatch, counts: RequestCounts) -> Dispatch:
    known, of_any, bounds, first_bound = counts.known, counts.of, BUCKETS_S, BUCKETS_S[0]

    def serve_and_count(frame: Frame, connection: ConnectionInfo) -> Answer | Coroutine[Any, Any, Answer]:
        began = perf_counter()
        try:
            served = serve(frame, connection)
        except ConnectionClosed:
            of_api = of_any(frame)
            of_api.request_bytes += len(frame)
            of_api.closed += 1
            raise
        if type(served) is not list:  # pieces that are ready; else they are waited for
            of_api = of_any(frame)
            of_api.request_bytes += len(frame)
            if isinstance(served, CoroutineType):
                return wait_and_count(of_api, began, served)
            return of_api.answered(perf_counter() - began, served)  # type: ignore[arg-type]
        # As `answered`, without a call: it is every small request. It had a header, so there are two bytes.
        seconds = perf_counter() - began
        api = None if frame[0] else known[frame[1]]
        if api is None:
            api = of_any(frame)
        api.request_bytes += len(frame)
        api.seconds += seconds
        api.buckets[0 if seconds <= first_bound else bisect_left(bounds, seconds)] += 1
        api.response_bytes += len(served[0]) if len(served) == 1 else sum(map(len, served))
        return served

    async def wait_and_count(of_api: ApiCounts, began: float, served: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            pieces = await served
        except ConnectionClosed:
            of_api.closed += 1
            raise
        return of_api.answered(perf_counter() - began, pieces)

    return serve_and_count
