"""Accepting many connections at once, without free file descriptors, and while the broker stops."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.net import acceptor
from kafkalog_broker.net.acceptor import ACCEPTS_PER_ITERATION
from kafkalog_broker.net.event_loop import new_event_loop
from kafkalog_broker.net.listening_socket import bind_listener
from kafkalog_broker.net.network import Network
from kafkalog_spark.errors import KafkalogError
from tests.broker.net.helpers import fakes
from tests.broker.net.helpers.fakes import Handler, framed, listen, only_connection, settle

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": new_event_loop,
    "asyncio": asyncio.SelectorEventLoop,
}
CROWD = 20 * ACCEPTS_PER_ITERATION
Test = Callable[[Network, Listener], Coroutine[Any, Any, None]]


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Callable[[Test], None]:
    """Run a test against a network that listens; it is stopped whatever happens."""

    async def against_a_network(test: Test) -> None:
        network = fakes.network(Handler(), socket_listen_backlog_size=2 * CROWD)
        try:
            await test(network, await listen(network, "PLAINTEXT", "127.0.0.1", 0))
        finally:
            await network.stop()

    def run_in_loop(test: Test) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(against_a_network(test))

    return run_in_loop


def crowd(stack: ExitStack, listener: Listener, count: int = CROWD) -> list[socket.socket]:
    """Connect clients whose connections stay in the backlog, since the event loop does not run."""
    return [stack.enter_context(socket.create_connection((listener.host, listener.port))) for _ in range(count)]


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


async def answer(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def test_open_connections_are_served_while_many_are_accepted(run: Callable[[Test], None]) -> None:
    async def test(network: Network, listener: Listener) -> None:
        with ExitStack() as stack:
            reader, writer = await asyncio.open_connection(listener.host, listener.port)
            writer.write(framed(b"first"))
            assert await answer(reader) == b"first"
            for client in crowd(stack, listener):
                client.sendall(framed(b"crowd"))
            writer.write(framed(b"other"))
            assert await answer(reader) == b"other"
            assert len(network.quotas.open) < CROWD / 2
            handler = network.shared.dispatch
            assert isinstance(handler, Handler)
            while handler.seen.count(b"crowd") < CROWD:
                await asyncio.sleep(0)
            assert len(network.quotas.open) == CROWD + 1
            writer.close()

    run(test)


@contextmanager
def no_file_left() -> Iterator[None]:
    """Let this process open no file inside of the context."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connection_without_a_free_descriptor_stays_in_the_backlog(
    run: Callable[[Test], None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "RETRY_DELAY_S", 0.001)

    async def test(network: Network, listener: Listener) -> None:
        with socket.socket() as client:
            with no_file_left():
                client.connect((listener.host, listener.port))
                client.sendall(framed(b"late"))
                while not caplog.messages:
                    await asyncio.sleep(0)
                assert len(network.quotas.open) == 0
            reader, writer = await asyncio.open_connection(sock=client)
            assert await answer(reader) == b"late"
            writer.close()

    run(test)
    assert caplog.messages[0] == (
        "no connection can be accepted for now: Too many open files: raise the limit of open files (ulimit -n)"
    )


def test_accept_after_an_error_is_paused(
    run: Callable[[Test], None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "RETRY_DELAY_S", 3600.0)

    async def test(network: Network, listener: Listener) -> None:
        with socket.socket() as client, no_file_left():
            client.connect((listener.host, listener.port))
            while not caplog.messages:
                await asyncio.sleep(0)
            await settle()
            assert len(caplog.messages) == 1

    run(test)  # and the timer of an hour keeps nothing from stopping


def test_connections_opened_while_the_broker_stops_are_closed(run: Callable[[Test], None]) -> None:
    async def test(network: Network, listener: Listener) -> None:
        with ExitStack() as stack:
            clients = crowd(stack, listener)
            await asyncio.sleep(0)  # some of them are accepted
            await network.stop()
            assert len(network.quotas.open) == 0
            assert asyncio.all_tasks() == {asyncio.current_task()}
            for client in clients:
                assert is_closed(client)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((listener.host, listener.port))

    run(test)


def test_accepted_socket_has_tcp_nodelay_and_both_addresses(run: Callable[[Test], None]) -> None:
    async def test(network: Network, listener: Listener) -> None:
        with socket.create_connection((listener.host, listener.port)):
            while not len(network.quotas.open):
                await asyncio.sleep(0)
            connection = only_connection(network)
            assert connection._transport is not None
            accepted = connection._transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert connection.info.host == "127.0.0.1"
            assert connection.info.local_port == listener.port

    run(test)


def test_second_listener_on_a_bound_address_is_refused(run: Callable[[Test], None]) -> None:
    async def test(network: Network, listener: Listener) -> None:
        first, second = fakes.network(Handler()), fakes.network(Handler())
        bound = await bind_listener(Listener("FIRST", "127.0.0.1", 0), fakes.config())
        port = bound.listener.port
        first.add_listener(bound)
        second.add_listener(await bind_listener(Listener("SECOND", "127.0.0.1", port), fakes.config()))
        await first.serve()
        with pytest.raises(KafkalogError, match=rf"listener SECOND cannot be bound to 127.0.0.1:{port}: .*use"):
            await second.serve()
        await second.stop()
        await first.stop()

    run(test)
