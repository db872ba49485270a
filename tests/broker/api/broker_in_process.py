"""A whole broker in this process, with a clock that stands still, asked without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kio.serial import entity_reader

from broker import api
from broker.clock import ManualClock
from broker.config.broker_config import BrokerConfig
from broker.errors import BrokerError
from broker.protocol.api_registry import ConnectionInfo, Encoded, Request
from broker.protocol.codec import decode_request, encode_response, response_class
from broker.server import Broker
from broker.testing import frame_of


class BrokerInProcess:
    """Use as a context manager. `clock` is moved by hand, `tick` does what the broker does once a second."""

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self._loop = asyncio.new_event_loop()
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.retention.ms": "-1", **(properties or {})}
        self.broker = Broker(BrokerConfig.from_properties({**settings, "log.dirs": str(directory)}), self.clock)

    def __enter__(self) -> BrokerInProcess:
        self.run(self.broker.start())
        self.run(self._loaded())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.broker.stop())
        self._loop.close()

    def run(self, coroutine: Any) -> Any:
        return self._loop.run_until_complete(coroutine)

    async def _loaded(self) -> None:
        assert self.broker._loading is not None
        await self.broker._loading

    def tick(self) -> None:
        now_ms = self.clock.now_ms()
        self.broker.logs.tick(now_ms)
        self.broker.transactions.tick(now_ms)
        for transactional_id in self.broker.transactions.prepared:
            self.run(self.broker.transaction_ends.complete(transactional_id))

    def ask(self, entity: Any, read: Callable[[bytes], Any] | None = None) -> Any:
        """The response entity, through decoding and encoding; what `read` makes of the body where kio cannot."""
        request = decode_request(frame_of(entity), ConnectionInfo())
        found = api.load_all()[request.api_key]
        try:
            answer = self.run(found.handler(request, self.broker))
        except BrokerError as error:
            if found.on_error is None:
                raise
            answer = found.on_error(request, error.code)
        return _decoded(request, answer, read)


def _decoded(request: Request, answer: Any, read: Callable[[bytes], Any] | None) -> Any:
    response = response_class(request.api_key, request.version)
    frame = b"".join(bytes(piece) for piece in encode_response(request, answer))[4:]
    _, start = entity_reader(response.__header_schema__)(frame, 0)  # type: ignore[attr-defined]
    if read is not None and isinstance(answer, Encoded) and request.api_key == DESCRIBE_TRANSACTIONS:
        return read(frame[start:])
    entity, size = entity_reader(response)(frame, start)  # type: ignore[var-annotated]
    assert start + size == len(frame)
    return entity


DESCRIBE_TRANSACTIONS = 65
