"""Connections to the mirrored cluster.

aiokafka opens them, with TLS and SASL; frames are sent and read here.
"""

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
    SourceCluster,
    SourceFetchRequest,
    SourceFetchResponse,
    cluster_of,
    decode_fetch,
    encode_fetch,
)
from kafkalog_broker.security.scram import MIN_ITERATIONS
from kafkalog_spark.errors import KafkalogError, OptionError, printable

_log = logging.getLogger(__name__)
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # this module logs its errors, with their consequences

T = TypeVar("T")

_CLOSE_TIMEOUT_S = 1.0
_MAX_ANSWER = 64 << 20  # largest response in bytes, except of Fetch: Metadata of a million partitions
_READ_AT_ONCE = 64 << 10  # largest response in bytes that is decoded on the event loop
_MAX_ITERATIONS = 1_000_000
"""Largest number of SCRAM iterations, as in librdkafka. Kafka before KRaft had no limit of its own."""


class SourceUnreachable(KafkalogError):
    """A node of the source cannot be reached, ends a connection, or sends an invalid response."""


class _Scram(ScramAuthenticator):  # type: ignore[misc]
    def create_salted_password(self, salt: bytes, iterations: int) -> None:
        if not MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:  # too few make the password easy to guess
            raise ValueError(f"SCRAM uses {iterations} iterations, expected {MIN_ITERATIONS} to {_MAX_ITERATIONS}")
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
    """Connection to a node. Create it with `open`. Requests may be pipelined; responses come in order."""

    def __init__(
        self, connection: AIOKafkaConnection, address: str, settings: ClientSettings, most: Mapping[int, int]
    ) -> None:
        self.address = address
        self._connection = connection
        self._most = most
        self._timeout_s = settings.timeout_ms / 1000
        self._client_id = settings.client_id
        self._correlation_id = 0
        # aiokafka has connected and authenticated. Its own reading would copy each response several times.
        connection._read_task.cancel()
        self._transport: asyncio.Transport = connection._writer.transport
        self._frames = ResponseFrames(connection._protocol, self._transport)

    @classmethod
    async def open(
        cls, host: str, port: int, settings: ClientSettings, *, most: Mapping[int, int] | None = None
    ) -> SourceConnection:
        """Connect and authenticate. Raises SourceUnreachable.

        Args:
            most: Highest versions of APIs to use, for tests.
        """
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
        """Return the highest version of an API that both sides support; None if there is none."""
        lowest, highest = VERSIONS[api_key]
        served = self._connection._versions.get(api_key)
        if served is None:
            return None
        highest = min(highest, served[1], self._most.get(api_key, highest))
        return highest if highest >= max(lowest, served[0]) else None

    def required_version(self, api_key: int) -> int:
        """As `version`, but raises SourceUnreachable if there is none."""
        version = self.version(api_key)
        if version is None:
            self.close()
            raise SourceUnreachable(
                f"{self.address} supports no version of {api_name(api_key)} that a mirror supports",
                hint="the source must be Kafka 0.11 or newer",
            )
        return version

    async def call(self, api_key: int, read: Callable[[Any], T], **fields: Any) -> T:
        """Send a request with these fields, and return the result of `read` for its response.

        Raises SourceUnreachable.
        """
        version = self.required_version(api_key)
        answer = await self._send(api_key, version, request_body(api_key, version, **fields), most=_MAX_ANSWER)
        with self._understood():
            if len(answer) <= _READ_AT_ONCE:
                return read(read_response(api_key, version, answer))
            return await asyncio.to_thread(lambda: read(read_response(api_key, version, answer)))

    async def fetch(self, call: SourceFetchRequest, version: int, most: int) -> SourceFetchResponse:
        """Send a Fetch request. Raises SourceUnreachable.

        Args:
            most: Largest number of partitions in the response.
        """
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

    def done_with(self, answer: SourceFetchResponse) -> None:
        """Allow the buffer of a response to be reused; its records must not be used afterwards."""
        if answer.partitions:
            self._frames.give_back(answer.partitions[0].records)

    async def _send(self, api_key: int, version: int, body: bytes, *, most: int) -> memoryview:
        """Send a request, and return the response without its header."""
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
            raise _unreachable(self.address, ValueError("received a response to another request"))
        with self._understood():
            return without_header(answer, api_key, version)

    def close(self) -> None:
        """Close immediately; pending requests fail."""
        self._connection.close()

    async def aclose(self) -> None:
        """Close, and wait a moment for TLS to send close_notify."""
        writer = self._connection._writer
        closed = self._connection.close()
        done, _ = await asyncio.wait([closed], timeout=_CLOSE_TIMEOUT_S)
        if not done and writer is not None:
            writer.transport.abort()
            await asyncio.sleep(0)


def _unreachable(address: str, error: BaseException) -> SourceUnreachable:
    return SourceUnreachable(f"{address}: {type(error).__name__}: {error}")


_DEFAULT_PORT = 9092
Address = tuple[str, int]


def parse_bootstrap(text: str) -> list[Address]:
    """Parse `host:port,host:port`, also `[::1]:9092`. Raises OptionError."""
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
    """The mirrored cluster.

    Metadata comes from the last node that responded, a bootstrap node, or another known node.
    """

    _bootstrap: Sequence[Address]
    _settings: ClientSettings
    _most: Mapping[int, int] | None = None
    _nodes: Mapping[int, Address] = field(init=False, default_factory=dict)
    _connection: SourceConnection | None = field(init=False, default=None)

    async def metadata(self) -> SourceCluster:
        """Request the metadata of all topics. Raises SourceUnreachable if no node responds."""
        errors: list[str] = []
        if self._connection is not None:
            with contextlib.suppress(SourceUnreachable):
                return await self._ask(self._connection)
        # Nodes from the last metadata come last, because there may be thousands of unreachable ones.
        for host, port in dict.fromkeys([*self._bootstrap, *self._nodes.values()]):
            try:
                return await self._ask(await self.connect((host, port)))
            except SourceUnreachable as error:
                errors.append(str(error))
        raise SourceUnreachable("no node of the source responds: " + "; ".join(errors))

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
        """Connect to a node. Raises SourceUnreachable."""
        return await SourceConnection.open(*address, self._settings, most=self._most)

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()
