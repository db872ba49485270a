"""The test's end of the channel to its broker: `broker.faults` and `broker.clock`."""

from __future__ import annotations

import json
import socket
from datetime import timedelta
from typing import Any, Literal

ANSWER_S = 60.0
"""A broker that does not answer in that time has ended, or hangs."""


class Channel:
    """One exchange at a time. Raises RuntimeError while the broker is not running, ValueError for what it refuses."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._rest = b""

    def open(self) -> socket.socket:
        """A new channel; its other end, which the broker is to inherit and the caller to close."""
        self.close()
        self._socket, others = socket.socketpair()
        self._socket.settimeout(ANSWER_S)
        return others

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def ask(self, do: str, **named: Any) -> Any:
        """The result of a command."""
        if self._socket is None:
            raise RuntimeError("the broker is not running, or was started without `control`")
        try:
            self._socket.sendall(json.dumps({"do": do, **named}).encode() + b"\n")
            while b"\n" not in self._rest:
                more = self._socket.recv(1 << 16)
                if not more:
                    raise RuntimeError("the broker has ended")
                self._rest += more
        except OSError as error:
            raise RuntimeError(f"the broker does not answer: {error}") from error
        line, _, self._rest = self._rest.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["result"]


class Fault:
    """One that was asked for."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel, self._number = channel, number

    @property
    def met(self) -> int:
        """How many requests it has happened to."""
        count: int = self._channel.ask("met", fault=self._number)
        return count

    def remove(self) -> None:
        """It happens no more."""
        self._channel.ask("remove_fault", fault=self._number)


class Faults:
    """What is to go wrong in the broker. They last until they have happened, are removed, or the broker stops."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def add(
        self,
        api: str | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        error: int | None = None,
        delay: float | timedelta = 0,
        drop: Literal["before", "after"] | None = None,
        skip: int = 0,
        times: int | None = 1,
    ) -> Fault:
        """Let something happen to the next `times` requests (None: to all), after `skip` that are let through.

        api: its name in Kafka, "Produce"; None: any. topic, client_id: only to requests that name them.
        error: an ErrorCode, which is the answer; nothing else happens then. delay: seconds before the request is
        handled. drop: the connection is closed instead of an answer, "before" anything has happened or "after" it has.

        Raises ValueError for what cannot be, RuntimeError while the broker is not running.
        """
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        asked = {
            "api": api, "topic": topic, "client_id": client_id, "error": None if error is None else int(error),
            "delay_ms": round(seconds * 1000), "drop": drop, "skip": skip, "times": times,
        }  # fmt: skip
        return Fault(self._channel, self._channel.ask("add_fault", **asked))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._channel.ask("clear_faults")


class RemoteClock:
    """The broker's clock, ahead of this machine's by what was added to it: also after a restart."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._added_ms = 0

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass for the broker. On return what has become due has begun: retention, transactions and sessions
        that have timed out, offsets and producers that have expired. Clients do not notice; time never goes back.
        """
        ms = round(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds() * 1000)
        if ms < 0:
            raise ValueError("time never goes back")
        self._channel.ask("advance", ms=ms)
        self._added_ms += ms

    def restore(self) -> None:
        """After a restart."""
        if self._added_ms:
            self._channel.ask("advance", ms=self._added_ms)
