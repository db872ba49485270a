"""Faults that a test injects into a broker: which requests they affect, and how."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.net.dispatch import ConnectionClosed
from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.api_registry import Api, registry
from kafkalog_broker.protocol.client_messages import decode_response
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.protocol.served_apis import Layer
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.format.messages.classes import StructValue

_log = logging.getLogger(__name__)

FETCH, METADATA = 1, 3

BY_LOG = frozenset({0, FETCH, 2, 21, 23, 61})
"""Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers. The look-up of a partition's log
raises the error, so it can be limited to one topic."""

BY_TOPICS = frozenset({8, 19, 28})
"""OffsetCommit, CreateTopics, TxnOffsetCommit. One topic of a request can be refused."""


class FaultError(ValueError):
    """The fault is not possible."""


Drop = Literal["before", "after"]
"""When the connection is closed instead of responding: before or after the request is handled. With "after", a client
that retries has the request executed twice."""


@dataclass(slots=True)
class InjectedFault:
    """One fault.

    Attributes:
        api_key: API of the affected requests; None for any.
        topic, client_id: Topic and client of the affected requests; None for any.
        error, delay_ms, drop: Effect on a request.
        skip: Number of matching requests that are handled normally first.
        times: Number of requests to affect; None for all.
        met: Number of affected requests so far.
    """

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
        """Count a matching request, and return True if the fault affects it."""
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
    """Faults of a broker.

    Attributes:
        all: Faults by number, in the order in which they were added. Call `changed` after a change. Only the first
            fault that matches a request affects it.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._numbers = 0
        self.all: dict[int, InjectedFault] = {}

    def changed(self) -> None:
        """Wrap the handlers while a fault can affect further requests, and unwrap them otherwise."""
        is_waiting = any(not fault.is_over for fault in self.all.values())
        wrap = (lambda api: replace(api, handler=partial(self._handle, api))) if is_waiting else None
        self._broker.apis.set_layer(Layer.FAULTS, wrap)

    def add(self, arguments: Mapping[str, Any]) -> int:
        """Add a fault and return its number.

        Args:
            arguments: The arguments of `control_client.Faults.add`.

        Raises:
            FaultError: If the fault is not possible.
        """
        api, names = arguments.get("api"), {api_name(key): key for key in registry()}
        key = next((names[name] for name in names if api is not None and name.lower() == api.lower()), None)
        if api is not None and key is None:
            raise FaultError(f"there is no API {api!r}: {', '.join(sorted(names))}")
        error, drop = arguments.get("error"), arguments.get("drop")
        if drop not in (None, "before", "after"):
            raise FaultError(f"drop must be 'before' or 'after', not {drop!r}")
        fault = InjectedFault(
            key, arguments.get("topic"), arguments.get("client_id"), None if error is None else ErrorCode(error),
            int(arguments.get("delay_ms") or 0), drop, int(arguments.get("skip") or 0), arguments.get("times"),
        )  # fmt: skip
        self._check(fault)
        self._numbers += 1
        self.all[self._numbers] = fault
        return self._numbers

    def waiting(self, api_key: int, client_id: str | None) -> list[InjectedFault]:
        """Return the faults that may affect a request with this header."""
        return [
            fault
            for fault in self.all.values()
            if not fault.is_over
            and fault.api_key in (None, api_key)
            and (fault.client_id is None or fault.client_id == client_id)
        ]

    def _check(self, fault: InjectedFault) -> None:
        if fault.error is None and not fault.delay_ms and fault.drop is None:
            raise FaultError("a fault needs an error, a delay or a drop")
        if fault.error is not None and fault.drop is not None:
            raise FaultError("a dropped connection has no response with an error")
        key, name = fault.api_key, fault.topic
        if fault.error is not None:
            if key is None:
                raise FaultError("an error needs an API, because responses of other APIs differ")
            if name is None and key == METADATA:
                raise FaultError("an error of Metadata needs a topic")
            if name is not None and key not in BY_LOG | BY_TOPICS | {METADATA}:
                raise FaultError(f"an error of {api_name(key)} affects the whole request: omit `topic`")
        elif key == FETCH and name is not None:
            raise FaultError("a Fetch names its topics only at the beginning of a session: omit `topic`")

    async def _handle(self, api: Api, request: Request, broker: Broker) -> Any:
        fault = self._next_fault(request)
        if fault is None:
            return await api.respond(request, self._broker_for(request))
        _log.info("injecting a fault into %s of %s: %s", api_name(api.key), request.connection, fault)
        if fault.delay_ms:
            await asyncio.sleep(fault.delay_ms / 1000)
        if fault.drop == "before":
            raise ConnectionClosed("an injected fault", logging.INFO)
        if fault.error is not None:
            return await self._respond_with_error(api, request, fault.error, fault.topic)
        response = await api.respond(request, self._broker)
        if fault.drop == "after":
            raise ConnectionClosed("an injected fault, after the request was handled", logging.INFO)
        return response

    def _next_fault(self, request: Request) -> InjectedFault | None:
        """Return the fault that affects this request, or None. Faults that the look-up of a log raises do not count."""
        for fault in self.waiting(request.api_key, request.client_id):
            if _is_raised_by_log(fault, request):
                continue
            if fault.topic is not None:
                topic = self._broker.topics.get(fault.topic)
                all_topics = request.api_key == METADATA and request.entity.topics is None
                if not all_topics and not names_topic(request.entity, fault.topic, None if topic is None else topic.id):
                    continue
            if fault.take():
                return fault
        return None

    def _broker_for(self, request: Request) -> Broker:
        """Return the broker for the handler: one whose look-up of logs fails if a fault requires that."""
        waiting = self.waiting(request.api_key, request.client_id)
        faults = [fault for fault in waiting if _is_raised_by_log(fault, request)]
        return _FaultyBroker(self._broker, faults) if faults else self._broker

    async def _respond_with_error(self, api: Api, request: Request, code: ErrorCode, topic: str | None) -> Any:
        if api.key in BY_LOG:
            fault = InjectedFault(api.key, error=code, times=None)
            return await api.respond(request, _FaultyBroker(self._broker, [fault]))
        if api.key == METADATA:
            assert topic is not None
            return _with_error(await api.respond(request, self._broker), request, topic, code)
        assert api.on_error is not None
        if topic is None or api.key not in BY_TOPICS:
            return await api.respond_to_error(request, code)
        known = self._broker.topics.get(topic)
        affected: list[Any] = []
        others: list[Any] = []
        for struct in request.entity.topics:
            name = getattr(struct, "name", None) or struct.topic_id
            is_affected = names_topic(name, topic, None if known is None else known.id)
            (affected if is_affected else others).append(struct)
        refused = await api.respond_to_error(_with_topics(request, affected), code)
        if not others:
            return refused
        response = await api.respond(_with_topics(request, others), self._broker)
        return response._replace(topics=response.topics + refused.topics)


def names_topic(entity: Any, topic: str, topic_id: Any) -> bool:
    """Return True if a request names the topic anywhere, by its name or its ID."""
    if isinstance(entity, str):
        return entity == topic
    if isinstance(entity, list | tuple):
        return any(names_topic(item, topic, topic_id) for item in entity)
    if isinstance(entity, StructValue):
        return any(names_topic(getattr(entity, name), topic, topic_id) for name in entity._fields)
    if hasattr(entity, "topics"):  # ProduceRequest
        return any(names_topic(name, topic, topic_id) for name, _ in entity.topics)
    return topic_id is not None and bool(entity == topic_id)


def _is_raised_by_log(fault: InjectedFault, request: Request) -> bool:
    return fault.error is not None and fault.topic is not None and request.api_key in BY_LOG


class _FaultyBroker(Broker):
    """A broker whose look-up of logs fails for some topics or all. It shares all other state with the real broker."""

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
            raise BrokerError(code, f"an injected fault, of {topic}-{partition}")
        return self._real.log(topic, partition)


def _with_topics(request: Request, topics: list[Any]) -> Request:
    return replace(request, entity=request.entity._replace(topics=tuple(topics)))


def _with_error(response: Any, request: Request, name: str, code: ErrorCode) -> Any:
    body = b"".join(bytes(piece) for piece in encode_response(request, response))
    entity = decode_response(request.api_key, request.version, body[4:])
    topics = tuple(
        topic._replace(error_code=code, partitions=()) if topic.name == name else topic for topic in entity.topics
    )
    return entity._replace(topics=topics)
