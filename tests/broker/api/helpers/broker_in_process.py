"""A whole broker in this process, with a clock that stands still, asked without a network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any, Self

from kafkalog_broker import api
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.headers import without_header
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.security.authorizer import admit
from kafkalog_broker.server import Options, Server
from kafkalog_broker.testing_support.client_requests import frame_of
from tests.broker.api.helpers.plain_entities import TOKENS
from tests.broker.loop_watch import loop_watched
from tests.broker.manual_clock import ManualClock
from tests.broker.protocol.helpers.kio_messages import read_response


class BrokerInProcess:
    """Use as a context manager. `clock` is moved by hand, `tick` does what the broker does once a second.

    Whatever is done with it, nothing in the loop waits for the disk.
    """

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self._loop = asyncio.new_event_loop()
        self._watch = contextlib.ExitStack()
        self._waits = self._watch.enter_context(loop_watched())
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.retention.ms": "-1", **(properties or {})}
        self.config = BrokerConfig.from_properties({**settings, "log.dirs": str(directory)})

    def __enter__(self) -> Self:
        try:
            self.server = self.run(Server.start(self.config, Options(clock=self.clock)))
        except BaseException:
            self._loop.close()
            self._watch.close()
            raise
        self.broker: Broker = self.server.broker
        self.run(self.broker.lifecycle.coordinators_loaded.wait())
        self._waits.clear()  # nobody was served yet
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.server.stop())
        self._loop.close()
        self._watch.close()
        assert not self._waits, f"{len(self._waits)} times the loop waited, first for {self._waits[0]}"

    def run(self, coroutine: Any) -> Any:
        return self._loop.run_until_complete(coroutine)

    def tick(self) -> None:
        self.run(self._tick())
        for transactional_id in self.broker.transactions.prepared:
            self.run(self.broker.transaction_ends.complete(transactional_id))

    async def _tick(self) -> None:
        now_ms = self.clock.now_ms()
        self.broker.logs.tick(now_ms)
        self.broker.groups.tick()
        self.broker.transactions.tick(now_ms)

    def ask(self, entity: Any, read: Callable[[bytes], Any] | None = None, *, principal: str = "User:ANONYMOUS") -> Any:
        """The response entity, through decoding and encoding; what `read` makes of the body where kio cannot; None
        where the connection would be closed."""
        request = decode_request(frame_of(entity), ConnectionInfo(principal=principal))
        found = api.load_all()[request.api_key]
        try:
            if self.broker.authorizer is not None:
                admit(request, self.broker.authorizer)
            answer = self.run(found.respond(request, self.broker))
        except BrokerError as error:
            if found.on_error is None:
                raise
            answer = found.on_error(request, error.code)
            if isawaitable(answer):
                answer = self.run(answer)
        return None if answer is None else _decoded(request, answer, read)


def _decoded(request: Request, answer: Any, read: Callable[[bytes], Any] | None) -> Any:
    frame = b"".join(bytes(piece) for piece in encode_response(request, answer))[4:]
    if request.api_key in TOKENS:
        return {"answer": frame[4:].hex()}
    if read is not None and request.api_key == DESCRIBE_TRANSACTIONS:
        return read(without_header(frame, request.api_key, request.version))
    return read_response(request.api_key, request.version, frame)


DESCRIBE_TRANSACTIONS = 65
