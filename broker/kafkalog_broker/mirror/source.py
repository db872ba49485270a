"""The cluster that is mirrored: its metadata, and its nodes. aiokafka opens connections, with TLS and SASL; frames are
sent and read here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiokafka.conn import AIOKafkaConnection, ScramAuthenticator

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.mirror.response_frames import MAX_RESPONSE, ResponseFrames
from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.client_messages import read_response, request_body
from kafkalog_broker.protocol.headers import request_header, without_header
from kafkalog_broker.protocol.mirror_messages import (
    ALL_TOPICS,
    FETCH,
    METADATA,
    VERSIONS,
    FetchAnswer,
    FetchCall,
    SourceCluster,
    cluster_of,
    decode_fetch,
    encode_fetch,
)
from kafkalog_broker.security.sasl import MIN_ITERATIONS
from kafkalog_spark.errors import KafkalogError, OptionError, printable

_log = logging.getLogger(__name__)
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what fails there is said here, and what is done about it

T = TypeVar("T")

_FAREWELL_S = 1.0
_MAX_ANSWER = 64 << 20  # bytes of an answer but to Fetch: Metadata of a million partitions
_READ_AT_ONCE = 64 << 10  # bytes of an answer that is read in the event loop: some 3 ms
_MAX_ITERATIONS = 1_000_000
"""Most iterations of SCRAM, as in librdkafka: a second of one processor. Kafka before KRaft had no limit of its own."""


class SourceUnreachable(KafkalogError):
    """A node of the source cannot be reached, ends a connection, or answers what is no answer."""


class _Scram(ScramAuthenticator):  # type: ignore[misc]
    def create_salted_password(self, salt: bytes, iterations: int) -> None:
        if not MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:  # few of them make the password easy to guess
            raise ValueError(f"{iterations} iterations of SCRAM, expected {MIN_ITERATIONS} to {_MAX_ITERATIONS}")
        super().create_salted_password(salt, iterations)


class _Connection(AIOKafkaConnection):  # type: ignore[misc]
    def authenticator_scram(self) -> _Scram:
        return _Scram(
            loop=self._loop,
            sasl_plain_password=self._sasl_plain_password,
            sasl_plain_username=self._sasl_plain_username,
            sasl_mechanism=self._sasl_mechanism,
        )


class SourceConnection:
    """Open it with `open`. Several requests may be under way; they are answered in order."""

    def __init__(
        self, connection: AIOKafkaConnection, address: str, settings: ClientSettings, most: Mapping[int, int]
    ) -> None:
        self.address = address
        self._connection = connection
        self._most = most
        self._timeout_s = settings.timeout_ms / 1000
        self._client_id = settings.client_id
        self._correlation_id = 0
        # aiokafka has opened it and logged in. From here on it would copy each response several times.
        connection._read_task.cancel()
        self._transport: asyncio.Transport = connection._writer.transport
        self._frames = ResponseFrames(connection._protocol, self._transport)

    @classmethod
    async def open(
        cls, host: str, port: int, settings: ClientSettings, *, most: Mapping[int, int] | None = None
    ) -> SourceConnection:
        """most: the highest version of APIs that is to be used, for tests. Raises SourceUnreachable."""
        options: dict[str, Any] = {}
        if settings.security_protocol.startswith("sasl"):
            options = {
                "sasl_mechanism": settings.sasl_mechanism,
                "sasl_plain_username": settings.sasl_username,
                "sasl_plain_password": settings.sasl_password,
                "sasl_kerberos_service_name": settings.sasl_kerberos_service_name,
            }
        address = printable(f"{host:.255}:{port}")
        try:
            connection = _Connection(
                host, port, client_id=settings.client_id, request_timeout_ms=settings.timeout_ms,
                ssl_context=settings.tls_context(), security_protocol=settings.security_protocol.upper(), **options,
            )  # fmt: skip
            await connection.connect()
            return cls(connection, address, settings, most or {})
        except Exception as error:
            raise _unreachable(address, error) from error

    def version(self, api_key: int) -> int | None:
        """The highest version that both sides speak; None when there is none."""
        lowest, highest = VERSIONS[api_key]
        served = self._connection._versions.get(api_key)
        if served is None:
            return None
        highest = min(highest, served[1], self._most.get(api_key, highest))
        return highest if highest >= max(lowest, served[0]) else None

    def required_version(self, api_key: int) -> int:
        """As `version`. Raises SourceUnreachable where there is none."""
        version = self.version(api_key)
        if version is None:
            self.close()
            raise SourceUnreachable(
                f"{self.address} serves no version of {api_name(api_key)} that a mirror speaks",
                hint="the source must be Kafka 0.11 or newer",
            )
        return version

    async def call(self, api_key: int, read: Callable[[Any], T], **fields: Any) -> T:
        """Result of `read`, which is given the response to a request with these fields. Raises SourceUnreachable."""
        version = self.required_version(api_key)
        answer = await self._send(api_key, version, request_body(api_key, version, **fields), most=_MAX_ANSWER)
        with self._understood():
            if len(answer) <= _READ_AT_ONCE:
                return read(read_response(api_key, version, answer))
            return await asyncio.to_thread(lambda: read(read_response(api_key, version, answer)))

    async def fetch(self, call: FetchCall, version: int, most: int) -> FetchAnswer:
        """most: partitions that may be answered. Raises SourceUnreachable."""
        answer = await self._send(FETCH, version, encode_fetch(call, version), most=MAX_RESPONSE)
        with self._understood():
            return decode_fetch(answer, version, most)

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except MalformedRequest as error:
            self.close()
            raise SourceUnreachable(f"{self.address}: {error}") from None

    def done_with(self, answer: FetchAnswer) -> None:
        """Nobody looks at the records of this answer any more: their memory may be used again."""
        if answer.partitions:
            self._frames.give_back(answer.partitions[0].records)

    async def _send(self, api_key: int, version: int, body: bytes, *, most: int) -> memoryview:
        """The response without its header."""
        self._correlation_id = correlation_id = (self._correlation_id + 1) % 2**31
        head = request_header(api_key, version, correlation_id, self._client_id)
        try:
            expected = self._frames.expect(most)
            try:
                self._transport.write((len(head) + len(body)).to_bytes(4, "big") + head + body)
            except BaseException:
                expected.cancel()  # no response comes, and asyncio would log the exception of its future
                raise
            async with asyncio.timeout(self._timeout_s):
                answer = await expected
        except (OSError, TimeoutError, RuntimeError) as error:  # RuntimeError: of a transport that is closed
            self.close()
            raise _unreachable(self.address, error) from error
        if int.from_bytes(answer[:4], "big", signed=True) != correlation_id:
            self.close()
            raise _unreachable(self.address, ValueError("a response to another request came"))
        with self._understood():
            return without_header(answer, api_key, version)

    def close(self) -> None:
        """At once, and not awaited: requests under way fail."""
        self._connection.close()

    async def aclose(self) -> None:
        """Return when it is closed; TLS says farewell, and is not waited for longer than a moment."""
        writer = self._connection._writer
        closed = self._connection.close()
        done, _ = await asyncio.wait([closed], timeout=_FAREWELL_S)
        if not done and writer is not None:
            writer.transport.abort()
            await asyncio.sleep(0)


def _unreachable(address: str, error: BaseException) -> SourceUnreachable:
    return SourceUnreachable(f"{address}: {type(error).__name__}: {error}")


_DEFAULT_PORT = 9092
Address = tuple[str, int]


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port,host:port`; also `[::1]:9092`. Raises OptionError."""
    addresses: list[Address] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator or (":" in host and not host.startswith("[")) or port.endswith("]"):
            host, port = part, str(_DEFAULT_PORT)
        if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
            raise OptionError(f"--bootstrap {part!r}: expected HOST:PORT")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise OptionError("--bootstrap is empty: expected HOST:PORT, several with commas between them")
    return addresses


@dataclass(eq=False)
class Source:
    """Its metadata come from any node that answers: the last one, one of `bootstrap`, one that is known."""

    _bootstrap: Sequence[Address]
    _settings: ClientSettings
    _most: Mapping[int, int] | None = None
    _nodes: Mapping[int, Address] = field(init=False, default_factory=dict)
    _connection: SourceConnection | None = field(init=False, default=None)

    async def metadata(self) -> SourceCluster:
        """Raises SourceUnreachable when no node answers."""
        errors: list[str] = []
        if self._connection is not None:
            with contextlib.suppress(SourceUnreachable):
                return await self._ask(self._connection)
        # Who was named by the source comes last: there may be thousands, and nobody there.
        for host, port in dict.fromkeys([*self._bootstrap, *self._nodes.values()]):
            try:
                return await self._ask(await self.connect((host, port)))
            except SourceUnreachable as error:
                errors.append(str(error))
        raise SourceUnreachable("no node of the source answers: " + "; ".join(errors))

    async def _ask(self, connection: SourceConnection) -> SourceCluster:
        self._connection = connection
        try:
            cluster = await connection.call(METADATA, cluster_of, **ALL_TOPICS)
        except SourceUnreachable:
            connection.close()
            raise
        self._nodes = cluster.nodes
        return cluster

    async def connect(self, address: Address) -> SourceConnection:
        """Raises SourceUnreachable."""
        return await SourceConnection.open(*address, self._settings, most=self._most)

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()
