"""The broker's end of the channel to the test that started it. Each line is a JSON object, as is its response:

    {"do": "advance", "ms": 3600000}      {"result": null}
    {"do": "add_fault", "api": "Produce", "drop": "before", "times": 1}      {"result": 1}
    {"do": "add_fault", "api": "Prodce"}      {"error": "there is no API 'Prodce': ..."}

The channel is an inherited socket pair without an address, so no other process can reach it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkalog_broker.net.late_timer import schedule
from kafkalog_broker.runtime.clock import SystemClock
from kafkalog_broker.testing_support.faults import FaultError, Faults
from kafkalog_broker.testing_support.moved_clock import MovedClock, MovedTimers

if TYPE_CHECKING:
    from kafkalog_broker.server import Server

_log = logging.getLogger(__name__)


class Control:
    """Executes the commands of a test: advances the clock, adds and removes faults.

    Attributes:
        clock, timers: Clock and timers to start the broker with.
    """

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is the file descriptor of the channel."""
        self._channel = socket.socket(fileno=descriptor)
        self.clock = MovedClock(SystemClock())
        self.timers = MovedTimers(self.clock, schedule)

    async def serve(self, server: Server) -> None:
        """Execute the commands of the test until it closes the channel."""
        faults = Faults(server.broker)
        reader, writer = await asyncio.open_connection(sock=self._channel)
        try:
            while line := await reader.readline():
                result = await self._execute(json.loads(line), server, faults)
                writer.write(json.dumps(result).encode() + b"\n")
                await writer.drain()
        except OSError as error:
            _log.debug("the channel to the test has ended: %s", error)
        finally:
            writer.close()

    async def _execute(self, command: Mapping[str, Any], server: Server, faults: Faults) -> Mapping[str, Any]:
        result = None
        match command["do"]:
            case "advance":
                self.clock.advance(int(command["ms"]))
                self.timers.moved()
                await server.periodic.catch_up()
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
                raise ValueError(f"unknown command of a test: {unknown!r}")
        faults.changed()
        return {"result": result}
