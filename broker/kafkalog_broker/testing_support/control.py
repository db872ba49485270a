"""The broker's end of the channel to the test that started it: one JSON object a line, each answered by one.

    {"do": "advance", "ms": 3600000}      {"result": null}
    {"do": "add_fault", "api": "Produce", "drop": "before", "times": 1}      {"result": 1}
    {"do": "add_fault", "api": "Prodce"}      {"error": "there is no API 'Prodce': ..."}

It is a socket that the two processes share, inherited and bound to no address: nobody else can reach it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.net.dispatch import ConnectionClosed
from kafkalog_broker.protocol.api_registry import Api, Layer, Request
from kafkalog_broker.protocol.client_codec import decode_response
from kafkalog_broker.protocol.codec import api_name, encode_response
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.testing_support.faults import (
    BY_LOG,
    BY_TOPICS,
    METADATA,
    Drop,
    FaultError,
    Faults,
    InjectedFault,
    names_topic,
)
from kafkalog_broker.testing_support.remote import MovedClock, MovedTimers

if TYPE_CHECKING:
    from kafkalog_broker.server import Server

_log = logging.getLogger(__name__)

# Handlers to which faults happen. They take the place of the others only while there are faults.


class FaultyHandlers:
    """`faults`: change them, then call `changed`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.faults = Faults(broker.apis)

    def changed(self) -> None:
        """Take the handlers that go by the faults there are now."""
        self._broker.apis.wrap(Layer.FAULTS, self._faulty if self.faults.are_waiting else None)

    def _faulty(self, api: Api) -> Api:
        return replace(api, handler=partial(self._handle, api))

    async def _handle(self, api: Api, request: Request, broker: Broker) -> Any:
        fault = self._met(request)
        if fault is None:
            return await api.handled(request, self._view(request))
        _log.info("a fault for %s of %s: %s", api_name(api.key), request.connection, fault)
        if fault.delay_ms:
            await asyncio.sleep(fault.delay_ms / 1000)
        if fault.drop is Drop.BEFORE:
            raise ConnectionClosed("a fault that was asked for", logging.INFO)
        if fault.error is not None:
            return await self._refused(api, request, fault.error, fault.topic)
        answer = await api.handled(request, self._broker)
        if fault.drop is Drop.AFTER:
            raise ConnectionClosed("a fault that was asked for, after the request was handled", logging.INFO)
        return answer

    def _met(self, request: Request) -> InjectedFault | None:
        """The fault that happens to this request; those that are met where a log is looked for come later."""
        for fault in self.faults.waiting(request.api_key, request.client_id):
            if _is_of_a_log(fault, request):
                continue
            if fault.topic is not None:
                topic = self._broker.topics.get(fault.topic)
                all_topics = request.api_key == METADATA and request.entity.topics is None
                if not all_topics and not names_topic(request.entity, fault.topic, None if topic is None else topic.id):
                    continue
            if fault.take():
                return fault
        return None

    def _view(self, request: Request) -> Broker:
        """The broker as a handler sees it whose request may meet the fault of a topic's log."""
        waiting = self.faults.waiting(request.api_key, request.client_id)
        faults = [fault for fault in waiting if _is_of_a_log(fault, request)]
        return _Refusing(self._broker, faults) if faults else self._broker

    async def _refused(self, api: Api, request: Request, code: ErrorCode, topic: str | None) -> Any:
        if api.key in BY_LOG:
            return await api.handled(request, _Refusing(self._broker, [InjectedFault(api.key, error=code, times=None)]))
        if api.key == METADATA:
            assert topic is not None
            return _with_error(await api.handled(request, self._broker), request, topic, code)
        assert api.on_error is not None
        if topic is None or api.key not in BY_TOPICS:
            return await _now(api.on_error(request, code))
        known = self._broker.topics.get(topic)
        own: list[Any] = []
        others: list[Any] = []
        for one in request.entity.topics:
            is_it = names_topic(getattr(one, "name", None) or one.topic_id, topic, None if known is None else known.id)
            (own if is_it else others).append(one)
        refused = await _now(api.on_error(_of_topics(request, own), code))
        if not others:
            return refused
        answer = await api.handled(_of_topics(request, others), self._broker)
        return replace(answer, topics=answer.topics + refused.topics)


def _is_of_a_log(fault: InjectedFault, request: Request) -> bool:
    return fault.error is not None and fault.topic is not None and request.api_key in BY_LOG


class _Refusing(Broker):
    """A broker in which logs cannot be found, of some topics or all; everything else is the real one's."""

    def __init__(self, broker: Broker, faults: list[InjectedFault]) -> None:
        self.__dict__ = dict(broker.__dict__)
        self._real, self._faults = broker, faults
        self._decided: dict[str, ErrorCode | None] = {}

    def log(self, topic: str, partition: int) -> Log:
        if topic not in self._decided:
            met = (fault.error for fault in self._faults if fault.topic in (None, topic) and fault.take())
            self._decided[topic] = next(met, None)
        code = self._decided[topic]
        if code is not None:
            raise BrokerError(code, f"a fault that was asked for, of {topic}-{partition}")
        return self._real.log(topic, partition)


def _of_topics(request: Request, topics: list[Any]) -> Request:
    return replace(request, entity=replace(request.entity, topics=tuple(topics)))


def _with_error(answer: Any, request: Request, name: str, code: ErrorCode) -> Any:
    body = b"".join(bytes(piece) for piece in encode_response(request, answer))
    entity = decode_response(request.api_key, request.version, body[4:])
    topics = tuple(
        replace(topic, error_code=code, partitions=()) if topic.name == name else topic for topic in entity.topics
    )
    return replace(entity, topics=topics)


async def _now(answer: Any) -> Any:
    return await answer if isawaitable(answer) else answer


class Control:
    """broker: not started; from now on its clock and its timers can be moved. descriptor: of the channel."""

    def __init__(self, broker: Server, descriptor: int) -> None:
        self._broker, self._channel = broker, socket.socket(fileno=descriptor)
        broker.clock = self._clock = MovedClock(broker.clock)
        broker.scheduler = self._timers = MovedTimers(self._clock, broker.schedule)

    async def serve(self) -> None:
        """Once the broker serves, until the other end is closed."""
        handlers = FaultyHandlers(self._broker)
        reader, writer = await asyncio.open_connection(sock=self._channel)
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(json.loads(line), handlers)).encode() + b"\n")
                await writer.drain()
        except OSError as error:
            _log.debug("the channel to the test has ended: %s", error)
        finally:
            writer.close()

    async def _answer(self, command: Mapping[str, Any], handlers: FaultyHandlers) -> Mapping[str, Any]:
        result, faults = None, handlers.faults
        match command["do"]:
            case "advance":
                self._clock.advance(int(command["ms"]))
                self._timers.moved()
                await self._broker.catch_up()
                return {"result": None}
            case "met":
                return {"result": 0 if command["fault"] not in faults.all else faults.all[command["fault"]].met}
            case "add_fault":
                try:
                    result = faults.add(command)
                except FaultError as error:
                    return {"error": str(error)}
            case "remove_fault":
                faults.all.pop(command["fault"], None)
            case "clear_faults":
                faults.all.clear()
            case unknown:
                raise ValueError(f"no command of a test: {unknown!r}")
        handlers.changed()
        return {"result": result}
