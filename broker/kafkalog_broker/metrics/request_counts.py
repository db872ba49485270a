"""Counts, latencies and sizes of requests by API. Only the event loop changes the counters."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Coroutine, Mapping
from time import perf_counter
from types import CoroutineType
from typing import Any

from kafkalog_broker.metrics.metric_table import BUCKETS_S
from kafkalog_broker.net.dispatch import ConnectionClosed, Dispatch, Frame, MaybeAwaitable, ResponsePieces
from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.api_registry import registry
from kafkalog_broker.protocol.connection_info import ConnectionInfo

_MAX_KEYS = 256  # Kafka's API keys are below 100


class ApiCounts:
    """Counters of one API.

    Attributes:
        buckets: Number of responses by latency bucket of BUCKETS_S, not cumulative.
        latency_sum_s: Sum of the latencies.
        request_bytes, response_bytes: Sums of the sizes.
        closed: Requests whose connection was closed instead of a response.
    """

    __slots__ = ("buckets", "closed", "latency_sum_s", "request_bytes", "response_bytes")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.latency_sum_s = 0.0
        self.request_bytes = self.response_bytes = self.closed = 0

    def count_response(self, seconds: float, pieces: ResponsePieces) -> None:
        """Count a response. `pieces` is None if none is sent (Produce with acks=0)."""
        self.latency_sum_s += seconds
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        if pieces is not None:
            self.response_bytes += len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))


class RequestCounts:
    """Counters by API. All unknown API keys, which clients can choose freely, share one counter."""

    def __init__(self) -> None:
        self.known: list[ApiCounts | None] = [None] * _MAX_KEYS
        """Counters by API key; None until its first request. A frame begins with the key in two bytes, of which the
        first is 0."""
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

    def serve_and_count(frame: Frame, connection: ConnectionInfo) -> MaybeAwaitable:
        began = perf_counter()
        try:
            result = serve(frame, connection)
        except ConnectionClosed:
            api = counts_of(frame)
            api.request_bytes += len(frame)
            api.closed += 1
            raise
        if type(result) is not list:  # a list is a response that is ready
            api = counts_of(frame)
            api.request_bytes += len(frame)
            if isinstance(result, CoroutineType):
                return wait_and_count(api, began, result)
            api.count_response(perf_counter() - began, result)  # type: ignore[arg-type]
            return result
        # `count_response` inlined, because every small request comes here. A frame that was served has a header, so
        # frame[1] exists.
        seconds = perf_counter() - began
        known_api = None if frame[0] else known[frame[1]]
        api = counts_of(frame) if known_api is None else known_api
        api.request_bytes += len(frame)
        api.latency_sum_s += seconds
        api.buckets[0 if seconds <= first_bound else bisect_left(bounds, seconds)] += 1
        api.response_bytes += len(result[0]) if len(result) == 1 else sum(map(len, result))
        return result

    async def wait_and_count(
        api: ApiCounts, began: float, result: Coroutine[Any, Any, ResponsePieces]
    ) -> ResponsePieces:
        try:
            pieces = await result
        except ConnectionClosed:
            api.closed += 1
            raise
        api.count_response(perf_counter() - began, pieces)
        return pieces

    return serve_and_count
