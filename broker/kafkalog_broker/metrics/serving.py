"""The metrics of one broker: its requests counted, and the page served. Loaded only where metrics are asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from kafkalog_broker.broker import Broker
from kafkalog_broker.metrics.client_metrics import ClientMetrics
from kafkalog_broker.metrics.collector import Collector
from kafkalog_broker.metrics.http_server import HttpServer
from kafkalog_broker.metrics.request_counts import RequestCounts, counted, noting_errors
from kafkalog_broker.net.dispatch import Dispatch, dispatcher
from kafkalog_broker.net.listener import Network
from kafkalog_broker.served_apis import Layer
from kafkalog_broker.traffic import Traffic


async def serve_metrics(
    broker: Broker,
    network: Callable[[], Network],
    at: tuple[str, int],
    not_ready: Callable[[], str | None],
    is_started: Callable[[], bool],
    started: AsyncExitStack,
) -> tuple[Dispatch, tuple[str, int]]:
    """What serves requests and counts them, and where the page is. at: host and port, which may be 0. started: gets the
    page's end. Raises OSError when the port is taken."""
    broker.traffic, counts = Traffic(), RequestCounts()
    broker.telemetry.receiver = clients = ClientMetrics(broker.workers)
    collector = Collector(broker, network, counts, broker.traffic, clients, not_ready, is_started)
    http = HttpServer(collector.text, not_ready)
    started.push_async_callback(http.stop)
    host, port = at
    address = host, await http.start(host, port)
    broker.apis.wrap(Layer.METRICS, partial(noting_errors, broker.traffic))
    return counted(dispatcher(broker, broker.apis), counts), address
