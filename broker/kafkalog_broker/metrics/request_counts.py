"""Counts, latencies and sizes of requests by API. Only the event loop changes the counters."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Coroutine, Mapping
from time import perf_counter
from types import CoroutineType
from typing import Any

from kafkalog_broker.metrics.metric_table import BUCKETS_S
from kafkalog_broker.net.dispatch import ConnectionClosed, Dispatch, Frame, MaybeAwaited, ResponsePieces
from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.api_registry import registry
from kafkalog_broker.protocol.connection_info import ConnectionInfo

_MAX_KEYS = 256  # Kafka's API keys are below 100


class ApiCounts:
    """Counters of one API.

    Attributes:
        buckets: Number of responses by latency bucket of BUCKETS_S, not cumulative.
        seconds: Sum of the latencies.
        request_bytes, response_bytes: Sums of the sizes.
        closed: Requests whose connection was closed instead of a response.
    """

    __slots__ = ("buckets", "closed", "request_bytes", "response_bytes", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0
        self.request_bytes = self.response_bytes = self.closed = 0

    def count_response(self, seconds: float, pieces: ResponsePieces) -> None:
        """Count a response of these pieces; None if there is no response (Produce with acks=0)."""
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        if pieces is not None:
            self.response_bytes += len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))


class RequestCounts:
    """Counters by API. All unknown API keys, which clients can choose freely, share one counter."""

    def __init__(self) -> None:
        self.known: list[ApiCounts | None] = [None] * _MAX_KEYS
        """Counters of the APIs that were requested, by API key: the second byte of a frame, whose first byte is 0."""
        self._unknown = ApiCounts()

    def of(self, frame: Frame) -> ApiCounts:
        """Return the counters for a request."""
        key = int.from_bytes(frame[:2], "big") if len(frame) > 1 else _MAX_KEYS
        if key >= _MAX_KEYS or key not in registry():
            return self._unknown
        counts = self.known[key]
        if counts is None:
            counts = self.known[key] = ApiCounts()
        return counts

    @property
    def by_api(self) -> Mapping[str, ApiCounts]:
        """Counters of the APIs that were requested, by name."""
        named = {api_name(key): counts for key, counts in enumerate(self.known) if counts is not None}
        return {**named, "unknown": self._unknown} if self._unknown.request_bytes else named


def counting_dispatch(serve: Dispatch, counts: RequestCounts) -> Dispatch:
    """Return a Dispatch that calls `serve` and counts every request and response in `counts`."""
    known = counts.known
    counts_of = counts.of
    bounds = BUCKETS_S
    first_bound = BUCKETS_S[0]

    def serve_and_count(frame: Frame, connection: ConnectionInfo) -> MaybeAwaited:
        began = perf_counter()
        try:
            served = serve(frame, connection)
        except ConnectionClosed:
            api = counts_of(frame)
            api.request_bytes += len(frame)
            api.closed += 1
            raise
        if type(served) is not list:  # a list is a response that is ready
            api = counts_of(frame)
            api.request_bytes += len(frame)
            if isinstance(served, CoroutineType):
                return wait_and_count(api, began, served)
            api.count_response(perf_counter() - began, served)  # type: ignore[arg-type]
            return served
        # `count_response` inlined, because every small request comes here. It has a header, so at least two bytes.
        seconds = perf_counter() - began
        known_api = None if frame[0] else known[frame[1]]
        api = counts_of(frame) if known_api is None else known_api
        api.request_bytes += len(frame)
        api.seconds += seconds
        api.buckets[0 if seconds <= first_bound else bisect_left(bounds, seconds)] += 1
        api.response_bytes += len(served[0]) if len(served) == 1 else sum(map(len, served))
        return served

    async def wait_and_count(
        api: ApiCounts, began: float, served: Coroutine[Any, Any, ResponsePieces]
    ) -> ResponsePieces:
        try:
            pieces = await served
        except ConnectionClosed:
            api.closed += 1
            raise
        api.count_response(perf_counter() - began, pieces)
        return pieces

    return serve_and_count
