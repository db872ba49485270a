"""Connection to one node of the mirrored cluster.

aiokafka opens it, with TLS and SASL. Requests are then written and responses read without aiokafka, whose reader copies
each response several times.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from aiokafka.conn import AIOKafkaConnection, ScramAuthenticator

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.mirror.response_frames import MAX_RESPONSE, ResponseFrames
from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.client_messages import read_response, request_body
from kafkalog_broker.protocol.headers import request_header, without_header
from kafkalog_broker.protocol.mirror_fetch_messages import (
    SourceFetchRequest,
    SourceFetchResponse,
    decode_fetch,
    encode_fetch,
)
from kafkalog_broker.protocol.mirror_messages import FETCH, VERSIONS
from kafkalog_broker.security.scram import MIN_ITERATIONS
from kafkalog_spark.errors import KafkalogError, printable

_log = logging.getLogger(__name__)
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # its errors are raised as SourceUnreachable, and logged

T = TypeVar("T")

_CLOSE_TIMEOUT_S = 1.0
_MAX_RESPONSE = 64 << 20  # largest response in bytes, except of Fetch: Metadata of a million partitions
_DECODED_ON_LOOP = 64 << 10  # largest response in bytes that is decoded on the event loop
_MAX_ITERATIONS = 1_000_000
"""Largest number of SCRAM iterations, as in librdkafka. Kafka before KRaft had no limit of its own."""


class SourceUnreachable(KafkalogError):
    """A node of the source cannot be reached, ends a connection, or sends an invalid response."""


class _Scram(ScramAuthenticator):  # type: ignore[misc]
    def create_salted_password(self, salt: bytes, iterations: int) -> None:
        if not MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:  # with few iterations the password is easy to guess
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
        self, connection: AIOKafkaConnection, address: str, settings: ClientSettings, max_versions: Mapping[int, int]
    ) -> None:
        self.address = address
        self._connection = connection
        self._max_versions = max_versions
        self._timeout_s = settings.timeout_ms / 1000
        self._client_id = settings.client_id
        self._correlation_id = 0
        # aiokafka has connected and authenticated. Its own reading would copy each response several times.
        connection._read_task.cancel()
        self._transport: asyncio.Transport = connection._writer.transport
        self._frames = ResponseFrames(connection._protocol, self._transport)

    @classmethod
    async def open(
        cls, host: str, port: int, settings: ClientSettings, *, max_versions: Mapping[int, int] | None = None
    ) -> SourceConnection:
        """Connect and authenticate. Raises SourceUnreachable.

        Args:
            max_versions: Highest version to use by API key, for tests.
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
            return cls(connection, address, settings, max_versions or {})
        except Exception as error:
            raise _unreachable(address, error) from error

    def version(self, api_key: int) -> int | None:
        """Return the highest version of an API that both sides support; None if there is none."""
        lowest, highest = VERSIONS[api_key]
        served = self._connection._versions.get(api_key)
        if served is None:
            return None
        highest = min(highest, served[1], self._max_versions.get(api_key, highest))
        return highest if highest >= max(lowest, served[0]) else None

    def required_version(self, api_key: int) -> int:
        """Return `version(api_key)`. Raises SourceUnreachable if there is none."""
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
        response = await self._send(api_key, version, request_body(api_key, version, **fields), max_bytes=_MAX_RESPONSE)
        with self._closing_if_malformed():
            if len(response) <= _DECODED_ON_LOOP:
                return read(read_response(api_key, version, response))
            return await asyncio.to_thread(lambda: read(read_response(api_key, version, response)))

    async def fetch(self, call: SourceFetchRequest, version: int, max_partitions: int) -> SourceFetchResponse:
        """Send a Fetch request. Raises SourceUnreachable.

        Args:
            max_partitions: Largest number of partitions in the response.
        """
        response = await self._send(FETCH, version, encode_fetch(call, version), max_bytes=MAX_RESPONSE)
        with self._closing_if_malformed():
            return decode_fetch(response, version, max_partitions)

    @contextlib.contextmanager
    def _closing_if_malformed(self) -> Iterator[None]:
        try:
            yield
        except MalformedRequest as error:
            self.close()
            raise SourceUnreachable(f"{self.address}: {error}") from None

    def reuse_buffer(self, response: SourceFetchResponse) -> None:
        """Allow the buffer of a response to be reused; its records must not be used afterwards."""
        if response.partitions:
            self._frames.give_back(response.partitions[0].records)

    async def _send(self, api_key: int, version: int, body: bytes, *, max_bytes: int) -> memoryview:
        """Send a request, and return the response without its header."""
        self._correlation_id = correlation_id = (self._correlation_id + 1) % 2**31
        head = request_header(api_key, version, correlation_id, self._client_id)
        try:
            expected = self._frames.expect(max_bytes)
            try:
                self._transport.write((len(head) + len(body)).to_bytes(4, "big") + head + body)
            except BaseException:
                expected.cancel()  # no response comes, and asyncio would log the exception of its future
                raise
            async with asyncio.timeout(self._timeout_s):
                response = await expected
        except (OSError, TimeoutError, RuntimeError) as error:  # RuntimeError: of a transport that is closed
            self.close()
            raise _unreachable(self.address, error) from error
        if int.from_bytes(response[:4], "big", signed=True) != correlation_id:
            self.close()
            raise _unreachable(self.address, ValueError("received a response to another request"))
        with self._closing_if_malformed():
            return without_header(response, api_key, version)

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
