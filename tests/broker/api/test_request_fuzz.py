"""Valid and damaged requests of all served APIs and versions, for the handlers of a broker in this process.

Each gets a response that can be encoded, or a BrokerError, but never another exception.
"""

from __future__ import annotations

import asyncio
import random
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker import api
from kafkalog_broker.config.authorizer_settings import STANDARD_AUTHORIZER
from kafkalog_broker.errors import BrokerError, MalformedRequest
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from kafkalog_broker.protocol.api_messages import FIRST_OWN_API_KEY
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.security.acl import Acl, Pattern
from kafkalog_broker.security.authorizer import admit
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.protocol.helpers.kio_messages import kio_request_class
from tests.broker.protocol.helpers.request_fuzz import header
from tests.broker.protocol.helpers.request_tokens import damaged, joined, tokens_of

FEW, MANY = 1_500, 30_000
ROUNDS = 50
"""Rounds of the event loop after which a handler counts as waiting, for members or bytes, and is cancelled."""
PROPERTIES = {"num.partitions": "1", "auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}


class InThreads:
    """Counts the calls that are running in the broker's threads. The test waits for handlers with such a call."""

    def __init__(self, broker: Any) -> None:
        self.count = 0
        broker.run_blocking = self._counted(broker.run_blocking)
        broker.run_computing = self._counted(broker.run_computing)

    def _counted(self, run: Any) -> Any:
        async def counted(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            try:
                return await run(*arguments, **named)
            finally:
                self.count -= 1

        return counted


async def handled(broker: Any, frame: bytes, threads: InThreads) -> str:
    """Return the outcome of a frame. Exceptions other than BrokerError pass through."""
    try:
        request = decode_request(frame)
    except MalformedRequest:
        return "malformed"
    handler = asyncio.ensure_future(api.load_all()[request.api_key].respond(request, broker))
    rounds = 0
    while not handler.done() and rounds < ROUNDS:
        rounds += threads.count == 0
        await asyncio.sleep(0.001 if threads.count else 0)
    if not handler.done():
        handler.cancel()
    try:
        response = await handler
    except asyncio.CancelledError:
        return "waits"
    except BrokerError:
        return "refused"
    if response is not None:
        encode_response(request, response)
    return "answered"


@pytest.mark.parametrize(
    ("seed", "count"), [(1, FEW), *(pytest.param(seed, MANY, marks=pytest.mark.slow) for seed in (2, 3))]
)
def test_handlers_respond_to_any_field_values(seed: int, count: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    served = [
        (key, version) for key, known in sorted(api.load_all().items())
        if key < FIRST_OWN_API_KEY  # kio does not know the others
        for version in range(known.min_version, known.max_version + 1)
    ]  # fmt: skip
    found: dict[str, int] = {}
    with BrokerInProcess(tmp_path / "data", PROPERTIES) as running:
        threads = InThreads(running.broker)
        for place in range(count):
            key, version = served[place] if place < len(served) else draw.choice(served)
            tokens = tokens_of(kio_request_class(key, version), draw)
            body = joined(tokens) if draw.random() < 0.4 else damaged(tokens, draw)
            frame = header(key, version) + body
            try:
                became = running.run(handled(running.broker, frame, threads))
            except Exception as error:
                raise AssertionError(f"API key {key} version {version}, body {body.hex()}") from error
            found[became] = found.get(became, 0) + 1
    assert found.keys() >= {"malformed", "answered"}
    assert found["answered"] > count / 10, found


async def refused(broker: Any, frame: bytes) -> str:
    """Return the outcome of a frame from a client with few rights, after its response was encoded."""
    try:
        request = decode_request(frame)
    except MalformedRequest:
        return "malformed"
    served = api.load_all()[request.api_key]
    try:
        admit(request, broker.authorizer)
        handler = asyncio.ensure_future(served.respond(request, broker))
        done, _ = await asyncio.wait([handler], timeout=0.01)
        if not done:
            handler.cancel()
            return "waits"
        response = await handler
    except BrokerError as error:
        response = None if served.on_error is None else served.on_error(request, error.code)
        if isawaitable(response):
            response = await response
    if response is not None:
        encode_response(request, response)
    return "answered"


@pytest.mark.slow
@pytest.mark.parametrize("only", ["TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER", None])
def test_handlers_respond_to_any_field_values_of_a_client_with_few_rights(only: str | None, tmp_path: Path) -> None:
    """`only` is the resource type on which the client has all rights."""
    draw = random.Random(5)
    served = [
        (key, version) for key, known in api.load_all().items()
        if key < FIRST_OWN_API_KEY
        for version in (known.min_version, known.max_version)
    ]  # fmt: skip
    properties = {**PROPERTIES, "authorizer.class.name": STANDARD_AUTHORIZER}
    with BrokerInProcess(tmp_path / "data", properties) as running:
        assert running.broker.authorizer is not None
        if only is not None:
            resource = ResourceType[only]
            pattern = Pattern(resource, PatternType.LITERAL, CLUSTER_NAME if only == "CLUSTER" else "*")
            everything = Acl(pattern, "User:*", "*", Operation.ALL, Permission.ALLOW)
            running.broker.authorizer.acls.change((), [everything])
        for place in range(5_000):
            key, version = served[place] if place < len(served) else draw.choice(served)
            tokens = tokens_of(kio_request_class(key, version), draw)
            body = joined(tokens) if draw.random() < 0.7 else damaged(tokens, draw)
            try:
                running.run(refused(running.broker, header(key, version) + body))
            except Exception as error:
                raise AssertionError(f"API key {key} version {version}, body {body.hex()}") from error
