"""How attacks are sent: one request, one held open, many pipelined, many clients at once.

Plain sockets, no client library.

Each way ends when the broker has answered or closed, or after LIMIT seconds, and closes what it opened.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.attacks import requests

LIMIT = 20.0
"""Seconds that an attacker waits for an answer. What takes longer is said to take longer than this."""
HOLD = 2.0
"""Seconds for which connections that ask for nothing more stay open, so that their memory is seen."""


@dataclass(frozen=True)
class Target:
    """A broker under attack. metrics_port: of its metrics page. Apache Kafka has neither that nor `log_dir` here."""

    host: str
    port: int
    metrics_port: int = 0
    log_dir: Path | None = None

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        """Open a connection whose reads and writes raise TimeoutError after LIMIT seconds."""
        with socket.create_connection((self.host, self.port), LIMIT) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection


def read_answer(connection: socket.socket) -> bytes:
    """Read one response, including its size prefix."""
    head = connection.recv(4, socket.MSG_WAITALL)
    return head + connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)


def receive(connection: socket.socket) -> int:
    """Read one response and throw it away; its size with the 4 bytes in front, 0 when the broker closed instead."""
    head = b""
    while len(head) < 4:
        more = connection.recv(4 - len(head))
        if not more:
            return 0
        head += more
    left = size = struct.unpack(">i", head)[0]
    buffer = memoryview(bytearray(1 << 20))
    while left:
        count = connection.recv_into(buffer[: min(left, len(buffer))])
        if not count:
            return 0
        left -= count
    return int(size) + 4


def ask(target: Target, frame: bytes) -> int:
    """Send one request; the size of the answer, 0 when the broker closed the connection instead of answering."""
    with target.connection() as connection:
        return exchange(connection, frame)


def exchange(connection: socket.socket, frame: bytes) -> int:
    """As `ask`, over a connection that stays open."""
    try:
        connection.sendall(frame)
        return receive(connection)
    except ConnectionError:
        return 0


def crowd(target: Target, frame: bytes, clients: int) -> None:
    """Send the same request from `clients` clients at once."""
    together(clients, lambda: ask(target, frame))


def together(count: int, work: Callable[[], object]) -> None:
    """Run `work` in so many threads and wait for all; a TimeoutError of one of them is raised here."""
    late: list[TimeoutError] = []

    def one() -> None:
        try:
            work()
        except TimeoutError as error:
            late.append(error)
        except ConnectionError:
            pass  # refused: the answer to an attack

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if late:
        raise late[0]


def each_at_once(target: Target, frames: Sequence[bytes]) -> None:
    """Send each request from a client of its own, all at once, and read the answers."""
    frames_left = iter(frames)
    together(len(frames), lambda: ask(target, next(frames_left)))


def unread(target: Target, frame: bytes | Sequence[bytes], clients: int, seconds: float = HOLD) -> None:
    """So many clients send `frame`, or each its own of a sequence, and read nothing of the answer. They leave when
    every answer has begun to arrive and `seconds` more have passed."""
    frames = [frame] * clients if isinstance(frame, bytes) else frame
    with ExitStack() as stack:
        held = [stack.enter_context(target.connection()) for _ in range(clients)]
        for connection, request in zip(held, frames, strict=True):
            connection.sendall(request)
        end = time.monotonic() + LIMIT
        for connection in held:
            connection.settimeout(max(0.1, end - time.monotonic()))
            with suppress(ConnectionError):
                connection.recv(1, socket.MSG_PEEK)
        time.sleep(seconds)


def pipeline(target: Target, frame: bytes, times: int, last: bytes | None = None) -> None:
    """The same request `times` times on one connection, without waiting, while a thread reads what comes.

    `last`: a request with an answer, for those that have none (Produce with acks=0); only its answer is waited for.
    """
    with target.connection() as connection:
        block, rest = frame * min(times, 1_000), times
        sent = threading.Event()

        def send() -> None:
            left = rest
            with suppress(OSError):
                while left > 0:
                    connection.sendall(block[: len(frame) * left])
                    left -= 1_000
                if last is not None:
                    connection.sendall(last)
            sent.set()

        sender = threading.Thread(target=send)
        sender.start()
        try:
            end = time.monotonic() + LIMIT
            for _ in range(1 if last is not None else times):
                if not receive(connection):
                    break
                if time.monotonic() > end:
                    raise TimeoutError
        finally:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            sender.join()


def flood(target: Target, first: bytes, rest: bytes, seconds: float = 3.0) -> int:
    """Send a request and then `rest` until all is sent, the broker closes, or it has read nothing for `seconds`; then
    stay for HOLD seconds. The bytes that were sent of `rest`."""
    sent = 0
    with target.connection() as connection:
        connection.sendall(first)
        connection.settimeout(seconds)
        view = memoryview(rest)
        with suppress(TimeoutError, ConnectionError):
            while sent < len(rest):
                sent += connection.send(view[sent : sent + (1 << 18)])
        time.sleep(HOLD)
    return sent


def held(target: Target, data: bytes, clients: int) -> None:
    """So many clients send a part of a frame, as much as the broker takes, and hold the connection for HOLD seconds."""

    def one() -> None:
        flood(target, b"", data)

    together(clients, one)


def polls_and_produces(target: Target, poll: bytes, polls: int, produce: bytes, produces: int) -> None:
    """So many connections with a long poll each; then one that produces so many times, waiting for each answer."""
    with ExitStack() as stack:
        for _ in range(polls):
            stack.enter_context(target.connection()).sendall(poll)
        producer = stack.enter_context(target.connection())
        for _ in range(produces):
            if not exchange(producer, produce):
                raise ConnectionError("the broker closed a producer's connection")


def one_by_one(target: Target, frames: Sequence[bytes]) -> None:
    """Send requests on one connection, each after the response to the previous one."""
    with target.connection() as connection:
        for frame in frames:
            if not exchange(connection, frame):
                raise ConnectionError("the broker closed the connection instead of answering")


def pushes(target: Target, metrics: bytes, clients: int) -> None:
    """So many clients request a telemetry subscription, then push these metrics, all at once."""

    def one() -> None:
        with target.connection() as connection:
            connection.sendall(requests.get_telemetry_subscriptions())
            answer = read_answer(connection)
            exchange(connection, requests.push_telemetry(*requests.instance_and_subscription(answer), metrics))

    together(clients, one)


def page_peers(target: Target, head: bytes, clients: int, seconds: float) -> None:
    """So many connections to the metrics page: each sends `head`, then a byte a second, but no complete request."""
    page = replace(target, port=target.metrics_port)

    def one() -> None:
        with page.connection() as connection, suppress(ConnectionError):
            connection.sendall(head)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                connection.sendall(b"x")
                time.sleep(1)

    together(clients, one)


def page_is_served(target: Target) -> None:
    """Request /healthz. Raises TimeoutError, ConnectionError."""
    with replace(target, port=target.metrics_port).connection() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        if not connection.recv(1 << 10).startswith(b"HTTP/1.1 200"):
            raise ConnectionError("/healthz is not answered")


def probed(target: Target, head: bytes, clients: int, seconds: float = HOLD) -> None:
    """Run `page_peers`, and request /healthz four times a second meanwhile."""
    peers = threading.Thread(target=page_peers, args=(target, head, clients, seconds))
    peers.start()
    try:
        while peers.is_alive():
            page_is_served(target)
            time.sleep(0.25)
    finally:
        peers.join()
