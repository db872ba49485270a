"""The broker's end of the channel to the test that started it, and the faults that a test asks for. One JSON object a
line, each answered by one:

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
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.net.dispatch import ConnectionClosed
from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.api_registry import Api, Layer, registry
from kafkalog_broker.protocol.client_messages import decode_response
from kafkalog_broker.protocol.frames import encode_response
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.testing_support.remote import MovedClock, MovedTimers
from kafkalog_spark.format.messages.classes import StructValue

if TYPE_CHECKING:
    from kafkalog_broker.server import Server

_log = logging.getLogger(__name__)

# Faults that a test asks for: which requests they concern, and how often.

FETCH, METADATA = 1, 3

BY_LOG = frozenset({0, FETCH, 2, 21, 23, 61})
"""Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers: an error is met where the log of
a partition is looked for, so it can be that of one topic."""

BY_TOPICS = frozenset({8, 19, 28})
"""OffsetCommit, CreateTopics, TxnOffsetCommit: what a request says of one topic can be answered apart from the rest."""


class FaultError(ValueError):
    """A fault that cannot be."""


Drop = Literal["before", "after"]
"""The connection is closed instead of an answer: before anything has happened, or after the request was carried out, so
that a client that tries again does it twice."""


@dataclass(slots=True)
class InjectedFault:
    """api_key: None: any. topic, client_id: of whom; None: of all. error, delay_ms, drop: what happens. skip: requests
    that are still let through. times: how many are met after that; None: all. met: how many were."""

    api_key: int | None
    topic: str | None = None
    client_id: str | None = None
    error: ErrorCode | None = None
    delay_ms: int = 0
    drop: Drop | None = None
    skip: int = 0
    times: int | None = 1
    met: int = 0

    def take(self) -> bool:
        """A request that it concerns has come; whether the fault happens to it."""
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.is_over:
            return False
        self.met += 1
        return True

    @property
    def is_over(self) -> bool:
        return self.times is not None and self.met >= self.times


class Faults:
    """`all`: by number, in the order in which they were asked for; change it, then call `changed`. A request is met by
    the first that concerns it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._numbers = 0
        self.all: dict[int, InjectedFault] = {}

    def changed(self) -> None:
        """Take the handlers that go by the faults there are now; the others while none can happen."""
        is_waiting = any(not fault.is_over for fault in self.all.values())
        how = (lambda api: replace(api, handler=partial(self._handle, api))) if is_waiting else None
        self._broker.apis.wrap(Layer.FAULTS, how)

    def add(self, asked: Mapping[str, Any]) -> int:
        """asked: as `remote.Faults.add` says. Raises FaultError for what cannot be."""
        api, names = asked.get("api"), {api_name(key): key for key in registry()}
        key = next((names[name] for name in names if api is not None and name.lower() == api.lower()), None)
        if api is not None and key is None:
            raise FaultError(f"there is no API {api!r}: {', '.join(sorted(names))}")
        error, drop = asked.get("error"), asked.get("drop")
        if drop not in (None, "before", "after"):
            raise FaultError(f"drop is 'before' or 'after', not {drop!r}")
        fault = InjectedFault(
            key, asked.get("topic"), asked.get("client_id"), None if error is None else ErrorCode(error),
            int(asked.get("delay_ms") or 0), drop, int(asked.get("skip") or 0), asked.get("times"),
        )  # fmt: skip
        self._check(fault)
        self._numbers += 1
        self.all[self._numbers] = fault
        return self._numbers

    def waiting(self, api_key: int, client_id: str | None) -> list[InjectedFault]:
        """Faults that may happen to a request, by its header."""
        return [
            fault
            for fault in self.all.values()
            if not fault.is_over
            and fault.api_key in (None, api_key)
            and (fault.client_id is None or fault.client_id == client_id)
        ]

    def _check(self, fault: InjectedFault) -> None:
        if fault.error is None and not fault.delay_ms and fault.drop is None:
            raise FaultError("a fault is an error, a delay or a drop")
        if fault.error is not None and fault.drop is not None:
            raise FaultError("a connection that is dropped has no answer with an error")
        key, name = fault.api_key, fault.topic
        if fault.error is not None:
            if key is None:
                raise FaultError("an error needs an API: what others are answered looks different")
            if name is None and key == METADATA:
                raise FaultError("an error of Metadata is that of a topic")
            if name is not None and key not in BY_LOG | BY_TOPICS | {METADATA}:
                raise FaultError(f"an error of {api_name(key)} is that of the whole request: leave `topic` out")
        elif key == FETCH and name is not None:
            raise FaultError("a Fetch names its topics only at the beginning of a session: leave `topic` out")

    async def _handle(self, api: Api, request: Request, broker: Broker) -> Any:
        fault = self._met(request)
        if fault is None:
            return await api.handled(request, self._view(request))
        _log.info("a fault for %s of %s: %s", api_name(api.key), request.connection, fault)
        if fault.delay_ms:
            await asyncio.sleep(fault.delay_ms / 1000)
        if fault.drop == "before":
            raise ConnectionClosed("a fault that was asked for", logging.INFO)
        if fault.error is not None:
            return await self._refused(api, request, fault.error, fault.topic)
        answer = await api.handled(request, self._broker)
        if fault.drop == "after":
            raise ConnectionClosed("a fault that was asked for, after the request was handled", logging.INFO)
        return answer

    def _met(self, request: Request) -> InjectedFault | None:
        """The fault that happens to this request; those that are met where a log is looked for come later."""
        for fault in self.waiting(request.api_key, request.client_id):
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
        waiting = self.waiting(request.api_key, request.client_id)
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
            return await api.failed(request, code)
        known = self._broker.topics.get(topic)
        own: list[Any] = []
        others: list[Any] = []
        for one in request.entity.topics:
            is_it = names_topic(getattr(one, "name", None) or one.topic_id, topic, None if known is None else known.id)
            (own if is_it else others).append(one)
        refused = await api.failed(_of_topics(request, own), code)
        if not others:
            return refused
        answer = await api.handled(_of_topics(request, others), self._broker)
        return answer._replace(topics=answer.topics + refused.topics)


def names_topic(entity: Any, topic: str, topic_id: Any) -> bool:
    """True if a request, also Produce's own, names the topic anywhere: by name, or by its id."""
    if isinstance(entity, str):
        return entity == topic
    if isinstance(entity, list | tuple):
        return any(names_topic(one, topic, topic_id) for one in entity)
    if isinstance(entity, StructValue):
        return any(names_topic(getattr(entity, name), topic, topic_id) for name in entity._fields)
    if hasattr(entity, "topics"):  # Produce's own
        return any(names_topic(name, topic, topic_id) for name, _ in entity.topics)
    return topic_id is not None and bool(entity == topic_id)


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
    return replace(request, entity=request.entity._replace(topics=tuple(topics)))


def _with_error(answer: Any, request: Request, name: str, code: ErrorCode) -> Any:
    body = b"".join(bytes(piece) for piece in encode_response(request, answer))
    entity = decode_response(request.api_key, request.version, body[4:])
    topics = tuple(
        topic._replace(error_code=code, partitions=()) if topic.name == name else topic for topic in entity.topics
    )
    return entity._replace(topics=topics)


class Control:
    """broker: not started; from now on its clock and its timers can be moved. descriptor: of the channel."""

    def __init__(self, broker: Server, descriptor: int) -> None:
        self._broker, self._channel = broker, socket.socket(fileno=descriptor)
        broker.clock = self._clock = MovedClock(broker.clock)
        broker.scheduler = self._timers = MovedTimers(self._clock, broker.schedule)

    async def serve(self) -> None:
        """Once the broker serves, until the other end is closed."""
        faults = Faults(self._broker)
        reader, writer = await asyncio.open_connection(sock=self._channel)
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(json.loads(line), faults)).encode() + b"\n")
                await writer.drain()
        except OSError as error:
            _log.debug("the channel to the test has ended: %s", error)
        finally:
            writer.close()

    async def _answer(self, command: Mapping[str, Any], faults: Faults) -> Mapping[str, Any]:
        result = None
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
        faults.changed()
        return {"result": result}
