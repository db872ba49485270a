"""Starts the metrics of a broker; loaded only with --metrics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

from kafkalog_broker.broker import Broker
from kafkalog_broker.metrics.collector import Collector
from kafkalog_broker.metrics.http_server import MetricsServer
from kafkalog_broker.metrics.request_counts import RequestCounts, counted
from kafkalog_broker.net.dispatch import Dispatch, dispatcher
from kafkalog_broker.net.listener import Network
from kafkalog_broker.runtime.traffic import Traffic
from kafkalog_broker.telemetry.client_metrics import ClientMetrics


class StartedMetrics(NamedTuple):
    """The dispatch that counts requests, and the address of the metrics server: host and port."""

    dispatch: Dispatch
    address: tuple[str, int]


async def start_metrics(
    broker: Broker, network: Callable[[], Network], address: tuple[str, int], started: AsyncExitStack
) -> StartedMetrics:
    """Start the metrics server of a broker, and count its requests, traffic and client metrics.

    Args:
        address: Host and port to listen on; port 0 is any free one.
        started: Gets the callback that closes the server.

    Raises:
        KafkalogError: If the address cannot be bound.
    """
    broker.traffic, counts = Traffic(), RequestCounts()
    broker.telemetry.receiver = clients = ClientMetrics(broker.workers)
    server = MetricsServer(Collector(broker, network, counts, broker.traffic, clients).collect, broker.not_ready)
    started.callback(server.close)
    await server.start(*address)
    dispatch = counted(dispatcher(broker, broker.apis, broker.traffic, broker.flushes), counts)
    return StartedMetrics(dispatch, (address[0], server.port))
