"""One connection to a node of the source: aiokafka opens it, with TLS and SASL; what goes over it then is ours."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import Any

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaError

from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.mirror.response_frames import ResponseFrames
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


class SourceConnection:
    """Open it with `open`. Several requests may be under way; they are answered in order."""

    def __init__(
        self, connection: AIOKafkaConnection, address: str, settings: ClientSettings, most: Mapping[int, int]
    ) -> None:
        self.address = address
        self._connection = connection
        self._most = most
        self._timeout_s = settings.timeout_ms / 1000
        self._client_id = settings.client_id.encode()
        self._correlation_id = 0
        # aiokafka has opened it and logged in. From here on it would copy each response several times.
        connection._read_task.cancel()
        self._transport: asyncio.Transport = connection._writer.transport
        self._frames = ResponseFrames(connection._protocol)
        self._frames.take_over(self._transport)

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
        return cls(connection, address, settings, most or {})

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
        return await self._send(api_key, version, body, flexible=is_flexible(api_key, version))

    async def fetch(self, call: FetchCall, version: int) -> FetchAnswer:
        """Raises SourceUnreachable, MalformedRequest."""
        body = await self._send(FETCH, version, encode_fetch(call, version), flexible=version >= 12)
        return decode_fetch(body, version)

    def done_with(self, answer: FetchAnswer) -> None:
        """Nobody looks at the records of this answer any more: their memory may be used again."""
        if answer.partitions:
            self._frames.give_back(answer.partitions[0].records)

    async def _send(self, api_key: int, version: int, body: bytes, *, flexible: bool) -> memoryview:
        self._correlation_id = correlation_id = (self._correlation_id + 1) % 2**31
        name = self._client_id
        head = _HEADER.pack(api_key, version, correlation_id) + len(name).to_bytes(2, "big") + name
        head += b"\0" if flexible else b""
        expected = self._frames.expect()
        try:
            self._transport.write((len(head) + len(body)).to_bytes(4, "big") + head + body)
            async with asyncio.timeout(self._timeout_s):
                answer = await expected
        except (OSError, TimeoutError, RuntimeError) as error:  # RuntimeError: of a transport that is closed
            self.close()
            raise _unreachable(self.address, error) from error
        if int.from_bytes(answer[:4], "big", signed=True) != correlation_id:
            self.close()
            raise _unreachable(self.address, ValueError("a response to another request came"))
        return answer[skip_tagged_fields(answer, 4) if flexible else 4 :]

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
