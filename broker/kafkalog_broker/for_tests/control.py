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
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

from kafkalog_broker.broker import Broker
from kafkalog_broker.clock import Clock
from kafkalog_broker.for_tests.faults import FaultError
from kafkalog_broker.for_tests.faulty_handlers import FaultyHandlers
from kafkalog_broker.for_tests.moved_time import MovedClock, MovedTimers
from kafkalog_broker.groups.timers import Scheduler, TimerHandle
from kafkalog_broker.served_apis import ServedApis

_log = logging.getLogger(__name__)


class Controlled(Protocol):
    """What is needed of `server.Server`."""

    clock: Clock
    scheduler: Scheduler
    apis: ServedApis

    def schedule(self, delay_ms: int, call: Callable[[], None]) -> TimerHandle: ...
    async def catch_up(self) -> None: ...


class Control:
    """broker: a server that has not been started. From now on its clock and its timers can be moved. descriptor: of the
    channel."""

    def __init__(self, broker: Controlled, descriptor: int) -> None:
        self._broker, self._channel = broker, socket.socket(fileno=descriptor)
        broker.clock = self._clock = MovedClock(broker.clock)
        broker.scheduler = self._timers = MovedTimers(self._clock, broker.schedule)
        self._handlers: FaultyHandlers
        self._commands: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[Any]]] = {
            "advance": self._advance,
            "add_fault": self._add_fault,
            "remove_fault": self._remove_fault,
            "clear_faults": self._clear_faults,
            "met": self._met,
        }

    async def serve(self) -> None:
        """Once the broker serves, until the other end is closed."""
        self._handlers = FaultyHandlers(self._broker.apis, cast(Broker, self._broker))
        reader, writer = await asyncio.open_connection(sock=self._channel)
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(json.loads(line))).encode() + b"\n")
                await writer.drain()
        except OSError as error:
            _log.debug("the channel to the test has ended: %s", error)
        finally:
            writer.close()

    async def _answer(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return {"result": await self._commands[asked["do"]](asked)}
        except FaultError as error:
            return {"error": str(error)}

    async def _advance(self, asked: Mapping[str, Any]) -> None:
        self._clock.advance(int(asked["ms"]))
        self._timers.moved()
        await self._broker.catch_up()

    async def _add_fault(self, asked: Mapping[str, Any]) -> int:
        number = self._handlers.faults.add(asked)
        self._handlers.changed()
        return number

    async def _remove_fault(self, asked: Mapping[str, Any]) -> None:
        self._handlers.faults.all.pop(asked["fault"], None)
        self._handlers.changed()

    async def _clear_faults(self, asked: Mapping[str, Any]) -> None:
        self._handlers.faults.all.clear()
        self._handlers.changed()

    async def _met(self, asked: Mapping[str, Any]) -> int:
        fault = self._handlers.faults.all.get(asked["fault"])
        return 0 if fault is None else fault.met
