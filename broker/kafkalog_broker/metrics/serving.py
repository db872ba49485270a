"""Start of the metrics of a broker. Loaded only with --metrics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from kafkalog_broker.metrics.collector import Collector
from kafkalog_broker.metrics.http_server import MetricsServer
from kafkalog_broker.metrics.request_counts import RequestCounts, counting_dispatch
from kafkalog_broker.net.dispatch import Dispatch
from kafkalog_broker.runtime.lifecycle import Lifecycle
from kafkalog_broker.runtime.traffic import Traffic
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.telemetry.client_metrics import ClientMetrics


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics that are served from the start of a broker.

    Attributes:
        collector: Collects the samples; call its `attach` once the broker is complete.
        traffic: Counts errors and bytes in the handlers.
        clients: Receives the metrics that clients push.
        address: Host and port.
    """

    collector: Collector
    traffic: Traffic
    clients: ClientMetrics
    requests: RequestCounts
    address: tuple[str, int]

    def count(self, dispatch: Dispatch) -> Dispatch:
        """Return a dispatch that counts the requests of `dispatch`."""
        return counting_dispatch(dispatch, self.requests)


async def start_metrics(
    address: tuple[str, int], lifecycle: Lifecycle, workers: Workers, listeners: Sequence[str], started: AsyncExitStack
) -> Metrics:
    """Serve metrics and the state of a broker that starts.

    Args:
        address: Host and port; port 0 takes any free one.
        lifecycle: State of the broker.
        workers: Threads.
        listeners: Names of the broker's listeners.
        started: Closes the server when it unwinds.

    Raises:
        KafkalogError: If the address cannot be bound.
    """
    traffic = Traffic()
    requests = RequestCounts()
    clients = ClientMetrics(workers)
    collector = Collector(lifecycle, listeners, requests, traffic, clients)
    server = MetricsServer(collector.collect, lifecycle.not_ready_reason)
    started.callback(server.close)
    await server.start(*address)
    return Metrics(collector, traffic, clients, requests, (address[0], server.port))
