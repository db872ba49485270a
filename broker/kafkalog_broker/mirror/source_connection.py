"""One connection to a node of the source: aiokafka's, for network, TLS and SASL; what goes over it is ours."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaError

from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.protocol.fetch_client import (
    FETCH,
    MAX_VERSION,
    MIN_VERSION,
    FetchAnswer,
    FetchCall,
    decode_fetch,
    encode_fetch,
)
from kafkalog_broker.protocol.source_calls import VERSIONS, is_flexible
from kafkalog_broker.protocol.wire import skip_tagged_fields
from kafkalog_spark.errors import KafkalogError

_HEADER = struct.Struct(">hhi")
_FAREWELL_S = 1.0


class SourceUnreachable(KafkalogError):
    """A node of the source cannot be reached, or ends a connection."""


class _Header(NamedTuple):
    """correlation_id: what aiokafka compares."""

    correlation_id: int
    data: bytes = b""

    def encode(self) -> bytes:
        return self.data


class _Body:
    """Stands for aiokafka's response classes: the bytes after the header, not copied."""

    @staticmethod
    def decode(frame: BytesIO) -> memoryview:
        return memoryview(frame.getvalue())[frame.tell() :]


class _Call:
    """A request of our own bytes, in the shape of aiokafka's."""

    RESPONSE_TYPE = _Body

    def __init__(self, api_key: int, version: int, body: bytes, flexible: bool) -> None:
        self._api_key, self._version, self._body, self._flexible = api_key, version, body, flexible

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> _Call:
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> _Header:
        name = client_id.encode()
        data = _HEADER.pack(self._api_key, self._version, correlation_id) + len(name).to_bytes(2, "big") + name
        return _Header(correlation_id, data + (b"\0" if self._flexible else b""))

    def encode(self) -> bytes:
        return self._body

    def parse_response_header(self, frame: BytesIO) -> _Header:
        correlation_id = int.from_bytes(frame.read(4), "big", signed=True)
        if self._flexible:
            frame.seek(skip_tagged_fields(frame.getvalue(), frame.tell()))
        return _Header(correlation_id)

    def __repr__(self) -> str:  # aiokafka logs it
        return f"<API {self._api_key} version {self._version}, {len(self._body)} bytes>"


class SourceConnection:
    """Open it with `open`. Several requests may be under way; they are answered in order."""

    def __init__(self, connection: AIOKafkaConnection, address: str, most: Mapping[int, int]) -> None:
        self._connection = connection
        self.address = address
        self._most = most

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
        address = f"{host}:{port}"
        try:
            connection = await create_conn(
                host, port, client_id=settings.client_id, request_timeout_ms=settings.timeout_ms,
                ssl_context=settings.tls_context(), security_protocol=settings.security_protocol.upper(), **options,
            )  # fmt: skip
        except (OSError, KafkaError, TimeoutError, EOFError) as error:
            raise _unreachable(address, error) from error
        return cls(connection, address, most or {})

    def version(self, api_key: int) -> int | None:
        """The highest version that both sides speak; None when there is none."""
        lowest, highest = (MIN_VERSION, MAX_VERSION) if api_key == FETCH else VERSIONS[api_key]
        served = self._connection._versions.get(api_key)
        if served is None:
            return None
        highest = min(highest, served[1], self._most.get(api_key, highest))
        return highest if highest >= max(lowest, served[0]) else None

    async def call(self, api_key: int, version: int, body: bytes) -> memoryview:
        """The body of the response. Raises SourceUnreachable."""
        return await self._send(_Call(api_key, version, body, is_flexible(api_key, version)))

    async def fetch(self, call: FetchCall, version: int) -> FetchAnswer:
        """Raises SourceUnreachable, MalformedRequest."""
        body = await self._send(_Call(FETCH, version, encode_fetch(call, version), version >= 12))
        return decode_fetch(body, version)

    async def _send(self, call: _Call) -> memoryview:
        try:
            answer: memoryview = await self._connection.send(call)
        except (OSError, KafkaError, TimeoutError, EOFError) as error:
            self.close()
            raise _unreachable(self.address, error) from error
        return answer

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
