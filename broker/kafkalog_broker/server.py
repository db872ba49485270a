"""Start and stop of a broker. Parts start in the order of their dependencies and stop in reverse order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalog_broker import api
from kafkalog_broker.admin.client_quotas import install_quota_handlers
from kafkalog_broker.admin.topic_creation import ensure_topic
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.listeners import with_bound_ports
from kafkalog_broker.config.state_copies import StateCopies
from kafkalog_broker.coordinator.coordinator_timer import Scheduler
from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.fetching.converting_reader import ConvertingReader
from kafkalog_broker.fetching.fetch import Fetcher
from kafkalog_broker.fetching.fetch_session import FetchSessions
from kafkalog_broker.fetching.long_poll import LongPolls
from kafkalog_broker.net.dispatch import dispatcher
from kafkalog_broker.net.late_timer import schedule
from kafkalog_broker.net.listening_socket import BoundListener, bind_listener
from kafkalog_broker.net.network import Network
from kafkalog_broker.net.open_files import raise_open_files_limit
from kafkalog_broker.protocol.served_apis import Layer, ServedApis
from kafkalog_broker.quotas.client_quotas import ClientQuotas
from kafkalog_broker.quotas.quota_entity import Quotas
from kafkalog_broker.quotas.quota_file import quota_file
from kafkalog_broker.quotas.rates import Windows
from kafkalog_broker.runtime.clock import Clock, SystemClock
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.lifecycle import BrokerState, Lifecycle
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.security.authorizer import Authorizer, guarded
from kafkalog_broker.security.new_scram_users import NewUser
from kafkalog_broker.security.tls import Tls
from kafkalog_broker.startup.background_tasks import repeat, run_until_stop
from kafkalog_broker.startup.coordinators import begin_loading, load_coordinators, make_coordinators
from kafkalog_broker.startup.credentials import Credentials, load_credentials, load_keys
from kafkalog_broker.startup.loaded_logs import load_logs
from kafkalog_broker.startup.open_transactions import settle_transactions
from kafkalog_broker.startup.periodic_tasks import PeriodicTasks
from kafkalog_broker.startup.remote_storage import open_remote, start_remote
from kafkalog_broker.storage.log_directories import open_log_dirs
from kafkalog_broker.storage.log_manager import LoadingStopped
from kafkalog_broker.telemetry.client_instances import ClientInstances
from kafkalog_spark.errors import KafkalogError

if TYPE_CHECKING:
    from kafkalog_broker.metrics.serving import Metrics  # loaded only with metrics
    from kafkalog_broker.mirror.served_mirror import ServedMirror  # with aiokafka, which only a mirror needs

TICK_S = 1.0  # interval of PeriodicTasks.run_due; each part checks whether its own interval has passed

CERTIFICATES_S = 5.0  # interval at which certificate files are checked for changes

_logger = logging.getLogger(__name__)


class StartStopped(KafkalogError):
    """A start ended because a stop was requested."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a start besides the configuration.

    Attributes:
        new_users: SCRAM users to create; an existing user keeps its password.
        metrics: Host and port at which metrics are served, or None.
        mirror: Mirror of another cluster's topics to run, or None.
        progress: Called with the progress of loading logs.
        clock: Time of all parts.
        scheduler: Runs timers of groups and share groups.
        stop_requested: Set to stop a start that is not complete; None if only the caller can stop it.
    """

    new_users: Sequence[NewUser] = ()
    metrics: tuple[str, int] | None = None
    mirror: ServedMirror | None = None
    progress: Callable[[Any], None] | None = None
    clock: Clock = field(default_factory=SystemClock)
    scheduler: Scheduler = schedule
    stop_requested: asyncio.Event | None = None


@dataclass(eq=False, repr=False)
class Server:
    """A broker that serves clients, made by `Server.start`. One per process and log directory.

    Attributes:
        broker: Its parts.
        network: Its listeners and connections.
        periodic: Its periodic work.
        metrics_address: Host and port of the metrics, or None.
    """

    broker: Broker
    network: Network
    periodic: PeriodicTasks
    metrics_address: tuple[str, int] | None
    _started: AsyncExitStack = field(init=False)  # stops everything when it unwinds

    @staticmethod
    async def start(config: BrokerConfig, options: Options | None = None) -> Server:
        """Bind the listeners, lock and load the log directories, and serve.

        After an error no task, port or lock is left, and log directories that were closed cleanly keep their marker.

        Raises:
            StartStopped: If `options.stop_requested` was set before clients were served.
            KafkalogError: If the broker cannot start.
        """
        api.load_all()
        options = options or Options()
        async with AsyncExitStack() as started:
            server = await _start(config, options, started)
            server._started = started.pop_all()
            return server

    async def stop(self) -> None:
        """Stop everything in reverse order. Directories that could not be closed cleanly are in `logs.to_recover`."""
        await self._started.aclose()


async def _start(static_config: BrokerConfig, options: Options, started: AsyncExitStack) -> Server:
    """Start all parts. Each pushes its own stop onto `started`, so a failed start and a stop run the same code."""
    clock, mirror = options.clock, options.mirror
    is_mirror = mirror is not None
    lifecycle = Lifecycle()
    workers = Workers()
    started.callback(workers.shutdown)
    started.callback(lifecycle.enter, BrokerState.NOT_RUNNING)
    metrics = None
    if options.metrics is not None:
        metrics = await _start_metrics(options.metrics, static_config, lifecycle, workers, started)
    open_files = raise_open_files_limit()
    bound = await _bind(static_config, started)  # early, because a port in use is the most common failure
    dirs = open_log_dirs(static_config.log_dirs, static_config.node_id, clock.now_ms())
    started.callback(dirs.close)
    directories = [log_dir.path for log_dir in dirs.online]

    lifecycle.enter(BrokerState.RECOVERY)
    try:
        loaded = await load_logs(
            static_config, dirs, clock, workers, lifecycle, started,
            mirror=mirror, progress=options.progress, stop_requested=options.stop_requested,
        )  # fmt: skip
    except LoadingStopped as error:
        raise StartStopped(error.what) from None
    _check_stop_requested(options)
    config = loaded.current_config.get()
    remote = None
    if config.remote_log_storage_system_enable:
        remote = await open_remote(loaded, dirs, clock, workers, started, is_mirror=is_mirror)
    authorizer = None if config.authorizer is None else Authorizer(config.authorizer)
    credentials = await load_credentials(config, directories, authorizer, options.new_users, clock, workers)
    quotas, quota_copies = await _load_quotas(static_config, directories, clock, workers)
    await load_keys(credentials, workers, started)
    tls = Tls()
    tls.use(await workers.run_blocking(tls.prepare, config.listener_security))
    flushes = LogFlushes(workers.begin_blocking)
    coordinators = make_coordinators(loaded, clock, options.scheduler, workers, flushes, started, is_mirror=is_mirror)
    telemetry = ClientInstances(clock.now_ms, static_config.telemetry_max_bytes, loaded.dynamic_configs.client_metrics)
    if metrics is not None:
        telemetry.receiver = metrics.clients
    broker = Broker(
        current_config=loaded.current_config,
        clock=clock,
        lifecycle=lifecycle,
        cluster_id=dirs.cluster_id,
        advertised=with_bound_ports(
            static_config.advertised_listeners, {opened.listener.name: opened.listener.port for opened in bound}
        ),
        mirror_source=None if mirror is None else mirror.source,
        workers=workers,
        apis=ServedApis(),
        authorizer=authorizer,
        scram_users=credentials.scram_users,
        tls=tls,
        quotas=quotas,
        quota_file=quota_copies,
        traffic=None if metrics is None else metrics.traffic,
        telemetry=telemetry,
        dynamic_configs=loaded.dynamic_configs,
        topics=loaded.topics,
        logs=loaded.logs,
        partitions=loaded.partitions,
        producer_ids=loaded.producer_ids,
        flushes=flushes,
        remote=None if remote is None else remote.manager,
        fetcher=Fetcher(
            FetchSessions(static_config.max_incremental_fetch_session_cache_slots),
            LongPolls(),
            ConvertingReader(workers),
            clock,
        ),
        groups=coordinators.groups,
        transactions=coordinators.transactions,
        transaction_ends=coordinators.transaction_ends,
        write_marker=coordinators.write_marker,
        share_coordinator=coordinators.share_coordinator,
        share_partitions=coordinators.share_partitions,
        create_missing_topic=ensure_topic,
    )
    broker.apis.set_layer(Layer.ACCESS, None if authorizer is None else partial(guarded, authorizer))
    install_quota_handlers(broker)
    run_until_stop(started, coordinators.share_initializer.run(broker))

    if remote is not None:
        await start_remote(remote, broker, started)
    if not is_mirror and not all(log_dir.was_clean for log_dir in dirs.online):
        await settle_transactions(loaded, coordinators.transactions, clock, workers)
    loaded.logs.is_settled = True
    begin_loading(coordinators, is_mirror=is_mirror)

    network = _make_network(broker, static_config, bound, credentials, open_files, metrics)
    started.callback(
        _logger.info, "longest times for which requests held the event loop: %s", network.shared.loop_watch
    )
    started.push_async_callback(network.stop)
    if remote is not None:
        started.callback(remote.manager.begin_stop)
    _check_stop_requested(options)
    loaded.logs.serve(workers.run_in_background)
    await network.serve()
    # Registered after network.stop, so that it runs before it: the network waits for pending joins until its grace time
    # ends.
    started.callback(broker.groups.shutdown)
    run_until_stop(started, load_coordinators(coordinators, workers, lifecycle, is_mirror=is_mirror))
    loaded.logs.cleaner.start()
    if mirror is not None:
        run_until_stop(started, _mirror_topics(mirror, broker))
    periodic = PeriodicTasks(broker, network.shared.loop_watch)
    run_until_stop(started, repeat("a periodic task", TICK_S, periodic.run_due))
    if any(security.tls is not None for security in config.listener_security.values()):
        reload = repeat("reading certificates", CERTIFICATES_S, periodic.reload_certificates)
        run_until_stop(started, reload)
    if metrics is not None:
        metrics.collector.attach(broker, network)
    lifecycle.enter(BrokerState.RUNNING)
    started.callback(lifecycle.enter, BrokerState.SHUTTING_DOWN)
    return Server(broker, network, periodic, None if metrics is None else metrics.address)


def _check_stop_requested(options: Options) -> None:
    """Raise StartStopped if a stop has been requested. Called between steps, because threads cannot be interrupted."""
    if options.stop_requested is not None and options.stop_requested.is_set():
        raise StartStopped("a stop was requested during the start")


async def _start_metrics(
    address: tuple[str, int], config: BrokerConfig, lifecycle: Lifecycle, workers: Workers, started: AsyncExitStack
) -> Metrics:
    """Start the metrics server, before all other parts, so that it reports the progress of the start."""
    from kafkalog_broker.metrics.serving import start_metrics

    names = [listener.name for listener in config.listeners]
    return await start_metrics(address, lifecycle, workers, names, started)


async def _bind(config: BrokerConfig, started: AsyncExitStack) -> list[BoundListener]:
    bound = []
    for listener in config.listeners:
        opened = await bind_listener(listener, config)
        started.callback(opened.close)
        bound.append(opened)
    return bound


async def _load_quotas(
    config: BrokerConfig, directories: Sequence[Path], clock: Clock, workers: Workers
) -> tuple[ClientQuotas, StateCopies[Quotas]]:
    file = quota_file(directories)
    quotas = ClientQuotas(
        Windows(config.quota_window_num, config.quota_window_size_seconds * 1000),
        Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000),
        clock.monotonic_ms,
    )
    loaded: Quotas | None = await workers.run_blocking(file.load)
    quotas.replace_all(loaded or {})
    return quotas, file


def _make_network(
    broker: Broker,
    static_config: BrokerConfig,
    bound: Sequence[BoundListener],
    credentials: Credentials,
    open_files: int,
    metrics: Metrics | None,
) -> Network:
    """Make the network over the bound listeners, which serves the requests of clients with the broker's handlers."""
    dispatch = dispatcher(broker, broker.apis, broker.traffic, broker.flushes)
    if metrics is not None:
        dispatch = metrics.count(dispatch)
    network = Network(dispatch, static_config, open_files, broker.quotas.record_connection)
    for opened in bound:
        name = opened.listener.name
        security = static_config.listener_security[name]
        tls = None if security.tls is None else partial(broker.tls.for_listener, name)
        new_gate = None if security.sasl is None else credentials.new_gate(name, broker.current_config)
        network.add_listener(opened, tls, new_gate)
    network.update_config(broker.config)
    broker.current_config.subscribe(network.update_config)
    return network


async def _mirror_topics(mirror: ServedMirror, broker: Broker) -> None:
    async def delete_offsets(topic: str) -> None:
        time_slice = TimeSlice()
        async for _ in time_slice.spread(broker.groups.on_topics_deleted({topic})):
            pass

    await mirror.run(broker.logs, broker.topics, broker.workers, broker.clock, delete_offsets, broker.lifecycle.fail)
